//! The rows that meet the weights, in tiles: at each place along K, the numbers of all rows of the tile stand together.

use super::pack::{LANES, Units};
use crate::providers::cpu::simd::{Isa, Vector, multiversion};

/// Rows of float32 that meet a group of columns at a time: as many as leave registers for the weights beside their sums.
fn floats() -> usize {
    if Isa::here() == Isa::Avx512 { 8 } else { 6 }
}

/// Rows of 8 bits, likewise.
const INTEGERS: usize = 12;
/// Numbers that are rounded at a time: four vectors of the widest instruction set.
const CODES: usize = 4 * LANES;

/// Calls a function whose first parameter is the number of rows of a tile, one of those in brackets.
macro_rules! by_rows {
    ($rows:expr, [$($less:literal)*; $most:literal], |$R:ident| $call:expr) => {
        match $rows {
            $($less => { const $R: usize = $less; $call })*
            _ => { const $R: usize = $most; $call }
        }
    };
}
pub(super) use by_rows;

/// How tiles of rows lie.
#[derive(Debug, Clone, Copy)]
pub struct Tiles {
    pub units: Units,
    /// Rows of all tiles.
    pub rows: usize,
    /// Whether they are integers of 8 bits.
    pub integers: bool,
}

impl Tiles {
    /// Rows of every tile but the last.
    pub fn height(&self) -> usize {
        if self.integers { INTEGERS } else { floats() }
    }

    /// Tiles.
    pub fn count(&self) -> usize {
        self.rows.div_ceil(self.height())
    }

    /// Rows of a tile.
    pub fn rows_of(&self, tile: usize) -> usize {
        self.height().min(self.rows - tile * self.height())
    }

    /// Bytes of a row in a tile.
    fn row_bytes(&self) -> usize {
        let Self { units, integers, .. } = self;
        match integers {
            // Scale, and the sum as an integer and as a number, of each unit.
            true => units.terms() + 12 * units.count(),
            false => 4 * (units.terms() + units.count()),
        }
    }

    /// Bytes from a tile to the next.
    pub fn stride(&self) -> usize {
        (self.height() * self.row_bytes()).next_multiple_of(64)
    }

    /// Bytes of all tiles.
    pub fn bytes(&self) -> usize {
        let last = self.rows_of(self.count() - 1) * self.row_bytes();
        (self.count() - 1) * self.stride() + last.next_multiple_of(64)
    }

    /// Packs the rows of a tile.
    ///
    /// # Safety
    /// `x` must hold the rows of the tile, `to` its bytes.
    pub unsafe fn pack(&self, tile: usize, x: *const f32, to: *mut u8) {
        let rows = self.rows_of(tile);
        // SAFETY: the caller's promise.
        unsafe {
            match self.integers {
                true => (0..rows).for_each(|row| {
                    let x = x.add(row * self.units.geometry.k);
                    round(&self.units, x, row, &Rounded::at(to, &self.units, rows));
                }),
                false => place(&self.units, x, rows, to.cast()),
            }
        }
    }

    /// Whether the sums of each unit, where the products ask for them, are finite in a tile of float32.
    ///
    /// # Safety
    /// `tile` must hold the tile, packed.
    pub unsafe fn has_finite_sums(&self, tile: usize, at: *const u8) -> bool {
        let (units, rows) = (&self.units, self.rows_of(tile));
        // SAFETY: the caller's promise.
        let sums =
            unsafe { std::slice::from_raw_parts(at.cast::<f32>().add(units.terms() * rows), units.count() * rows) };
        !units.shifted || sums.iter().all(|sum| sum.is_finite())
    }
}

/// Where the parts of a tile of integers lie.
#[derive(Clone, Copy)]
pub struct Rounded {
    pub rows: usize,
    /// Four neighbours along K of each row.
    pub codes: *mut u8,
    /// By unit: the scale of each row.
    pub scales: *mut f32,
    /// The sum of the integers, times minus the middle of the weights.
    pub starts: *mut i32,
    /// The sum of what the integers stand for.
    pub sums: *mut f32,
}

impl Rounded {
    /// In a tile of so many rows.
    pub fn at(tile: *mut u8, units: &Units, rows: usize) -> Self {
        let part = |at: usize| tile.wrapping_add(rows * (units.terms() + 4 * at * units.count()));
        Self {
            rows,
            codes: tile,
            scales: part(0).cast(),
            starts: part(1).cast(),
            sums: part(2).cast(),
        }
    }
}

/// Numbers as they are, zeros behind the end of the rows, and the sum of each unit behind all.
unsafe fn place(units: &Units, x: *const f32, rows: usize, to: *mut f32) {
    let k = units.geometry.k;
    // SAFETY: the caller's promise.
    unsafe {
        match rows {
            1 => to.copy_from_nonoverlapping(x, k),
            6 => transpose::<6>(k, x, to),
            8 => transpose::<8>(k, x, to),
            _ => {
                for row in 0..rows {
                    (0..k).for_each(|at| *to.add(at * rows + row) = *x.add(row * k + at));
                }
            }
        }
        to.add(k * rows).write_bytes(0, (units.terms() - k) * rows);
        if units.shifted {
            let sums = to.add(units.terms() * rows);
            for at in 0..units.count() {
                let unit = std::slice::from_raw_parts(to.add(at * units.unit * rows), units.unit * rows);
                for row in 0..rows {
                    *sums.add(at * rows + row) = unit[row..].iter().step_by(rows).sum();
                }
            }
        }
    }
}

/// `R` rows as columns.
unsafe fn transpose<const R: usize>(k: usize, x: *const f32, to: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe {
        for at in 0..k {
            for row in 0..R {
                *to.add(at * R + row) = *x.add(row * k + at);
            }
        }
    }
}

multiversion! {
    /// A row as integers of 8 bits, by the greatest of each block, as the op says it.
    unsafe fn round<V>(units: &Units, x: *const f32, row: usize, to: &Rounded) {
        let (k, block) = (units.geometry.k, units.geometry.block);
        for first in (0..units.terms()).step_by(block) {
            let (mut greatest, mut poison) = (V::splat(0.0), V::splat(0.0));
            for at in (first..first + block).step_by(V::LANES) {
                let v = numbers::<V>(x, k, at);
                greatest = greatest.max(v.abs());
                poison = v.fma(V::splat(0.0), poison);
            }
            let scale = stored(greatest).into_iter().fold(0.0, f32::max) / 127.0 + stored(poison).iter().sum::<f32>();
            let inverse = V::splat(if scale == 0.0 { 0.0 } else { 1.0 / scale });
            for unit in first / units.unit..(first + block) / units.unit {
                let (mut sum, end) = (0, (unit + 1) * units.unit);
                for at in (unit * units.unit..end).step_by(CODES) {
                    // Of what lies behind the unit nothing is kept.
                    let codes = codes_of::<V>(x, k, at, inverse);
                    for (four, codes) in codes[..CODES.min(end - at)].chunks_exact(4).enumerate() {
                        let place = (at / 4 + four) * to.rows + row;
                        let fours = [codes[0], codes[1], codes[2], codes[3]];
                        to.codes.cast::<[i8; 4]>().add(place).write_unaligned(fours);
                        sum += fours.into_iter().map(i32::from).sum::<i32>();
                    }
                }
                let place = unit * to.rows + row;
                *to.scales.add(place) = scale;
                *to.starts.add(place) = sum.wrapping_mul(-(units.geometry.middle() as i32));
                *to.sums.add(place) = sum as f32 * scale;
            }
        }
    }
}

/// What is there of a row's numbers from a place on, zeros behind its end.
#[inline(always)]
unsafe fn numbers<V: Vector>(x: *const f32, k: usize, at: usize) -> V {
    // SAFETY: the caller's promise that a row has `k` numbers.
    unsafe {
        match k.saturating_sub(at) {
            0 => V::splat(0.0),
            left if left < V::LANES => V::load_part(x.add(at), left),
            _ => V::load(x.add(at)),
        }
    }
}

/// The codes of a row's numbers from a place on.
#[inline(always)]
unsafe fn codes_of<V: Vector>(x: *const f32, k: usize, at: usize, inverse: V) -> [i8; CODES] {
    let mut codes = [0; CODES];
    // SAFETY: as above; four vectors at most are stored at a time.
    unsafe {
        for part in (0..CODES).step_by(4 * V::LANES) {
            let mut of = [inverse; 4];
            for (i, of) in of.iter_mut().enumerate() {
                *of = *of * numbers::<V>(x, k, at + part + i * V::LANES);
            }
            V::store_8_bits(of, 0, i16::from(i8::MIN), true, codes.as_mut_ptr().add(part).cast());
        }
    }
    codes
}

/// The lanes of a vector, zeros behind them.
#[inline(always)]
unsafe fn stored<V: Vector>(v: V) -> [f32; LANES] {
    let mut all = [0.0; LANES];
    // SAFETY: no vector has more lanes.
    unsafe { v.store(all.as_mut_ptr()) };
    all
}
