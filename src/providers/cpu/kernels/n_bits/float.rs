//! Weights that are unpacked to float32: in registers for a tile of rows, and as panels for many.

use super::pack::{LANES, Units, VECTOR};
use std::arch::x86_64::*;

/// Groups of columns in a panel.
pub const PANEL: usize = 3;

/// The results of a tile: rows from one column on.
#[derive(Clone, Copy)]
pub struct Target {
    pub out: *mut f32,
    /// Elements from a row to the next.
    pub stride: usize,
    /// Columns that are there from `out` on.
    pub columns: usize,
}

impl Target {
    /// The lanes of the group at a place that are there.
    #[inline(always)]
    pub fn mask(&self, group: usize) -> __mmask16 {
        let left = self.columns.saturating_sub(group * LANES).min(LANES);
        ((1u32 << left) - 1) as __mmask16
    }
}

/// How many weights of a column a vector has.
const fn per_vector(bits: usize) -> usize {
    32 / bits
}

/// Each integer of a nibble, less the middle.
const NIBBLES: [f32; 16] = [
    -8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0,
];

/// The weights of a vector, less the middle, in their order along K; with 8 bits, the first four.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn numbers<const BITS: usize>(from: *const u8) -> [__m512; 8] {
    // SAFETY: the caller's promise that a vector is there.
    let w = unsafe { _mm512_loadu_si512(from.cast()) };
    if BITS == 4 {
        // SAFETY: the table has a vector. The permutation reads the lowest four bits of a lane alone.
        let table = unsafe { _mm512_loadu_ps(NIBBLES.as_ptr()) };
        return [
            _mm512_permutexvar_ps(w, table),
            _mm512_permutexvar_ps(_mm512_srli_epi32::<8>(w), table),
            _mm512_permutexvar_ps(_mm512_srli_epi32::<16>(w), table),
            _mm512_permutexvar_ps(_mm512_srli_epi32::<24>(w), table),
            _mm512_permutexvar_ps(_mm512_srli_epi32::<4>(w), table),
            _mm512_permutexvar_ps(_mm512_srli_epi32::<12>(w), table),
            _mm512_permutexvar_ps(_mm512_srli_epi32::<20>(w), table),
            _mm512_permutexvar_ps(_mm512_srli_epi32::<28>(w), table),
        ];
    }
    let bytes = [
        w,
        _mm512_srli_epi32::<8>(w),
        _mm512_srli_epi32::<16>(w),
        _mm512_srli_epi32::<24>(w),
    ];
    // As the lowest bits of 2^23, an integer is a float but for the subtraction.
    let (mask, power) = (_mm512_set1_epi32(0xFF), _mm512_set1_epi32(0x4B00_0000));
    let middle = _mm512_set1_ps(8_388_608.0 + 128.0);
    let number = |byte| {
        let bits = _mm512_ternarylogic_epi32::<0xEA>(byte, mask, power);
        _mm512_sub_ps(_mm512_castsi512_ps(bits), middle)
    };
    let [a, b, c, d] = bytes.map(number);
    [a, b, c, d, a, b, c, d]
}

/// One group of columns times a tile of `R` rows, with `A` sums for each row of a unit.
///
/// # Safety
/// `group` must hold a packed group, `x` a tile of float rows, and `target` the results; the processor must have AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma")]
pub unsafe fn direct<const R: usize, const A: usize, const BITS: usize>(
    units: &Units,
    group: *const u8,
    x: *const f32,
    target: Target,
) {
    let per = per_vector(BITS);
    let mut totals = [_mm512_setzero_ps(); R];
    // SAFETY: the caller's promise.
    unsafe {
        let sums = x.add(units.terms() * R);
        for unit in 0..units.count() {
            let from = group.add(unit * units.unit_bytes());
            let mut parts = [[_mm512_setzero_ps(); A]; R];
            for vector in 0..units.unit / per {
                let w = numbers::<BITS>(from.add(units.header() + vector * VECTOR));
                let x = x.add((unit * units.unit + vector * per) * R);
                for (i, w) in w.into_iter().take(per).enumerate() {
                    for (row, parts) in parts.iter_mut().enumerate() {
                        parts[i % A] = _mm512_fmadd_ps(w, _mm512_set1_ps(*x.add(i * R + row)), parts[i % A]);
                    }
                }
            }
            let scale = _mm512_loadu_ps(from.cast());
            for (total, parts) in totals.iter_mut().zip(parts) {
                let part = parts.into_iter().reduce(|a, b| _mm512_add_ps(a, b));
                *total = _mm512_fmadd_ps(part.unwrap_or(_mm512_setzero_ps()), scale, *total);
            }
            if units.shifted {
                let shift = _mm512_loadu_ps(from.add(VECTOR).cast());
                for (row, total) in totals.iter_mut().enumerate() {
                    *total = _mm512_fmadd_ps(shift, _mm512_set1_ps(*sums.add(unit * R + row)), *total);
                }
            }
        }
        for (row, total) in totals.into_iter().enumerate() {
            _mm512_mask_storeu_ps(target.out.add(row * target.stride), target.mask(0), total);
        }
    }
}

/// Unpacks so many units of a group, from one on, to the lanes of a panel from `to` on.
///
/// # Safety
/// As [`direct`]; `to` must hold `PANEL * LANES` numbers for each weight.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma")]
pub unsafe fn unpack<const BITS: usize>(units: &Units, group: *const u8, first: usize, count: usize, to: *mut f32) {
    let per = per_vector(BITS);
    // SAFETY: the caller's promise.
    unsafe {
        for unit in 0..count {
            let from = group.add((first + unit) * units.unit_bytes());
            let scale = _mm512_loadu_ps(from.cast());
            let shift = match units.shifted {
                true => _mm512_loadu_ps(from.add(VECTOR).cast()),
                false => _mm512_setzero_ps(),
            };
            for vector in 0..units.unit / per {
                let w = numbers::<BITS>(from.add(units.header() + vector * VECTOR));
                let to = to.add((unit * units.unit + vector * per) * PANEL * LANES);
                for (i, w) in w.into_iter().take(per).enumerate() {
                    _mm512_storeu_ps(to.add(i * PANEL * LANES), _mm512_fmadd_ps(w, scale, shift));
                }
            }
        }
    }
}

/// `R` rows times `V` groups of a panel, over so many weights; added to the results unless these are the first.
///
/// # Safety
/// `x` must hold a tile of float rows from the first weight on, `panel` the weights, and `target` the results; the processor must
/// have AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma")]
pub unsafe fn tile<const R: usize, const V: usize>(
    terms: usize,
    x: *const f32,
    panel: *const f32,
    target: Target,
    first: bool,
) {
    let mut sums = [[_mm512_setzero_ps(); V]; R];
    // SAFETY: the caller's promise.
    unsafe {
        if !first {
            for (row, sums) in sums.iter_mut().enumerate() {
                for (v, sum) in sums.iter_mut().enumerate() {
                    let from = target.out.wrapping_add(row * target.stride + v * LANES);
                    *sum = _mm512_maskz_loadu_ps(target.mask(v), from);
                }
            }
        }
        let (mut x, mut panel) = (x, panel);
        for _ in 0..terms {
            let mut w = [_mm512_setzero_ps(); V];
            for (v, w) in w.iter_mut().enumerate() {
                *w = _mm512_loadu_ps(panel.add(v * LANES));
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let x = _mm512_set1_ps(*x.add(row));
                for (sum, &w) in sums.iter_mut().zip(&w) {
                    *sum = _mm512_fmadd_ps(x, w, *sum);
                }
            }
            x = x.add(R);
            panel = panel.add(PANEL * LANES);
        }
        for (row, sums) in sums.into_iter().enumerate() {
            for (v, sum) in sums.into_iter().enumerate() {
                let to = target.out.wrapping_add(row * target.stride + v * LANES);
                _mm512_mask_storeu_ps(to, target.mask(v), sum);
            }
        }
    }
}
