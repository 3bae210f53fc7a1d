//! Vectors with a lane for each column of weights: how packed integers become numbers, or operands of products of bytes.

use crate::providers::cpu::simd::{Avx2, Avx512, Portable, Vector};
use std::arch::x86_64::*;
use std::array::from_fn;

/// Weights of a column in its 32 bits of a vector.
pub const fn per_vector(bits: usize) -> usize {
    32 / bits
}

/// What unpacks weights.
pub trait Columns: Vector {
    /// The weights of 4 bits that stand in a lane each, less 8, in their order along K.
    ///
    /// # Safety
    /// `from` must hold 32 bits for each lane.
    unsafe fn numbers_of_4(from: *const u8) -> [Self; 8];
    /// The weights of 8 bits, less 128.
    ///
    /// # Safety
    /// As [`Columns::numbers_of_4`].
    unsafe fn numbers_of_8(from: *const u8) -> [Self; 4];
}

/// Sums of products of bytes.
pub trait Bytes: Columns {
    /// A sum in each lane.
    type Sums: Copy;

    /// The same in each lane.
    fn start(sum: i32) -> Self::Sums;
    /// The sums as numbers.
    fn finish(sums: Self::Sums) -> Self;
    /// Adds weights of 4 bits times eight neighbours of a row, of which the second four lie `step` integers behind the first.
    ///
    /// # Safety
    /// `from` must hold 32 bits for each lane, and `x` two times four integers of 8 bits.
    unsafe fn add_of_4(sums: Self::Sums, from: *const u8, x: *const i32, step: usize) -> Self::Sums;
    /// Adds weights of 8 bits times four neighbours of a row.
    ///
    /// # Safety
    /// As [`Bytes::add_of_4`].
    unsafe fn add_of_8(sums: Self::Sums, from: *const u8, x: *const i32) -> Self::Sums;
}

/// Each integer of 4 bits, less the middle.
const NIBBLES: [f32; 16] = [
    -8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0,
];

// SAFETY (every function here): only used where AVX-512 is there, and pointers as the trait says.
impl Columns for Avx512 {
    #[inline(always)]
    unsafe fn numbers_of_4(from: *const u8) -> [Self; 8] {
        // SAFETY: see above; the table has a vector. The permutation reads the lowest four bits of a lane alone.
        unsafe {
            let w = _mm512_loadu_si512(from.cast());
            let table = _mm512_loadu_ps(NIBBLES.as_ptr());
            [
                Self(_mm512_permutexvar_ps(w, table)),
                Self(_mm512_permutexvar_ps(_mm512_srli_epi32::<8>(w), table)),
                Self(_mm512_permutexvar_ps(_mm512_srli_epi32::<16>(w), table)),
                Self(_mm512_permutexvar_ps(_mm512_srli_epi32::<24>(w), table)),
                Self(_mm512_permutexvar_ps(_mm512_srli_epi32::<4>(w), table)),
                Self(_mm512_permutexvar_ps(_mm512_srli_epi32::<12>(w), table)),
                Self(_mm512_permutexvar_ps(_mm512_srli_epi32::<20>(w), table)),
                Self(_mm512_permutexvar_ps(_mm512_srli_epi32::<28>(w), table)),
            ]
        }
    }

    #[inline(always)]
    unsafe fn numbers_of_8(from: *const u8) -> [Self; 4] {
        // SAFETY: see above.
        unsafe {
            let w = _mm512_loadu_si512(from.cast());
            let bytes = [
                w,
                _mm512_srli_epi32::<8>(w),
                _mm512_srli_epi32::<16>(w),
                _mm512_srli_epi32::<24>(w),
            ];
            // As the lowest bits of 2^23, an integer is a float but for the subtraction.
            let (mask, power) = (_mm512_set1_epi32(0xFF), _mm512_set1_epi32(0x4B00_0000));
            let middle = Self::splat(8_388_608.0 + 128.0);
            let mut numbers = [middle; 4];
            for (number, byte) in numbers.iter_mut().zip(bytes) {
                let bits = _mm512_ternarylogic_epi32::<0xEA>(byte, mask, power);
                *number = Self(_mm512_castsi512_ps(bits)) - middle;
            }
            numbers
        }
    }
}

/// As the traits say; the processor must have VNNI too.
impl Bytes for Avx512 {
    type Sums = __m512i;

    #[inline(always)]
    fn start(sum: i32) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_set1_epi32(sum) }
    }

    #[inline(always)]
    fn finish(sums: __m512i) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_cvtepi32_ps(sums) })
    }

    #[inline(always)]
    unsafe fn add_of_4(sums: __m512i, from: *const u8, x: *const i32, step: usize) -> __m512i {
        // SAFETY: see above.
        unsafe {
            let (w, low) = (_mm512_loadu_si512(from.cast()), _mm512_set1_epi8(0x0F));
            let sums = _mm512_dpbusd_epi32(sums, _mm512_and_si512(w, low), _mm512_set1_epi32(*x));
            let high = _mm512_and_si512(_mm512_srli_epi16::<4>(w), low);
            _mm512_dpbusd_epi32(sums, high, _mm512_set1_epi32(*x.add(step)))
        }
    }

    #[inline(always)]
    unsafe fn add_of_8(sums: __m512i, from: *const u8, x: *const i32) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_dpbusd_epi32(sums, _mm512_loadu_si512(from.cast()), _mm512_set1_epi32(*x)) }
    }
}

/// The bits from a place on of each lane, less the middle: in the mantissa of the power of two whose last place they begin at, they are a
/// number where they stand.
#[inline(always)]
unsafe fn number_at<const BITS: u32, const PLACE: u32>(w: __m256i) -> Avx2 {
    // SAFETY: the caller's promise that AVX2 is there.
    unsafe {
        // Those that reach beyond the mantissa are moved down.
        let (w, place) = match PLACE + BITS > 23 {
            true => (_mm256_srli_epi32::<16>(w), PLACE - 16),
            false => (w, PLACE),
        };
        let (mask, power) = (((1u32 << BITS) - 1) << place, (127 + 23 - place) << 23);
        let bits = _mm256_and_si256(w, _mm256_set1_epi32(mask as i32));
        let bits = _mm256_or_si256(bits, _mm256_set1_epi32(power as i32));
        let offset = f32::from_bits(power) + (1u32 << (BITS - 1)) as f32;
        Avx2(_mm256_castsi256_ps(bits)) - Avx2::splat(offset)
    }
}

// SAFETY (every function here): only used where AVX2 is there, and pointers as the trait says.
impl Columns for Avx2 {
    #[inline(always)]
    unsafe fn numbers_of_4(from: *const u8) -> [Self; 8] {
        // SAFETY: see above.
        unsafe {
            let w = _mm256_loadu_si256(from.cast());
            [
                number_at::<4, 0>(w),
                number_at::<4, 8>(w),
                number_at::<4, 16>(w),
                number_at::<4, 24>(w),
                number_at::<4, 4>(w),
                number_at::<4, 12>(w),
                number_at::<4, 20>(w),
                number_at::<4, 28>(w),
            ]
        }
    }

    #[inline(always)]
    unsafe fn numbers_of_8(from: *const u8) -> [Self; 4] {
        // SAFETY: see above.
        unsafe {
            let w = _mm256_loadu_si256(from.cast());
            [
                number_at::<8, 0>(w),
                number_at::<8, 8>(w),
                number_at::<8, 16>(w),
                number_at::<8, 24>(w),
            ]
        }
    }
}

/// Sums of two products of bytes are held in 16 bits, where of bytes above 15 they would saturate: of 8 bits each half is multiplied
/// by itself.
impl Bytes for Avx2 {
    type Sums = __m256i;

    #[inline(always)]
    fn start(sum: i32) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_set1_epi32(sum) }
    }

    #[inline(always)]
    fn finish(sums: __m256i) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm256_cvtepi32_ps(sums) })
    }

    #[inline(always)]
    unsafe fn add_of_4(sums: __m256i, from: *const u8, x: *const i32, step: usize) -> __m256i {
        // SAFETY: see above.
        unsafe {
            let (w, low) = (_mm256_loadu_si256(from.cast()), _mm256_set1_epi8(0x0F));
            let first = _mm256_maddubs_epi16(_mm256_and_si256(w, low), _mm256_set1_epi32(*x));
            let high = _mm256_and_si256(_mm256_srli_epi16::<4>(w), low);
            let second = _mm256_maddubs_epi16(high, _mm256_set1_epi32(*x.add(step)));
            let both = _mm256_add_epi16(first, second);
            _mm256_add_epi32(sums, _mm256_madd_epi16(both, _mm256_set1_epi16(1)))
        }
    }

    #[inline(always)]
    unsafe fn add_of_8(sums: __m256i, from: *const u8, x: *const i32) -> __m256i {
        // SAFETY: see above.
        unsafe {
            let (w, low) = (_mm256_loadu_si256(from.cast()), _mm256_set1_epi8(0x0F));
            let x = _mm256_set1_epi32(*x);
            let first = _mm256_maddubs_epi16(_mm256_and_si256(w, low), x);
            let high = _mm256_and_si256(_mm256_srli_epi16::<4>(w), low);
            let second = _mm256_maddubs_epi16(high, x);
            let sums = _mm256_add_epi32(sums, _mm256_madd_epi16(first, _mm256_set1_epi16(1)));
            _mm256_add_epi32(sums, _mm256_madd_epi16(second, _mm256_set1_epi16(16)))
        }
    }
}

/// The lanes of a vector of weights.
#[inline(always)]
unsafe fn lanes(from: *const u8) -> [u32; 4] {
    // SAFETY: the caller's promise.
    unsafe { from.cast::<[u32; 4]>().read_unaligned() }
}

/// The product of four bytes, from a bit on and every eighth bit behind it, with four integers of 8 bits.
#[inline(always)]
fn product_of_bytes(lane: u32, mask: u32, x: i32) -> i32 {
    let (w, x) = ((lane & mask).to_le_bytes(), x.to_le_bytes());
    w.into_iter()
        .zip(x)
        .map(|(w, x)| i32::from(w) * i32::from(x as i8))
        .sum()
}

impl Columns for Portable {
    #[inline(always)]
    unsafe fn numbers_of_4(from: *const u8) -> [Self; 8] {
        // SAFETY: as the trait says.
        let lanes = unsafe { lanes(from) };
        // Where they stand in a lane.
        [0, 8, 16, 24, 4, 12, 20, 28].map(|place| Self(lanes.map(|lane| NIBBLES[(lane >> place & 15) as usize])))
    }

    #[inline(always)]
    unsafe fn numbers_of_8(from: *const u8) -> [Self; 4] {
        // SAFETY: as the trait says.
        let bytes = unsafe { lanes(from) }.map(u32::to_le_bytes);
        from_fn(|at| Self(bytes.map(|bytes| f32::from(bytes[at]) - 128.0)))
    }
}

impl Bytes for Portable {
    type Sums = [i32; 4];

    #[inline(always)]
    fn start(sum: i32) -> [i32; 4] {
        [sum; 4]
    }

    #[inline(always)]
    fn finish(sums: [i32; 4]) -> Self {
        Self(sums.map(|sum| sum as f32))
    }

    #[inline(always)]
    unsafe fn add_of_4(sums: [i32; 4], from: *const u8, x: *const i32, step: usize) -> [i32; 4] {
        // SAFETY: as the trait says.
        let (lanes, first, second) = unsafe { (lanes(from), x.read(), x.add(step).read()) };
        const LOW: u32 = 0x0F0F_0F0F;
        from_fn(|at| {
            let high = lanes[at] >> 4;
            sums[at] + product_of_bytes(lanes[at], LOW, first) + product_of_bytes(high, LOW, second)
        })
    }

    #[inline(always)]
    unsafe fn add_of_8(sums: [i32; 4], from: *const u8, x: *const i32) -> [i32; 4] {
        // SAFETY: as the trait says.
        let (lanes, x) = unsafe { (lanes(from), x.read()) };
        from_fn(|at| sums[at] + product_of_bytes(lanes[at], u32::MAX, x))
    }
}
