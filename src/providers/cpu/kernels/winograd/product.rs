//! The products at a point: rows of channels of some tiles times the weights of a block of channels of the result.

use super::LANES;
use crate::providers::cpu::simd::{Avx512, Vector};
use std::ops::Range;

/// Tiles whose sums stay in registers.
pub const ROWS: usize = 6;
/// Terms that are added up by themselves: one sum of all would round as much more as it is longer.
const TERMS: usize = 64;

/// A matrix product of a few rows.
pub struct Product {
    /// Terms of each sum.
    pub terms: usize,
    /// The rows, so many floats from each other.
    pub rows: (*const f32, usize),
    /// The weights, a row of all columns for each term.
    pub weights: *const f32,
    /// The sums, so many floats from row to row.
    pub to: (*mut f32, usize),
}

/// Of `R` rows and `W` vectors of columns.
///
/// # Safety
/// All addresses must be valid for what the product reads and writes; the processor must have AVX-512.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn product<const R: usize, const W: usize>(p: &Product) {
    // SAFETY: the caller's promise.
    unsafe {
        part::<R, W>(p, 0..p.terms.min(TERMS), false);
        for first in (TERMS..p.terms).step_by(TERMS) {
            part::<R, W>(p, first..p.terms.min(first + TERMS), true);
        }
    }
}

/// Of some terms, which are added to what is there or take its place.
///
/// # Safety
/// As [`product`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn part<const R: usize, const W: usize>(p: &Product, terms: Range<usize>, adds: bool) {
    let mut sums = [[Avx512::splat(0.0); W]; R];
    // SAFETY: the caller's promise.
    unsafe {
        for term in terms {
            let mut weights = [Avx512::splat(0.0); W];
            for (w, weight) in weights.iter_mut().enumerate() {
                *weight = Avx512::load(p.weights.add((term * W + w) * LANES));
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let x = Avx512::splat(*p.rows.0.add(row * p.rows.1 + term));
                for (sum, weight) in sums.iter_mut().zip(weights) {
                    *sum = weight.fma(x, *sum);
                }
            }
        }
        for (row, sums) in sums.into_iter().enumerate() {
            for (w, sum) in sums.into_iter().enumerate() {
                let to = p.to.0.add(row * p.to.1 + w * LANES);
                let sum = if adds { sum + Avx512::load(to) } else { sum };
                sum.store(to);
            }
        }
    }
}

/// Of 1 to [`ROWS`] rows, and 1 to 4 vectors of columns.
///
/// # Safety
/// As [`product`].
pub unsafe fn run(rows: usize, width: usize, p: &Product) {
    macro_rules! by_width {
        ($($R:literal)*) => {
            match (rows, width) {
                $(
                    ($R, 1) => product::<$R, 1>(p),
                    ($R, 2) => product::<$R, 2>(p),
                    ($R, 3) => product::<$R, 3>(p),
                    ($R, 4) => product::<$R, 4>(p),
                )*
                _ => debug_assert!(false, "{rows} rows, {width} vectors"),
            }
        };
    }
    // SAFETY: the caller's promise.
    unsafe { by_width!(1 2 3 4 5 6) }
}
