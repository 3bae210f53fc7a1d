//! Vectors of 32-bit floats on the instruction sets that we compile for, chosen once at run time.

mod avx2;
mod avx512;
pub mod convert;
pub mod lookup;
pub mod math;
mod portable;

pub use avx2::Avx2;
pub use avx512::Avx512;
pub use portable::Portable;
use std::ops::{Add, Div, Mul, Sub};
use std::sync::OnceLock;

/// As many f32 as one register holds.
///
/// The functions may only run where the instruction set is there: inside [`multiversion`] functions.
pub trait Vector: Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> {
    /// Number of elements.
    const LANES: usize;
    /// One truth value per element.
    type Mask: Copy;

    /// The same value in every element.
    fn splat(v: f32) -> Self;
    /// Reads LANES elements.
    ///
    /// # Safety
    /// The elements must be readable.
    unsafe fn load(p: *const f32) -> Self;
    /// Reads `n < LANES` elements; the others are zero.
    ///
    /// # Safety
    /// The first `n` elements must be readable.
    unsafe fn load_part(p: *const f32, n: usize) -> Self;
    /// Writes LANES elements.
    ///
    /// # Safety
    /// The elements must be writable.
    unsafe fn store(self, p: *mut f32);
    /// Writes the first `n < LANES` elements.
    ///
    /// # Safety
    /// The first `n` elements must be writable.
    unsafe fn store_part(self, p: *mut f32, n: usize);
    /// Writes what is before the point of LANES elements, which 32 bits hold; of NaN an integer whose low 16 bits are 0.
    ///
    /// # Safety
    /// The integers must be writable.
    unsafe fn store_whole(self, p: *mut i32);
    /// Reads LANES uint8.
    ///
    /// # Safety
    /// The integers must be readable.
    unsafe fn load_u8(p: *const u8) -> Self;
    /// Reads LANES int8.
    ///
    /// # Safety
    /// The integers must be readable.
    unsafe fn load_i8(p: *const i8) -> Self;
    /// Writes the nearest integers, ties to even, of 4 * LANES elements, plus `zero`, at least `low`, as saturated int8
    /// (`signed`) or uint8. What 32 bits do not hold, and NaN, gives any integer.
    ///
    /// # Safety
    /// The integers must be writable.
    unsafe fn store_8_bits(of: [Self; 4], zero: i16, low: i16, signed: bool, p: *mut u8);
    /// `self * b + c`, with one rounding where the processor can.
    fn fma(self, b: Self, c: Self) -> Self;
    /// `self * b + c` with one rounding, also where that takes long.
    #[inline(always)]
    fn fused(self, b: Self, c: Self) -> Self {
        self.fma(b, c)
    }
    /// The lesser; `other` where either is NaN.
    fn min(self, other: Self) -> Self;
    /// The greater; `other` where either is NaN.
    fn max(self, other: Self) -> Self;
    /// Square root.
    fn sqrt(self) -> Self;
    /// Nearest integer, ties to even.
    fn round(self) -> Self;
    /// Greatest integer that is not above.
    fn floor(self) -> Self;
    /// Least integer that is not below.
    fn ceil(self) -> Self;
    /// Without its sign.
    fn abs(self) -> Self;
    /// `self` with the sign of `sign`.
    fn copysign(self, sign: Self) -> Self;
    /// Times 2^n for an integral `n` in -300..=300, rounded once.
    fn scale(self, n: Self) -> Self;
    /// For positive normal numbers: mantissa in 0.5..1 and exponent.
    fn split(self) -> (Self, Self);
    /// `self < other`.
    fn lt(self, other: Self) -> Self::Mask;
    /// `self <= other`.
    fn le(self, other: Self) -> Self::Mask;
    /// `self == other`.
    fn eq(self, other: Self) -> Self::Mask;
    /// `self` where the mask holds, else `other`.
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;
}

/// An instruction set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isa {
    /// What every processor has.
    Portable,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ, VL.
    Avx512,
}

impl Isa {
    /// The best of this processor.
    pub fn here() -> Isa {
        static HERE: OnceLock<Isa> = OnceLock::new();
        *HERE.get_or_init(detect)
    }
}

fn detect() -> Isa {
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    match (avx512 && avx2, avx2) {
        (true, _) => Isa::Avx512,
        (_, true) => Isa::Avx2,
        _ => Isa::Portable,
    }
}

/// Compiles a function, generic over a [`Vector`] (and what else is asked of it), for each instruction set, and calls the best one.
macro_rules! multiversion {
    ($(#[$meta:meta])* $vis:vis unsafe fn $name:ident<$V:ident $(: $more:ident)?>($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis unsafe fn $name($($arg: $ty),*) $(-> $ret)? {
            use $crate::providers::cpu::simd::{Avx2, Avx512, Isa, Portable, Vector};
            #[inline(always)]
            unsafe fn generic<$V: Vector $(+ $more)?>($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: the caller keeps the contract of the function.
                unsafe { $body }
            }
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
            unsafe fn avx512($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: as above.
                unsafe { generic::<Avx512>($($arg),*) }
            }
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn avx2($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: as above.
                unsafe { generic::<Avx2>($($arg),*) }
            }
            // SAFETY: as above, and the instruction set was found on this processor.
            unsafe {
                match Isa::here() {
                    Isa::Avx512 => avx512($($arg),*),
                    Isa::Avx2 => avx2($($arg),*),
                    Isa::Portable => generic::<Portable>($($arg),*),
                }
            }
        }
    };
}
pub(crate) use multiversion;

/// `out[i] = f(a[i])` for `i < n`; `out` may be `a`. Within [`multiversion`] functions.
///
/// A macro, because a closure would be compiled without the instruction set, and a large one not inlined.
macro_rules! map1 {
    ($V:ident, $n:expr, $a:expr, $out:expr, |$x:ident| $f:expr) => {{
        let (n, a, out): (usize, *const f32, *mut f32) = ($n, $a, $out);
        let mut i = 0;
        while i + $V::LANES <= n {
            let $x = $V::load(a.add(i));
            let y: $V = $f;
            y.store(out.add(i));
            i += $V::LANES;
        }
        if i < n {
            let $x = $V::load_part(a.add(i), n - i);
            let y: $V = $f;
            y.store_part(out.add(i), n - i);
        }
    }};
}
pub(crate) use map1;

/// `out[i] = f(a[i], b[i])` for `i < n`; as [`map1`].
macro_rules! map2 {
    ($V:ident, $n:expr, $a:expr, $b:expr, $out:expr, |$x:ident, $y:ident| $f:expr) => {{
        let (n, a, b, out): (usize, *const f32, *const f32, *mut f32) = ($n, $a, $b, $out);
        let mut i = 0;
        while i + $V::LANES <= n {
            let ($x, $y) = ($V::load(a.add(i)), $V::load(b.add(i)));
            let z: $V = $f;
            z.store(out.add(i));
            i += $V::LANES;
        }
        if i < n {
            let ($x, $y) = ($V::load_part(a.add(i), n - i), $V::load_part(b.add(i), n - i));
            let z: $V = $f;
            z.store_part(out.add(i), n - i);
        }
    }};
}
pub(crate) use map2;

/// `out[i] = f(a[i], b[i], c[i])` for `i < n`; as [`map1`].
macro_rules! map3 {
    ($V:ident, $n:expr, $a:expr, $b:expr, $c:expr, $out:expr, |$x:ident, $y:ident, $z:ident| $f:expr) => {{
        let (n, a, b, c, out): (usize, *const f32, *const f32, *const f32, *mut f32) = ($n, $a, $b, $c, $out);
        let mut i = 0;
        while i + $V::LANES <= n {
            let ($x, $y, $z) = ($V::load(a.add(i)), $V::load(b.add(i)), $V::load(c.add(i)));
            let r: $V = $f;
            r.store(out.add(i));
            i += $V::LANES;
        }
        if i < n {
            let part = |p: *const f32| $V::load_part(p.add(i), n - i);
            let ($x, $y, $z) = (part(a), part(b), part(c));
            let r: $V = $f;
            r.store_part(out.add(i), n - i);
        }
    }};
}
pub(crate) use map3;
