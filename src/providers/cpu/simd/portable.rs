//! Vectors without special instructions.

use super::Vector;
use std::array::from_fn;
use std::ops::{Add, Div, Mul, Sub};

/// Four f32.
#[derive(Clone, Copy)]
pub struct Portable(pub [f32; 4]);

impl Portable {
    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        Self(from_fn(|i| f(self.0[i], other.0[i])))
    }
    #[inline(always)]
    fn map(self, f: impl Fn(f32) -> f32) -> Self {
        Self(self.0.map(f))
    }
}

macro_rules! operator {
    ($($trait:ident $method:ident),*) => {$(
        impl $trait for Portable {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                self.zip(other, |a, b| a.$method(b))
            }
        }
    )*};
}
operator!(Add add, Sub sub, Mul mul, Div div);

fn power_of_two(e: i32) -> f32 {
    f32::from_bits(((e + 127) as u32) << 23)
}

impl Vector for Portable {
    const LANES: usize = 4;
    type Mask = [bool; 4];

    #[inline(always)]
    fn splat(v: f32) -> Self {
        Self([v; 4])
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: as the trait says.
        Self(unsafe { p.cast::<[f32; 4]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn load_part(p: *const f32, n: usize) -> Self {
        // SAFETY: only the first `n` elements are read.
        Self(from_fn(|i| if i < n { unsafe { *p.add(i) } } else { 0.0 }))
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: as the trait says.
        unsafe { p.cast::<[f32; 4]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn store_part(self, p: *mut f32, n: usize) {
        // SAFETY: only the first `n` elements are written.
        (0..n).for_each(|i| unsafe { *p.add(i) = self.0[i] });
    }
    #[inline(always)]
    unsafe fn store_whole(self, p: *mut i32) {
        // SAFETY: the caller's promise.
        self.0
            .iter()
            .enumerate()
            .for_each(|(i, &v)| unsafe { p.add(i).write(v as i32) });
    }
    #[inline(always)]
    unsafe fn load_u8(p: *const u8) -> Self {
        // SAFETY: as the trait says.
        Self(unsafe { p.cast::<[u8; 4]>().read_unaligned() }.map(f32::from))
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const i8) -> Self {
        // SAFETY: as the trait says.
        Self(unsafe { p.cast::<[i8; 4]>().read_unaligned() }.map(f32::from))
    }
    #[inline(always)]
    unsafe fn store_8_bits(of: [Self; 4], zero: i16, low: i16, signed: bool, p: *mut u8) {
        let byte = |v: f32| {
            let whole = (v.round_ties_even() as i32).saturating_add(zero.into()).max(low.into());
            if signed {
                whole.clamp(-128, 127) as u8
            } else {
                whole.clamp(0, 255) as u8
            }
        };
        // SAFETY: as the trait says.
        unsafe { p.cast::<[[u8; 4]; 4]>().write_unaligned(of.map(|v| v.0.map(byte))) }
    }
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        self * b + c
    }
    #[inline(always)]
    fn fused(self, b: Self, c: Self) -> Self {
        // The product is exact in f64, and the sum so close that its rounding hardly ever shows.
        let wide = |i: usize| f64::from(self.0[i]) * f64::from(b.0[i]) + f64::from(c.0[i]);
        Self(from_fn(|i| wide(i) as f32))
    }
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        self.zip(other, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        self.zip(other, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        self.map(f32::sqrt)
    }
    #[inline(always)]
    fn round(self) -> Self {
        self.map(f32::round_ties_even)
    }
    #[inline(always)]
    fn floor(self) -> Self {
        self.map(f32::floor)
    }
    #[inline(always)]
    fn ceil(self) -> Self {
        self.map(f32::ceil)
    }
    #[inline(always)]
    fn abs(self) -> Self {
        self.map(f32::abs)
    }
    #[inline(always)]
    fn copysign(self, sign: Self) -> Self {
        self.zip(sign, f32::copysign)
    }
    #[inline(always)]
    fn scale(self, n: Self) -> Self {
        self.zip(n, |v, n| {
            let n = n as i32;
            let part = n >> 2;
            v * power_of_two(part) * power_of_two(part) * power_of_two(n - 2 * part)
        })
    }
    #[inline(always)]
    fn split(self) -> (Self, Self) {
        let mantissa = self.map(|v| f32::from_bits((v.to_bits() & 0x007f_ffff) | 0x3f00_0000));
        let exponent = self.map(|v| ((v.to_bits() >> 23) as i32 - 126) as f32);
        (mantissa, exponent)
    }
    #[inline(always)]
    fn lt(self, other: Self) -> Self::Mask {
        from_fn(|i| self.0[i] < other.0[i])
    }
    #[inline(always)]
    fn le(self, other: Self) -> Self::Mask {
        from_fn(|i| self.0[i] <= other.0[i])
    }
    #[inline(always)]
    fn eq(self, other: Self) -> Self::Mask {
        from_fn(|i| self.0[i] == other.0[i])
    }
    #[inline(always)]
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self {
        Self(from_fn(|i| if mask[i] { yes.0[i] } else { no.0[i] }))
    }
}
