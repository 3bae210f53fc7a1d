//! Where products go: the results of a tile of rows, and sums on their way there.

use super::pack::{LANES, VECTOR};
use crate::providers::cpu::simd::Vector;

/// Vectors of a group at most: those of four lanes.
const PARTS: usize = LANES / 4;

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
    /// From a row and a column on.
    #[inline(always)]
    fn at(&self, row: usize, column: usize) -> *mut f32 {
        self.out.wrapping_add(row * self.stride + column)
    }

    /// Writes the columns that are there of a vector from one on.
    ///
    /// # Safety
    /// They must be writable.
    #[inline(always)]
    pub unsafe fn put<V: Vector>(&self, row: usize, column: usize, v: V) {
        // SAFETY: the caller's promise.
        unsafe {
            match self.columns.saturating_sub(column) {
                0 => {}
                left if left < V::LANES => v.store_part(self.at(row, column), left),
                _ => v.store(self.at(row, column)),
            }
        }
    }

    /// Reads them.
    ///
    /// # Safety
    /// They must be readable.
    #[inline(always)]
    pub unsafe fn get<V: Vector>(&self, row: usize, column: usize) -> V {
        // SAFETY: the caller's promise.
        unsafe {
            match self.columns.saturating_sub(column) {
                0 => V::splat(0.0),
                left if left < V::LANES => V::load_part(self.at(row, column), left),
                _ => V::load(self.at(row, column)),
            }
        }
    }
}

/// The results of `R` rows and a group of columns, in as many vectors as it takes.
pub struct Totals<V, const R: usize>([[V; PARTS]; R]);

impl<V: Vector, const R: usize> Totals<V, R> {
    /// Zeros.
    #[inline(always)]
    pub fn new() -> Self {
        Self([[V::splat(0.0); PARTS]; R])
    }

    /// Adds a product of a unit's integers, times its scale.
    #[inline(always)]
    pub fn add(&mut self, row: usize, part: usize, product: V, scale: V) {
        self.0[row][part] = product.fma(scale, self.0[row][part]);
    }

    /// Adds the shifts of a unit, whose scales are at `from`, times the sum of what each row has there.
    ///
    /// # Safety
    /// The unit must have shifts, and `sums` a number for each row.
    #[inline(always)]
    pub unsafe fn add_shift(&mut self, part: usize, from: *const u8, sums: *const f32) {
        // SAFETY: the caller's promise.
        unsafe {
            let shift = V::load(from.add(VECTOR).cast());
            for (row, total) in self.0.iter_mut().enumerate() {
                total[part] = shift.fma(V::splat(*sums.add(row)), total[part]);
            }
        }
    }

    /// Writes them from the first row and column of a target on.
    ///
    /// # Safety
    /// Those must be writable.
    #[inline(always)]
    pub unsafe fn put(self, target: &Target) {
        for (row, total) in self.0.into_iter().enumerate() {
            for (part, total) in total.into_iter().take(LANES / V::LANES).enumerate() {
                // SAFETY: the caller's promise.
                unsafe { target.put(row, part * V::LANES, total) };
            }
        }
    }
}
