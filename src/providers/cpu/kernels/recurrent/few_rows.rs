//! Products of few rows with weights that the cache of a core holds: one thread is through with them before a team has begun.

use crate::error::Result;
use crate::network::array::{Array, Buffer};
use crate::providers::cpu::simd::{Vector, multiversion};

/// Rows that are computed so at most: with few threads, and with many, among which more rows are worth to be split.
const MOST_ROWS: [usize; 2] = [8, 4];
const FEW_THREADS: usize = 4;
/// Bytes of weights that the second cache of a core holds beside what else there is.
const MOST_BYTES: usize = 1 << 20;
/// Columns of a group: some vectors of every instruction set, and as many sums.
const GROUP: usize = 64;

/// Weights `[..., k]` of float32, whose other axes are the columns of the product: for each group of columns a run of as many numbers for each place along `k`.
pub struct Columns {
    packed: Buffer,
    k: usize,
    count: usize,
}

impl Columns {
    /// Whether products of these extents are computed so where there are so many threads.
    pub fn fit([rows, k, columns]: [usize; 3], threads: usize) -> bool {
        rows <= MOST_ROWS[usize::from(threads > FEW_THREADS)] && k * columns * size_of::<f32>() <= MOST_BYTES
    }

    /// Packs weights.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn new(weights: &Array) -> Result<Self> {
        let (k, rows) = weights
            .shape()
            .split_last()
            .map_or((0, &[][..]), |(&k, rows)| (k, rows));
        let count: usize = rows.iter().product();
        let mut packed = Buffer::try_zeroed(count.next_multiple_of(GROUP) * k * size_of::<f32>())?;
        let (numbers, size) = (weights.bytes(), size_of::<f32>());
        for column in 0..count {
            for at in 0..k {
                let from = (column * k + at) * size;
                let to = ((column / GROUP * k + at) * GROUP + column % GROUP) * size;
                packed.as_mut_slice()[to..to + size].copy_from_slice(&numbers[from..from + size]);
            }
        }
        Ok(Self { packed, k, count })
    }

    /// `out [rows, columns] = a [rows, k] * weights`, transposed.
    ///
    /// # Safety
    /// The addresses must hold that.
    pub unsafe fn run(&self, rows: usize, a: *const f32, out: *mut f32) {
        // SAFETY: the caller's promise; the packed weights are whole groups.
        unsafe { product([rows, self.k, self.count], a, self.packed.as_ptr().cast(), out) }
    }
}

multiversion! {
    unsafe fn product<V>(extents: [usize; 3], a: *const f32, weights: *const f32, out: *mut f32) {
        let [rows, k, columns] = extents;
        for start in (0..columns).step_by(GROUP) {
            let mut row = 0;
            while row < rows {
                // As many sums as the registers hold beside what is multiplied.
                let (a, weights, rest) = (a.add(row * k), weights.add(start * k), rows - row);
                let mut whole = [[0f32; GROUP]; 4];
                let done = match (rest, V::LANES) {
                    (4.., 16) => tiles::<V, 4, 4>(k, a, weights, &mut whole),
                    (4.., _) => tiles::<V, 4, 2>(k, a, weights, &mut whole),
                    (2.., _) => tiles::<V, 2, 4>(k, a, weights, &mut whole),
                    _ => tiles::<V, 1, 4>(k, a, weights, &mut whole),
                };
                let count = GROUP.min(columns - start);
                for (i, line) in whole.iter().enumerate().take(done) {
                    out.add((row + i) * columns + start).copy_from_nonoverlapping(line.as_ptr(), count);
                }
                row += done;
            }
        }
    }
}

/// The sums of `R` rows for a group of columns, some vectors of columns at a time; gives how many rows that are.
///
/// # Safety
/// As [`Columns::run`], within a function for the instruction set.
#[inline(always)]
unsafe fn tiles<V: Vector, const R: usize, const C: usize>(
    k: usize,
    a: *const f32,
    group: *const f32,
    out: &mut [[f32; GROUP]; 4],
) -> usize {
    for first in (0..GROUP).step_by(C * V::LANES) {
        let (mut even, mut odd) = ([[V::splat(0.0); C]; R], [[V::splat(0.0); C]; R]);
        // SAFETY: the caller's promise.
        unsafe {
            let (group, mut at) = (group.add(first), 0);
            // The sums of one row alone would wait for themselves: it has two of each.
            while R == 1 && at + 2 <= k {
                add::<V, R, C>(k, at, a, group, &mut even);
                add::<V, R, C>(k, at + 1, a, group, &mut odd);
                at += 2;
            }
            while at < k {
                add::<V, R, C>(k, at, a, group, &mut even);
                at += 1;
            }
        }
        for (row, line) in out.iter_mut().enumerate().take(R) {
            for i in 0..C {
                // SAFETY: the tile lies within the group.
                unsafe { (even[row][i] + odd[row][i]).store(line.as_mut_ptr().add(first + i * V::LANES)) };
            }
        }
    }
    R
}

/// Adds what one place along `k` gives to the sums of a tile.
///
/// # Safety
/// As [`tiles`].
#[inline(always)]
unsafe fn add<V: Vector, const R: usize, const C: usize>(
    k: usize,
    at: usize,
    a: *const f32,
    group: *const f32,
    sums: &mut [[V; C]; R],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut vectors = [V::splat(0.0); C];
        for (i, vector) in vectors.iter_mut().enumerate() {
            *vector = V::load(group.add(at * GROUP + i * V::LANES));
        }
        for (row, sums) in sums.iter_mut().enumerate() {
            let number = V::splat(*a.add(row * k + at));
            for (sum, vector) in sums.iter_mut().zip(vectors) {
                *sum = number.fma(vector, *sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::cpu::simd::{Avx2, Isa, Portable};

    fn check<V: Vector, const R: usize, const C: usize>() {
        for k in [1, 2, 7] {
            let a: Vec<f32> = (0..R * k).map(|i| (i % 5) as f32 - 2.0).collect();
            let weights: Vec<f32> = (0..k * GROUP).map(|i| (i % 11) as f32 - 5.0).collect();
            let mut out = [[0f32; GROUP]; 4];
            // SAFETY: there are `R` rows and a group of `k` runs, and the caller found the instruction set.
            let done = unsafe { tiles::<V, R, C>(k, a.as_ptr(), weights.as_ptr(), &mut out) };
            assert_eq!(done, R);
            for (row, line) in out.iter().enumerate().take(R) {
                for (column, &got) in line.iter().enumerate() {
                    let want: f32 = (0..k).map(|at| a[row * k + at] * weights[at * GROUP + column]).sum();
                    assert_eq!(got, want, "{R} rows, {k}: {row}, {column}");
                }
            }
        }
    }

    #[test]
    fn tiles_are_the_same_by_every_instruction_set() {
        fn all<V: Vector>() {
            check::<V, 1, 4>();
            check::<V, 2, 4>();
            check::<V, 4, 2>();
            check::<V, 4, 4>();
        }
        all::<Portable>();
        if Isa::here() != Isa::Portable {
            all::<Avx2>();
        }
    }
}
