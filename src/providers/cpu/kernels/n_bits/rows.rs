//! The rows that meet the weights, in tiles: at each place along K, the numbers of all rows of the tile stand together.

use super::pack::{LANES, Units};
use std::arch::x86_64::*;

/// Rows of float32 that meet a group of columns at a time.
const FLOATS: usize = 8;
/// Rows of 8 bits: as many as leave registers for the weights beside their sums.
const INTEGERS: usize = 12;

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
        if self.integers { INTEGERS } else { FLOATS }
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
    /// `x` must hold the rows of the tile, `to` its bytes; the processor must have AVX-512.
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
            FLOATS => transpose(k, x, to),
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

/// Eight rows as columns.
unsafe fn transpose(k: usize, x: *const f32, to: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe {
        for at in 0..k {
            for row in 0..FLOATS {
                *to.add(at * FLOATS + row) = *x.add(row * k + at);
            }
        }
    }
}

/// A row as integers of 8 bits, by the greatest of each block, as the op says it.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn round(units: &Units, x: *const f32, row: usize, to: &Rounded) {
    let (k, block) = (units.geometry.k, units.geometry.block);
    let vectors = units.unit / LANES;
    // SAFETY: the caller's promise; loads behind the end of the row are masked.
    unsafe {
        let load = |at: usize| {
            let left = k.saturating_sub(at).min(LANES);
            _mm512_maskz_loadu_ps(((1u32 << left) - 1) as __mmask16, x.wrapping_add(at))
        };
        for first in (0..units.terms()).step_by(block) {
            let (mut greatest, mut poison) = (_mm512_setzero_ps(), _mm512_setzero_ps());
            for at in (first..first + block).step_by(LANES) {
                let v = load(at);
                greatest = _mm512_max_ps(greatest, _mm512_abs_ps(v));
                poison = _mm512_fmadd_ps(v, _mm512_setzero_ps(), poison);
            }
            let scale = _mm512_reduce_max_ps(greatest) / 127.0 + _mm512_reduce_add_ps(poison);
            let inverse = _mm512_set1_ps(if scale == 0.0 { 0.0 } else { 1.0 / scale });
            for unit in first / units.unit..(first + block) / units.unit {
                let mut sum = _mm512_setzero_si512();
                for vector in 0..vectors {
                    let at = unit * units.unit + vector * LANES;
                    let whole = _mm512_cvtps_epi32(_mm512_mul_ps(load(at), inverse));
                    sum = _mm512_add_epi32(sum, whole);
                    let mut lanes = [0i32; 4];
                    _mm_storeu_si128(lanes.as_mut_ptr().cast(), _mm512_cvtsepi32_epi8(whole));
                    for (four, &codes) in lanes.iter().enumerate() {
                        let place = (at / 4 + four) * to.rows + row;
                        to.codes.cast::<i32>().add(place).write_unaligned(codes);
                    }
                }
                let (place, sum) = (unit * to.rows + row, _mm512_reduce_add_epi32(sum));
                *to.scales.add(place) = scale;
                *to.starts.add(place) = sum.wrapping_mul(-(units.geometry.middle() as i32));
                *to.sums.add(place) = sum as f32 * scale;
            }
        }
    }
}
