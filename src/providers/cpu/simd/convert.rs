//! Runs of elements between the dtypes of memory and the two classes that kernels compute in: f32 and i64.

use super::multiversion;
use crate::network::dtype::DType;
use crate::network::narrow::{Encoder, Narrow, PLAIN, Rounding, numbers};
use half::f16;
use half::slice::HalfFloatSliceExt;

/// Widens `n` elements to f32 (bool: 0 and 1).
///
/// # Safety
/// `n` elements of `dtype` must be readable at `from`, and `n` f32 writable at `to`.
pub unsafe fn to_f32(dtype: DType, from: *const u8, to: *mut f32, n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match dtype {
            DType::Float32 => std::ptr::copy_nonoverlapping(from.cast(), to, n),
            DType::BFloat16 => widen_bf16(from.cast(), to, n),
            DType::Float16 => {
                let from = std::slice::from_raw_parts(from.cast::<f16>(), n);
                from.convert_to_f32_slice(std::slice::from_raw_parts_mut(to, n));
            }
            DType::Float64 => each(from.cast::<f64>(), to, n, |v| v as f32),
            DType::Bool => each(from, to, n, |v| (v != 0) as u8 as f32),
            DType::UInt8 => widen_u8(from, to, n),
            DType::Int8 => widen_i8(from.cast(), to, n),
            DType::Int16 => widen_i16(from.cast(), to, n),
            DType::UInt16 => widen_u16(from.cast(), to, n),
            DType::Int32 => each(from.cast::<i32>(), to, n, |v| v as f32),
            DType::UInt32 => each(from.cast::<u32>(), to, n, |v| v as f32),
            DType::Int64 => each(from.cast::<i64>(), to, n, |v| v as f32),
            DType::UInt64 => each(from.cast::<u64>(), to, n, |v| v as f32),
            narrow => {
                let numbers = numbers(narrow);
                each(from, to, n, |code| numbers[usize::from(code)]);
            }
        }
    }
}

/// Narrows `n` f32 to `dtype`: floats round to nearest even, integers truncate.
///
/// # Safety
/// `n` f32 must be readable at `from`, and `n` elements of `dtype` writable at `to`.
pub unsafe fn from_f32(dtype: DType, from: *const f32, to: *mut u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match dtype {
            DType::Float32 => std::ptr::copy_nonoverlapping(from, to.cast(), n),
            DType::BFloat16 => narrow_bf16(from, to.cast(), n),
            DType::Float16 => {
                let to = std::slice::from_raw_parts_mut(to.cast::<f16>(), n);
                to.convert_from_f32_slice(std::slice::from_raw_parts(from, n));
            }
            DType::Float64 => each(from, to.cast(), n, |v| v as f64),
            DType::Bool => each(from, to, n, |v| (v != 0.0) as u8),
            DType::UInt64 => each(
                from,
                to.cast(),
                n,
                |v| if v >= 0.0 { v as u64 } else { v as i64 as u64 },
            ),
            DType::Int64 => each(from, to.cast(), n, |v| v as i64),
            DType::Int32 | DType::UInt32 => each(from, to.cast(), n, |v| v as i64 as i32),
            DType::Int16 | DType::UInt16 if fits_32_bits(from, n) => cut_to_16(u16::MAX, from, to.cast(), n),
            DType::Int16 | DType::UInt16 => each(from, to.cast(), n, |v| v as i64 as i16),
            DType::Int8 | DType::UInt8 if fits_32_bits(from, n) => cut(u8::MAX, from, to, n),
            DType::Int8 | DType::UInt8 => each(from, to.cast(), n, |v| v as i64 as i8),
            narrow => encode(narrow, from, to, n),
        }
    }
}

/// Widens `n` integers or bools to i64.
///
/// # Safety
/// As [`to_f32`].
pub unsafe fn to_i64(dtype: DType, from: *const u8, to: *mut i64, n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match dtype {
            DType::Bool => each(from, to, n, |v| (v != 0) as i64),
            DType::UInt8 => each(from, to, n, |v| v as i64),
            DType::Int8 => each(from.cast::<i8>(), to, n, |v| v as i64),
            DType::Int16 => each(from.cast::<i16>(), to, n, |v| v as i64),
            DType::UInt16 => each(from.cast::<u16>(), to, n, |v| v as i64),
            DType::Int32 => each(from.cast::<i32>(), to, n, |v| v as i64),
            DType::UInt32 => each(from.cast::<u32>(), to, n, |v| v as i64),
            DType::Int64 | DType::UInt64 => std::ptr::copy_nonoverlapping(from.cast(), to, n),
            DType::Float32 => each(from.cast::<f32>(), to, n, |v| v as i64),
            DType::Float64 => each(from.cast::<f64>(), to, n, |v| v as i64),
            DType::Float16 => each(from.cast::<f16>(), to, n, |v| v.to_f32() as i64),
            DType::BFloat16 => each(from.cast::<half::bf16>(), to, n, |v| v.to_f32() as i64),
            narrow => {
                let numbers = numbers(narrow);
                each(from, to, n, |code| numbers[usize::from(code)] as i64);
            }
        }
    }
}

/// Narrows `n` i64 to `dtype`, wrapping as a C cast does.
///
/// # Safety
/// As [`from_f32`].
pub unsafe fn from_i64(dtype: DType, from: *const i64, to: *mut u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match dtype {
            DType::Bool => each(from, to, n, |v| (v != 0) as u8),
            DType::UInt8 | DType::Int8 => each(from, to, n, |v| v as u8),
            DType::Int16 | DType::UInt16 => each(from, to.cast(), n, |v| v as i16),
            DType::Int32 | DType::UInt32 => each(from, to.cast(), n, |v| v as i32),
            DType::Int64 | DType::UInt64 => std::ptr::copy_nonoverlapping(from, to.cast(), n),
            DType::Float32 => each(from, to.cast(), n, |v| v as f32),
            DType::Float64 => each(from, to.cast(), n, |v| v as f64),
            DType::Float16 => each(from, to.cast(), n, |v| f16::from_f64(v as f64)),
            DType::BFloat16 => each(from, to.cast(), n, |v| half::bf16::from_f64(v as f64)),
            dtype => each(from, to, n, |v| match dtype.narrow() {
                Some(narrow) if narrow.is_int() => v as u8 & narrow.mask(),
                Some(narrow) => narrow.encode(v as f64, PLAIN),
                None => 0,
            }),
        }
    }
}

#[inline(always)]
unsafe fn each<A: Copy, B>(from: *const A, to: *mut B, n: usize, f: impl Fn(A) -> B) {
    // SAFETY: the callers above hand on their callers' promise.
    (0..n).for_each(|i| unsafe { to.add(i).write(f(*from.add(i))) });
}

/// Widens integers by the vectors of this processor.
macro_rules! widen {
    ($($name:ident $from:ty),*) => {$(
        multiversion! {
            unsafe fn $name<V>(from: *const $from, to: *mut f32, n: usize) {
                let _ = V::LANES;
                each(from, to, n, |v| v as f32)
            }
        }
    )*};
}
widen!(widen_u8 u8, widen_i8 i8, widen_i16 i16, widen_u16 u16);

multiversion! {
    /// Whether all of these are NaN or have 32 bits before the point: processors convert those to integers by vectors.
    unsafe fn fits_32_bits<V>(from: *const f32, n: usize) -> bool {
        let _ = V::LANES;
        let large = (0..n).fold(0, |large, i| large | u32::from((*from.add(i)).abs() >= 2147483648.0));
        large == 0
    }
}

multiversion! {
    /// bf16 to f32.
    unsafe fn widen_bf16<V>(from: *const u16, to: *mut f32, n: usize) {
        let _ = V::LANES;
        each(from, to, n, |v| f32::from_bits((v as u32) << 16))
    }
}

multiversion! {
    /// f32 to bf16, to nearest even.
    unsafe fn narrow_bf16<V>(from: *const f32, to: *mut u16, n: usize) {
        let _ = V::LANES;
        each(from, to, n, |v| {
            let bits = v.to_bits();
            let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
            // A NaN keeps its sign and stays a NaN.
            (if v.is_nan() { bits >> 16 | 0x40 } else { rounded }) as u16
        })
    }
}

/// Narrows floats that 32 bits hold, or NaN, to the low bits of what is before the point, by the vectors of this processor. The
/// compiler's own conversion, which saturates, is made one by one.
macro_rules! cut {
    ($($(#[$meta:meta])* $name:ident $to:ty),*) => {$(
        multiversion! {
            $(#[$meta])*
            unsafe fn $name<V>(mask: $to, from: *const f32, to: *mut $to, n: usize) {
                let mut whole = [0i32; 64];
                for start in (0..n).step_by(whole.len()) {
                    let count = whole.len().min(n - start);
                    let mut i = 0;
                    while i + V::LANES <= count {
                        V::load(from.add(start + i)).store_whole(whole.as_mut_ptr().add(i));
                        i += V::LANES;
                    }
                    if i < count {
                        V::load_part(from.add(start + i), count - i).store_whole(whole.as_mut_ptr().add(i));
                    }
                    each(whole.as_ptr(), to.add(start), count, |v| v as $to & mask);
                }
            }
        }
    )*};
}
cut!(
    /// The low bits of integers; of others, what is before the point.
    cut u8,
    /// The low 16 bits of what is before the point.
    cut_to_16 u16
);

unsafe fn encode(dtype: DType, from: *const f32, to: *mut u8, n: usize) {
    if let Some(narrow) = dtype.narrow() {
        // SAFETY: `from_f32` hands on its caller's promise.
        unsafe { encode_by(narrow, PLAIN, from, to, n) };
    }
}

unsafe fn encode_by(narrow: Narrow, rounding: Rounding, from: *const f32, to: *mut u8, n: usize) {
    // SAFETY: the callers hand on the promise of `from_f32`.
    unsafe {
        match narrow.encoder(rounding.saturate) {
            Some(encoder) => encode_floats(encoder, from, to, n),
            None if narrow.is_int() && fits_32_bits(from, n) => cut(narrow.mask(), from, to, n),
            None if narrow.is_int() => each(from, to, n, |v| (v as i32) as u8 & narrow.mask()),
            None => each(from, to, n, |v| narrow.encode(f64::from(v), rounding)),
        }
    }
}

multiversion! {
    unsafe fn encode_floats<V>(encoder: Encoder, from: *const f32, to: *mut u8, n: usize) {
        let _ = V::LANES;
        each(from, to, n, |v| encoder.encode(v))
    }
}

/// As [`round_to`], for float16 and bfloat16.
///
/// # Safety
/// As [`round_to`].
unsafe fn round_to_short(dtype: DType, n: usize, from: *const f32, to: *mut f32) {
    let mut short = [0u16; 512];
    for start in (0..n).step_by(short.len()) {
        let count = short.len().min(n - start);
        // SAFETY: the caller's promise; there is room for `count` numbers of 16 bits.
        unsafe {
            from_f32(dtype, from.add(start), short.as_mut_ptr().cast(), count);
            to_f32(dtype, short.as_ptr().cast(), to.add(start), count);
        }
    }
}

/// f32 to the f32 that a dtype of 16 bits or fewer holds in their place.
///
/// # Safety
/// `n` f32 must be readable at `from` and writable at `to`, which may be `from`.
pub unsafe fn round_to(dtype: DType, rounding: Rounding, n: usize, from: *const f32, to: *mut f32) {
    let Some(narrow) = dtype.narrow() else {
        // SAFETY: the caller's promise.
        return unsafe { round_to_short(dtype, n, from, to) };
    };
    let (numbers, mut codes) = (numbers(dtype), [0u8; 512]);
    for start in (0..n).step_by(codes.len()) {
        let count = codes.len().min(n - start);
        // SAFETY: the caller's promise; the codes hold `count` bytes.
        unsafe {
            encode_by(narrow, rounding, from.add(start), codes.as_mut_ptr(), count);
            each(codes.as_ptr(), to.add(start), count, |code| numbers[usize::from(code)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::cpu::simd::{Avx2, Avx512, Isa, Portable, Vector};

    #[test]
    fn integers_are_cut_to_their_low_bits() {
        let mut x: Vec<f32> = (-400..400).map(|i| i as f32 * 0.75).collect();
        x.extend([f32::NAN, -0.0, 1e-40, 65_535.0, -65_536.5, 2e9, -2_147_483_520.0]);
        let all = x.clone();
        x.extend([2_147_483_648.0, -3e9, 1e30, f32::INFINITY, f32::NEG_INFINITY]);
        for n in [0, 1, 7, 63, 64, 65, all.len(), x.len()] {
            let from = &x[x.len() - n..];
            let (mut bytes, mut shorts) = (vec![0u8; n], vec![0u16; n]);
            // SAFETY: each has `n` elements.
            unsafe {
                from_f32(DType::Int8, from.as_ptr(), bytes.as_mut_ptr(), n);
                from_f32(DType::UInt16, from.as_ptr(), shorts.as_mut_ptr().cast(), n);
            }
            assert_eq!(bytes, from.iter().map(|&v| v as i64 as u8).collect::<Vec<_>>());
            assert_eq!(shorts, from.iter().map(|&v| v as i64 as u16).collect::<Vec<_>>());
        }
        let (mut nibbles, mut bytes) = (vec![0u8; x.len()], vec![0u8; all.len()]);
        // SAFETY: as above.
        unsafe {
            from_f32(DType::Int4, x.as_ptr(), nibbles.as_mut_ptr(), x.len());
            from_f32(DType::UInt8, all.as_ptr(), bytes.as_mut_ptr(), all.len());
        }
        assert_eq!(nibbles, x.iter().map(|&v| (v as i32) as u8 & 15).collect::<Vec<_>>());
        assert_eq!(bytes, all.iter().map(|&v| v as i32 as u8).collect::<Vec<_>>());
    }

    #[test]
    fn each_instruction_set_writes_the_same_whole_numbers() {
        fn check<V: Vector>() {
            for x in [0.9, -0.9, 127.5, -128.5, 8_388_609.0, -2_147_483_520.0] {
                let mut got = [0i32; 16];
                // SAFETY: there is room for the elements of every instruction set, and the caller found this one.
                unsafe { V::splat(x).store_whole(got.as_mut_ptr()) };
                assert!(got[..V::LANES].iter().all(|&v| v == x as i32), "{x}");
            }
            let mut got = [1i32; 16];
            // SAFETY: as above.
            unsafe { V::splat(f32::NAN).store_whole(got.as_mut_ptr()) };
            assert!(got[..V::LANES].iter().all(|v| v & 0xffff == 0));
        }
        check::<Portable>();
        if Isa::here() != Isa::Portable {
            check::<Avx2>();
        }
    }
    #[test]
    fn each_instruction_set_reads_and_writes_8_bits() {
        fn check<V: Vector>() {
            let bytes: [u8; 64] = std::array::from_fn(|i| (i * 37 + 250) as u8);
            for (signed, zero, low) in [(true, -9, -128), (true, 3, 3), (false, 121, 0), (false, 0, 5)] {
                let number = |b: u8| if signed { f32::from(b as i8) } else { f32::from(b) };
                let mut got = [0; 64];
                // SAFETY: there is room for four vectors of every instruction set, and the caller found this one.
                unsafe {
                    let read = |i: usize| {
                        let from = bytes.as_ptr().add(i * V::LANES);
                        if signed {
                            V::load_i8(from.cast())
                        } else {
                            V::load_u8(from)
                        }
                    };
                    let half = V::splat(1.5);
                    let of = [0, 1, 2, 3].map(|i| read(i) * half);
                    V::store_8_bits(of, zero, low, signed, got.as_mut_ptr());
                }
                let (least, most) = if signed { (-128, 127) } else { (0, 255) };
                for (&b, &g) in bytes.iter().zip(&got[..4 * V::LANES]) {
                    let whole = (number(b) * 1.5).round_ties_even() as i32 + i32::from(zero);
                    let wanted = whole.max(low.into()).clamp(least, most);
                    assert_eq!(number(g) as i32, wanted, "{b} signed {signed} zero {zero}");
                }
            }
        }
        check::<Portable>();
        if Isa::here() != Isa::Portable {
            check::<Avx2>();
        }
        if Isa::here() == Isa::Avx512 {
            check::<Avx512>();
        }
    }
}
