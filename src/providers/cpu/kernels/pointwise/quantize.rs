//! QuantizeLinear to integers of 8 bits by one scale and zero point, without numbers in between.

use crate::providers::cpu::simd::{Vector, multiversion};

/// Scales between these have an exact remainder of every quotient that does not round to 0 or saturate.
const SMALLEST: f32 = 1.0 / (1u64 << 60) as f32;
const GREATEST: f32 = (1u64 << 60) as f32;
/// What is beyond saturates, whatever the zero point.
const SATURATED: f32 = 1024.0;

/// The scale and the zero point of `n` numbers, if they are the same for all, and such that [`quantize`] takes them.
///
/// # Safety
/// Both must hold `n` elements.
pub unsafe fn uniform(n: usize, scale: *const f32, zero: *const f32) -> Option<(f32, f32)> {
    // SAFETY: the caller's promise.
    let [scales, zeros] = [scale, zero].map(|from| unsafe { std::slice::from_raw_parts(from, n) });
    let (&scale, &zero) = (scales.first()?, zeros.first()?);
    let alike = |all: &[f32], first: f32| {
        all.iter()
            .fold(true, |alike, &one| alike & (one.to_bits() == first.to_bits()))
    };
    let exact = (SMALLEST..GREATEST).contains(&scale.abs());
    (exact && alike(scales, scale) && alike(zeros, zero)).then_some((scale, zero))
}

/// `x / scale`, rounded as a division is, where that is at most [`SATURATED`]; else something beyond, or NaN of NaN. From the inverse
/// of the scale, rounded, and two remainders (P. Markstein, "Computation of elementary functions on the IBM RISC System/6000
/// processor", 1990): the first makes the quotient one of the two neighbours, of which the second finds the right one.
#[inline(always)]
fn quotient<V: Vector>(x: V, scale: V, inverse: V) -> V {
    let minus = V::splat(-0.0) - scale;
    let first = x * inverse;
    let near = first.fused(minus, x).fused(inverse, first);
    let whole = near.fused(minus, x).fused(inverse, near);
    V::select(first.abs().le(V::splat(SATURATED)), whole, first)
}

multiversion! {
    /// `n` numbers divided by a scale, to nearest even, plus a zero point, as int8 (`signed`) or uint8; of NaN 0.
    ///
    /// # Safety
    /// Both must hold `n` elements, and [`uniform`] must have given scale and zero point.
    pub unsafe fn quantize<V>(n: usize, x: *const f32, scale: f32, zero: f32, signed: bool, out: *mut u8) {
        const MOST: usize = 64;
        let by = Quantizer {
            scale: V::splat(scale),
            inverse: V::splat(1.0 / scale),
            zero,
            signed,
        };
        let (each, mut at) = (4 * V::LANES, 0);
        while at + each <= n {
            by.four(x.add(at), out.add(at));
            at += each;
        }
        if at < n {
            let (mut numbers, mut codes) = ([0.0; MOST], [0; MOST]);
            std::ptr::copy_nonoverlapping(x.add(at), numbers.as_mut_ptr(), n - at);
            by.four(numbers.as_ptr(), codes.as_mut_ptr());
            std::ptr::copy_nonoverlapping(codes.as_ptr(), out.add(at), n - at);
        }
    }
}

/// What numbers are quantized by.
struct Quantizer<V> {
    scale: V,
    inverse: V,
    zero: f32,
    signed: bool,
}

impl<V: Vector> Quantizer<V> {
    /// Four vectors.
    ///
    /// # Safety
    /// Both must hold as many elements.
    #[inline(always)]
    unsafe fn four(&self, x: *const f32, out: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe {
            let of = [
                self.one(V::load(x)),
                self.one(V::load(x.add(V::LANES))),
                self.one(V::load(x.add(2 * V::LANES))),
                self.one(V::load(x.add(3 * V::LANES))),
            ];
            V::store_8_bits(of, self.zero as i16, i16::MIN, self.signed, out);
        }
    }

    /// Quotients that 32 bits hold; of NaN one that becomes 0.
    #[inline(always)]
    fn one(&self, x: V) -> V {
        let q = quotient(x, self.scale, self.inverse);
        let held = V::splat(SATURATED).min(V::splat(-SATURATED).max(q));
        V::select(q.eq(q), held, V::splat(-self.zero))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of all magnitudes, halfway between two integers times the scale, and next to that.
    fn numbers(scale: f32) -> Vec<f32> {
        let mut state = 1u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 32) as u32
        };
        let mut all: Vec<f32> = (0..20_000).map(|_| f32::from_bits(random())).collect();
        all.extend((0..20_000).map(|_| (random() as f32 / u32::MAX as f32 - 0.5) * 600.0 * scale));
        for halves in -1_100..1_100 {
            let tie = halves as f32 * 0.5 * scale;
            all.extend([tie, tie.next_up(), tie.next_down()]);
        }
        all.extend([
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            0.0,
            -0.0,
            f32::MAX,
            f32::MIN_POSITIVE,
            1e-45,
        ]);
        all
    }

    #[test]
    fn codes_are_those_of_a_division() {
        let scales = [
            0.02,
            1.0 / 3.0,
            1.0,
            0.1f32.next_up(),
            1.999_999_9,
            -0.05,
            3e-17,
            7e16,
            0.003_921_569,
        ];
        for (scale, zero, signed) in scales
            .into_iter()
            .flat_map(|s| [(s, -3.0, true), (s, 121.0, false), (s, 0.0, true)])
        {
            let x = numbers(scale);
            let mut codes = vec![0; x.len()];
            let given = [scale; 2].map(|scale| vec![scale; 2]);
            // SAFETY: there is room for as many.
            unsafe {
                assert_eq!(uniform(2, given[0].as_ptr(), [zero; 2].as_ptr()), Some((scale, zero)));
                quantize(x.len(), x.as_ptr(), scale, zero, signed, codes.as_mut_ptr());
            }
            let (low, high) = if signed { (-128.0, 127.0) } else { (0.0, 255.0) };
            for (&x, &code) in x.iter().zip(&codes) {
                let q = (x / scale).round_ties_even() + zero;
                let wanted = if q.is_nan() { 0.0 } else { q.clamp(low, high) };
                let got = if signed { f32::from(code as i8) } else { f32::from(code) };
                assert_eq!(got, wanted, "{x:e} / {scale:e} + {zero}");
            }
        }
    }

    #[test]
    fn scales_that_differ_or_are_extreme_are_divided_by() {
        let of = |scales: &[f32], zeros: &[f32]| {
            // SAFETY: both have as many.
            unsafe { uniform(scales.len(), scales.as_ptr(), zeros.as_ptr()) }
        };
        assert_eq!(of(&[0.5, 0.5], &[1.0, 1.0]), Some((0.5, 1.0)));
        assert_eq!(of(&[0.5, 0.25], &[1.0, 1.0]), None);
        assert_eq!(of(&[0.5, 0.5], &[1.0, 2.0]), None);
        for scale in [0.0, f32::NAN, f32::INFINITY, 1e-30, 1e30] {
            assert_eq!(of(&[scale], &[0.0]), None);
        }
    }
}
