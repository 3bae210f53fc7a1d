//! Rows of 8 bits times weights of 4 or 8 bits, summed as integers within a unit.

use super::float::Target;
use super::pack::{Units, VECTOR};
use super::rows::Rounded;
use std::arch::x86_64::*;

/// One group of columns times a tile of `R` rows.
///
/// # Safety
/// `group` must hold a packed group, `x` a tile of rounded rows, and `target` the results; the processor must have AVX-512 and
/// VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma")]
pub unsafe fn direct<const R: usize, const BITS: usize>(units: &Units, group: *const u8, x: *mut u8, target: Target) {
    let x = Rounded::at(x, units, R);
    let mut totals = [_mm512_setzero_ps(); R];
    // SAFETY: the caller's promise.
    unsafe {
        for unit in 0..units.count() {
            let from = group.add(unit * units.unit_bytes());
            let codes = x.codes.add(unit * units.unit * R).cast::<i32>();
            let mut sums = [_mm512_setzero_si512(); R];
            for (row, sum) in sums.iter_mut().enumerate() {
                *sum = _mm512_set1_epi32(*x.starts.add(unit * R + row));
            }
            accumulate::<R, BITS>(units, from.add(units.header()), codes, &mut sums);
            let scale = _mm512_loadu_ps(from.cast());
            for (row, total) in totals.iter_mut().enumerate() {
                let scale = _mm512_mul_ps(scale, _mm512_set1_ps(*x.scales.add(unit * R + row)));
                *total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[row]), scale, *total);
            }
            if units.shifted {
                let shift = _mm512_loadu_ps(from.add(VECTOR).cast());
                for (row, total) in totals.iter_mut().enumerate() {
                    let sum = _mm512_set1_ps(*x.sums.add(unit * R + row));
                    *total = _mm512_fmadd_ps(shift, sum, *total);
                }
            }
        }
        for (row, total) in totals.into_iter().enumerate() {
            _mm512_mask_storeu_ps(target.out.add(row * target.stride), target.mask(0), total);
        }
    }
}

/// Adds the products of a unit.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma")]
unsafe fn accumulate<const R: usize, const BITS: usize>(
    units: &Units,
    integers: *const u8,
    codes: *const i32,
    sums: &mut [__m512i; R],
) {
    let low = _mm512_set1_epi8(0x0F);
    let vectors = units.unit * BITS / 32;
    // SAFETY: the caller's promise.
    unsafe {
        for vector in 0..vectors {
            let w = _mm512_loadu_si512(integers.add(vector * VECTOR).cast());
            if BITS == 8 {
                for (row, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm512_dpbusd_epi32(*sum, w, _mm512_set1_epi32(*codes.add(vector * R + row)));
                }
                continue;
            }
            let halves = [
                _mm512_and_si512(w, low),
                _mm512_and_si512(_mm512_srli_epi16::<4>(w), low),
            ];
            for (half, w) in halves.into_iter().enumerate() {
                for (row, sum) in sums.iter_mut().enumerate() {
                    let x = _mm512_set1_epi32(*codes.add((2 * vector + half) * R + row));
                    *sum = _mm512_dpbusd_epi32(*sum, w, x);
                }
            }
        }
    }
}
