//! Vectors of AVX2 with FMA.

use super::Vector;
use std::arch::x86_64::*;
use std::ops::{Add, Div, Mul, Sub};

/// Eight f32.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Avx2(pub __m256);

macro_rules! operator {
    ($($trait:ident $method:ident $intrinsic:ident),*) => {$(
        impl $trait for Avx2 {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                // SAFETY: `Vector` is only used where AVX2 is there.
                Self(unsafe { $intrinsic(self.0, other.0) })
            }
        }
    )*};
}
operator!(Add add _mm256_add_ps, Sub sub _mm256_sub_ps, Mul mul _mm256_mul_ps, Div div _mm256_div_ps);

const ROUND: i32 = _MM_FROUND_NO_EXC;

/// All bits set in the first `n` elements.
#[inline(always)]
fn first(n: usize) -> __m256i {
    const ONES: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
    // SAFETY: `n <= 8`, so eight elements from `8 - n` on are inside.
    unsafe { _mm256_loadu_si256(ONES.as_ptr().add(8 - n).cast()) }
}

// SAFETY (every function here): `Vector` is only used where AVX2 and FMA are there, and pointers as the trait says.
impl Vector for Avx2 {
    const LANES: usize = 8;
    type Mask = __m256;

    #[inline(always)]
    fn splat(v: f32) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm256_set1_ps(v) })
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm256_loadu_ps(p) })
    }
    #[inline(always)]
    unsafe fn load_part(p: *const f32, n: usize) -> Self {
        // SAFETY: see above; masked elements are not touched.
        Self(unsafe { _mm256_maskload_ps(p, first(n)) })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: see above.
        unsafe { _mm256_storeu_ps(p, self.0) }
    }
    #[inline(always)]
    unsafe fn store_part(self, p: *mut f32, n: usize) {
        // SAFETY: see above; masked elements are not touched.
        unsafe { _mm256_maskstore_ps(p, first(n), self.0) }
    }
    #[inline(always)]
    unsafe fn store_whole(self, p: *mut i32) {
        // SAFETY: see above, and the caller's promise.
        unsafe { _mm256_storeu_si256(p.cast(), _mm256_cvttps_epi32(self.0)) }
    }
    #[inline(always)]
    unsafe fn load_u8(p: *const u8) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast()))) })
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const i8) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast()))) })
    }
    #[inline(always)]
    unsafe fn store_8_bits(of: [Self; 4], zero: i16, low: i16, signed: bool, p: *mut u8) {
        let [a, b, c, d] = of;
        // SAFETY: see above.
        unsafe {
            let (zero, low) = (_mm256_set1_epi16(zero), _mm256_set1_epi16(low));
            let first = _mm256_packs_epi32(_mm256_cvtps_epi32(a.0), _mm256_cvtps_epi32(b.0));
            let last = _mm256_packs_epi32(_mm256_cvtps_epi32(c.0), _mm256_cvtps_epi32(d.0));
            let first = _mm256_max_epi16(_mm256_adds_epi16(first, zero), low);
            let last = _mm256_max_epi16(_mm256_adds_epi16(last, zero), low);
            let packed = if signed {
                _mm256_packs_epi16(first, last)
            } else {
                _mm256_packus_epi16(first, last)
            };
            // Each lane of 128 bits has four elements of each of the vectors.
            let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
            _mm256_storeu_si256(p.cast(), _mm256_permutevar8x32_epi32(packed, order));
        }
    }
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm256_fmadd_ps(self.0, b.0, c.0) })
    }
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm256_min_ps(self.0, other.0) })
    }
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm256_max_ps(self.0, other.0) })
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm256_sqrt_ps(self.0) })
    }
    #[inline(always)]
    fn round(self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | ROUND }>(self.0) })
    }
    #[inline(always)]
    fn floor(self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEG_INF | ROUND }>(self.0) })
    }
    #[inline(always)]
    fn ceil(self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_POS_INF | ROUND }>(self.0) })
    }
    #[inline(always)]
    fn abs(self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm256_andnot_ps(_mm256_set1_ps(-0.0), self.0) })
    }
    #[inline(always)]
    fn copysign(self, sign: Self) -> Self {
        // SAFETY: see above.
        unsafe {
            let mask = _mm256_set1_ps(-0.0);
            Self(_mm256_or_ps(
                _mm256_and_ps(mask, sign.0),
                _mm256_andnot_ps(mask, self.0),
            ))
        }
    }
    #[inline(always)]
    fn scale(self, n: Self) -> Self {
        // SAFETY: see above. Three factors within the normal range; only the last product can round.
        unsafe {
            let n = _mm256_cvtps_epi32(n.0);
            let third = _mm256_srai_epi32::<2>(n);
            let rest = _mm256_sub_epi32(n, _mm256_add_epi32(third, third));
            let power =
                |e: __m256i| _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(e, _mm256_set1_epi32(127))));
            let most = _mm256_mul_ps(_mm256_mul_ps(self.0, power(third)), power(third));
            Self(_mm256_mul_ps(most, power(rest)))
        }
    }
    #[inline(always)]
    fn split(self) -> (Self, Self) {
        // SAFETY: see above.
        unsafe {
            let bits = _mm256_castps_si256(self.0);
            let exponent = _mm256_sub_epi32(_mm256_srli_epi32::<23>(bits), _mm256_set1_epi32(126));
            let mantissa = _mm256_and_si256(bits, _mm256_set1_epi32(0x007f_ffff));
            let mantissa = _mm256_or_si256(mantissa, _mm256_set1_epi32(0x3f00_0000));
            (Self(_mm256_castsi256_ps(mantissa)), Self(_mm256_cvtepi32_ps(exponent)))
        }
    }
    #[inline(always)]
    fn lt(self, other: Self) -> Self::Mask {
        // SAFETY: see above.
        unsafe { _mm256_cmp_ps::<_CMP_LT_OQ>(self.0, other.0) }
    }
    #[inline(always)]
    fn le(self, other: Self) -> Self::Mask {
        // SAFETY: see above.
        unsafe { _mm256_cmp_ps::<_CMP_LE_OQ>(self.0, other.0) }
    }
    #[inline(always)]
    fn eq(self, other: Self) -> Self::Mask {
        // SAFETY: see above.
        unsafe { _mm256_cmp_ps::<_CMP_EQ_OQ>(self.0, other.0) }
    }
    #[inline(always)]
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm256_blendv_ps(no.0, yes.0, mask) })
    }
}
