//! Vectors of AVX-512.

use super::Vector;
use std::arch::x86_64::*;
use std::ops::{Add, Div, Mul, Sub};

/// Sixteen f32.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Avx512(pub __m512);

macro_rules! operator {
    ($($trait:ident $method:ident $intrinsic:ident),*) => {$(
        impl $trait for Avx512 {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                // SAFETY: `Vector` is only used where AVX-512 is there.
                Self(unsafe { $intrinsic(self.0, other.0) })
            }
        }
    )*};
}
operator!(Add add _mm512_add_ps, Sub sub _mm512_sub_ps, Mul mul _mm512_mul_ps, Div div _mm512_div_ps);

const ROUND: i32 = _MM_FROUND_NO_EXC;

// SAFETY (every function here): `Vector` is only used where AVX-512 is there, and pointers as the trait says.
impl Vector for Avx512 {
    const LANES: usize = 16;
    type Mask = __mmask16;

    #[inline(always)]
    fn splat(v: f32) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_set1_ps(v) })
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_loadu_ps(p) })
    }
    #[inline(always)]
    unsafe fn load_part(p: *const f32, n: usize) -> Self {
        // SAFETY: see above; masked elements are not touched.
        Self(unsafe { _mm512_maskz_loadu_ps((1u16 << n) - 1, p) })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: see above.
        unsafe { _mm512_storeu_ps(p, self.0) }
    }
    #[inline(always)]
    unsafe fn store_part(self, p: *mut f32, n: usize) {
        // SAFETY: see above; masked elements are not touched.
        unsafe { _mm512_mask_storeu_ps(p, (1u16 << n) - 1, self.0) }
    }
    #[inline(always)]
    unsafe fn store_whole(self, p: *mut i32) {
        // SAFETY: see above, and the caller's promise.
        unsafe { _mm512_storeu_si512(p.cast(), _mm512_cvttps_epi32(self.0)) }
    }
    #[inline(always)]
    unsafe fn load_u8(p: *const u8) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast()))) })
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const i8) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast()))) })
    }
    #[inline(always)]
    unsafe fn store_8_bits(of: [Self; 4], zero: i16, low: i16, signed: bool, p: *mut u8) {
        let [a, b, c, d] = of;
        // SAFETY: see above.
        unsafe {
            let (zero, low) = (_mm512_set1_epi16(zero), _mm512_set1_epi16(low));
            let first = _mm512_packs_epi32(_mm512_cvtps_epi32(a.0), _mm512_cvtps_epi32(b.0));
            let last = _mm512_packs_epi32(_mm512_cvtps_epi32(c.0), _mm512_cvtps_epi32(d.0));
            let first = _mm512_max_epi16(_mm512_adds_epi16(first, zero), low);
            let last = _mm512_max_epi16(_mm512_adds_epi16(last, zero), low);
            let packed = if signed {
                _mm512_packs_epi16(first, last)
            } else {
                _mm512_packus_epi16(first, last)
            };
            // Each lane of 128 bits has four elements of each of the vectors.
            let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
            _mm512_storeu_si512(p.cast(), _mm512_permutexvar_epi32(order, packed));
        }
    }
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_fmadd_ps(self.0, b.0, c.0) })
    }
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_min_ps(self.0, other.0) })
    }
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_max_ps(self.0, other.0) })
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_sqrt_ps(self.0) })
    }
    #[inline(always)]
    fn round(self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | ROUND }>(self.0) })
    }
    #[inline(always)]
    fn floor(self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEG_INF | ROUND }>(self.0) })
    }
    #[inline(always)]
    fn ceil(self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_POS_INF | ROUND }>(self.0) })
    }
    #[inline(always)]
    fn abs(self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_abs_ps(self.0) })
    }
    #[inline(always)]
    fn copysign(self, sign: Self) -> Self {
        // SAFETY: see above.
        unsafe {
            let mask = _mm512_set1_ps(-0.0);
            Self(_mm512_or_ps(
                _mm512_and_ps(mask, sign.0),
                _mm512_andnot_ps(mask, self.0),
            ))
        }
    }
    #[inline(always)]
    fn scale(self, n: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_scalef_ps(self.0, n.0) })
    }
    #[inline(always)]
    fn split(self) -> (Self, Self) {
        // SAFETY: see above.
        unsafe {
            let mantissa = _mm512_getmant_ps::<_MM_MANT_NORM_P5_1, _MM_MANT_SIGN_ZERO>(self.0);
            let exponent = _mm512_add_ps(_mm512_getexp_ps(self.0), _mm512_set1_ps(1.0));
            (Self(mantissa), Self(exponent))
        }
    }
    #[inline(always)]
    fn lt(self, other: Self) -> Self::Mask {
        // SAFETY: see above.
        unsafe { _mm512_cmp_ps_mask::<_CMP_LT_OQ>(self.0, other.0) }
    }
    #[inline(always)]
    fn le(self, other: Self) -> Self::Mask {
        // SAFETY: see above.
        unsafe { _mm512_cmp_ps_mask::<_CMP_LE_OQ>(self.0, other.0) }
    }
    #[inline(always)]
    fn eq(self, other: Self) -> Self::Mask {
        // SAFETY: see above.
        unsafe { _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(self.0, other.0) }
    }
    #[inline(always)]
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_mask_blend_ps(mask, no.0, yes.0) })
    }
}
