//! Weights that are unpacked to float32: in registers for a tile of rows, and as panels for many.

use super::columns::{Columns, per_vector};
use super::pack::{LANES, Units, VECTOR};
use super::results::{Target, Totals};
use super::rows::by_rows;
use crate::providers::cpu::simd::{Vector, multiversion};

/// Groups of columns in a panel.
pub const PANEL: usize = 3;

/// Sums for each row that are needed so that one multiplication need not wait for the one before.
const fn parts(rows: usize) -> usize {
    match rows {
        1 => 4,
        2 | 3 => 2,
        _ => 1,
    }
}

multiversion! {
    /// One group of columns times a tile of up to eight rows.
    ///
    /// # Safety
    /// `group` must hold a packed group, `x` a tile of float rows, and `target` the results.
    pub unsafe fn direct<V: Columns>(units: &Units, rows: usize, group: *const u8, x: *const f32, target: Target) {
        by_rows!(rows, [1 2 3 4 5 6 7; 8], |R| {
            const A: usize = parts(R);
            match units.geometry.bits {
                4 => direct_rows::<V, R, A, 4>(units, group, x, target),
                _ => direct_rows::<V, R, A, 8>(units, group, x, target),
            }
        });
    }
}

/// `R` rows, with `A` sums for each row of a unit.
#[inline(always)]
unsafe fn direct_rows<V: Columns, const R: usize, const A: usize, const BITS: usize>(
    units: &Units,
    group: *const u8,
    x: *const f32,
    target: Target,
) {
    let mut totals = Totals::<V, R>::new();
    // SAFETY: the caller's promise.
    unsafe {
        let sums = x.add(units.terms() * R);
        for unit in 0..units.count() {
            let x = x.add(unit * units.unit * R);
            for part in 0..LANES / V::LANES {
                let from = group.add(unit * units.unit_bytes() + part * V::LANES * 4);
                let product = of_unit::<V, R, A, BITS>(units, from.add(units.header()), x);
                let scale = V::load(from.cast());
                for (row, product) in product.into_iter().enumerate() {
                    totals.add(row, part, product, scale);
                }
                if units.shifted {
                    totals.add_shift(part, from, sums.add(unit * R));
                }
            }
        }
        totals.put(&target);
    }
}

/// The products of a unit's integers with `R` rows.
#[inline(always)]
unsafe fn of_unit<V: Columns, const R: usize, const A: usize, const BITS: usize>(
    units: &Units,
    from: *const u8,
    x: *const f32,
) -> [V; R] {
    let per = per_vector(BITS);
    let mut parts = [[V::splat(0.0); A]; R];
    // SAFETY: the caller's promise.
    unsafe {
        for vector in 0..units.unit / per {
            let w = numbers::<V, BITS>(from.add(vector * VECTOR));
            let x = x.add(vector * per * R);
            for (i, w) in w.into_iter().take(per).enumerate() {
                for (row, parts) in parts.iter_mut().enumerate() {
                    parts[i % A] = w.fma(V::splat(*x.add(i * R + row)), parts[i % A]);
                }
            }
        }
    }
    let mut sums = [V::splat(0.0); R];
    for (sum, parts) in sums.iter_mut().zip(parts) {
        *sum = parts[0];
        for part in &parts[1..] {
            *sum = *sum + *part;
        }
    }
    sums
}

/// The weights of a vector, less the middle, in their order along K; with 8 bits, the first four.
#[inline(always)]
unsafe fn numbers<V: Columns, const BITS: usize>(from: *const u8) -> [V; 8] {
    // SAFETY: the caller's promise that a vector is there.
    unsafe {
        if BITS == 4 {
            return V::numbers_of_4(from);
        }
        let [a, b, c, d] = V::numbers_of_8(from);
        [a, b, c, d, a, b, c, d]
    }
}

multiversion! {
    /// Unpacks so many units of a group, from one on, to the lanes of a panel from `to` on.
    ///
    /// # Safety
    /// As [`direct`]; `to` must hold `PANEL * LANES` numbers for each weight.
    pub unsafe fn unpack<V: Columns>(units: &Units, group: *const u8, first: usize, count: usize, to: *mut f32) {
        match units.geometry.bits {
            4 => unpack_bits::<V, 4>(units, group.add(first * units.unit_bytes()), count, to),
            _ => unpack_bits::<V, 8>(units, group.add(first * units.unit_bytes()), count, to),
        }
    }
}

#[inline(always)]
unsafe fn unpack_bits<V: Columns, const BITS: usize>(units: &Units, from: *const u8, count: usize, to: *mut f32) {
    let per = per_vector(BITS);
    // SAFETY: the caller's promise.
    unsafe {
        for (unit, part) in (0..count).flat_map(|unit| (0..LANES / V::LANES).map(move |part| (unit, part))) {
            let from = from.add(unit * units.unit_bytes() + part * V::LANES * 4);
            let scale = V::load(from.cast());
            let shift = match units.shifted {
                true => V::load(from.add(VECTOR).cast()),
                false => V::splat(0.0),
            };
            for vector in 0..units.unit / per {
                let w = numbers::<V, BITS>(from.add(units.header() + vector * VECTOR));
                let to = to.add((unit * units.unit + vector * per) * PANEL * LANES + part * V::LANES);
                for (i, w) in w.into_iter().take(per).enumerate() {
                    w.fma(scale, shift).store(to.add(i * PANEL * LANES));
                }
            }
        }
    }
}

multiversion! {
    /// A tile of rows times so many groups of a panel, over so many weights; added to the results unless these are the first.
    ///
    /// # Safety
    /// `x` must hold a tile of float rows from the first weight on, `panel` the weights, and `target` the results.
    pub unsafe fn tile<V>(
        rows: usize,
        groups: usize,
        terms: usize,
        x: *const f32,
        panel: *const f32,
        target: Target,
        first: bool,
    ) {
        // So many rows and vectors that their sums, the weights and a number of a row are registers.
        let high = if V::LANES == LANES { 8 } else { 6 };
        let wide = if V::LANES == LANES { 3 } else { 2 };
        for row in (0..rows).step_by(high) {
            let block = Block { terms, stride: rows, x: x.add(row), panel, target, row, column: 0, first };
            let high = high.min(rows - row);
            for column in (0..groups * LANES).step_by(wide * V::LANES) {
                let block = Block { panel: panel.add(column), column, ..block };
                let wide = wide.min((groups * LANES - column) / V::LANES);
                match V::LANES == LANES {
                    true => by_rows!(high, [1 2 3 4 5 6 7; 8], |R| block.multiply_wide::<V, R>(wide)),
                    false => by_rows!(high, [1 2 3 4 5; 6], |R| block.multiply_wide::<V, R>(wide)),
                }
            }
        }
    }
}

/// Some rows and columns of a tile.
struct Block {
    terms: usize,
    /// Numbers of a tile's rows at each place along K.
    stride: usize,
    x: *const f32,
    panel: *const f32,
    target: Target,
    row: usize,
    column: usize,
    first: bool,
}

impl Block {
    /// `R` rows times up to three vectors of columns.
    #[inline(always)]
    unsafe fn multiply_wide<V: Vector, const R: usize>(&self, wide: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match wide {
                1 => self.multiply::<V, R, 1>(),
                2 => self.multiply::<V, R, 2>(),
                _ => self.multiply::<V, R, 3>(),
            }
        }
    }

    /// `R` rows times `C` vectors of columns.
    #[inline(always)]
    unsafe fn multiply<V: Vector, const R: usize, const C: usize>(&self) {
        let mut sums = [[V::splat(0.0); C]; R];
        // SAFETY: the caller's promise.
        unsafe {
            if !self.first {
                for (row, sums) in sums.iter_mut().enumerate() {
                    for (at, sum) in sums.iter_mut().enumerate() {
                        *sum = self.target.get(self.row + row, self.column + at * V::LANES);
                    }
                }
            }
            let (mut x, mut panel) = (self.x, self.panel);
            for _ in 0..self.terms {
                let mut w = [V::splat(0.0); C];
                for (at, w) in w.iter_mut().enumerate() {
                    *w = V::load(panel.add(at * V::LANES));
                }
                for (row, sums) in sums.iter_mut().enumerate() {
                    let x = V::splat(*x.add(row));
                    for (sum, &w) in sums.iter_mut().zip(&w) {
                        *sum = x.fma(w, *sum);
                    }
                }
                x = x.add(self.stride);
                panel = panel.add(PANEL * LANES);
            }
            for (row, sums) in sums.into_iter().enumerate() {
                for (at, sum) in sums.into_iter().enumerate() {
                    self.target.put(self.row + row, self.column + at * V::LANES, sum);
                }
            }
        }
    }
}
