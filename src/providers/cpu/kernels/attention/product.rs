//! Products of small matrices in registers.

use crate::providers::cpu::simd::Vector;

/// Rows that are worked on together.
const ROWS: usize = 6;
/// Columns that lie together in [`Panels`].
pub const PANEL: usize = 64;
/// Terms of a sum that are added at a time: so much of a panel stays in the first-level cache.
const DEPTH: usize = 64;

/// A matrix in panels of [`PANEL`] columns: the rows of the first, then those of the next.
#[derive(Clone, Copy)]
pub struct Panels {
    /// The first element.
    pub at: *const f32,
    /// Elements from one row of a panel to the next.
    pub step: usize,
    /// Elements from one panel to the next; [`PANEL`] in a matrix that lies row by row.
    pub panel: usize,
}

impl Panels {
    unsafe fn from(self, row: usize, column: usize) -> Matrix<*const f32> {
        let place = column / PANEL * self.panel + row * self.step + column % PANEL;
        Matrix {
            // SAFETY: the caller's promise.
            at: unsafe { self.at.add(place) },
            step: self.step,
        }
    }
}

/// A matrix: its first element, and from one row to the next.
#[derive(Clone, Copy)]
pub struct Matrix<T> {
    /// The first element.
    pub at: T,
    /// Elements from one row to the next.
    pub step: usize,
}

impl Matrix<*const f32> {
    unsafe fn from(self, row: usize, column: usize) -> Self {
        // SAFETY: the caller's promise.
        let at = unsafe { self.at.add(row * self.step + column) };
        Self { at, ..self }
    }
}

impl Matrix<*mut f32> {
    unsafe fn from(self, row: usize, column: usize) -> Self {
        // SAFETY: the caller's promise.
        let at = unsafe { self.at.add(row * self.step + column) };
        Self { at, ..self }
    }
}

/// `c = a b` or, if it `adds`, `c += a b`; `a` is [rows, k], `b` is [k, columns]. Columns are whole vectors: `b` is
/// read and `c` written up to the next multiple of [`Vector::LANES`].
///
/// # Safety
/// Those elements must be there; only inside `multiversion` functions.
#[inline(always)]
pub unsafe fn product<V: Vector>(
    [rows, k, columns]: [usize; 3],
    a: Matrix<*const f32>,
    b: Panels,
    c: Matrix<*mut f32>,
    adds: bool,
) {
    // As many sums as registers hold.
    let widest = if V::LANES >= 16 { 4 } else { 2 };
    let mut start = 0;
    loop {
        let depth = DEPTH.min(k - start);
        let (mut column, adds) = (0, adds || start > 0);
        while column < columns {
            let vectors = (columns - column).div_ceil(V::LANES).min(widest);
            // SAFETY: the caller's promise.
            unsafe {
                let (a, b, c) = (a.from(0, start), b.from(start, column), c.from(0, column));
                match vectors {
                    1 => panel::<V, 1>([rows, depth], a, b, c, adds),
                    2 => panel::<V, 2>([rows, depth], a, b, c, adds),
                    3 => panel::<V, 3>([rows, depth], a, b, c, adds),
                    _ => panel::<V, 4>([rows, depth], a, b, c, adds),
                }
            }
            column += vectors * V::LANES;
        }
        start += depth;
        if start == k {
            return;
        }
    }
}

#[inline(always)]
unsafe fn panel<V: Vector, const C: usize>(
    [rows, k]: [usize; 2],
    a: Matrix<*const f32>,
    b: Matrix<*const f32>,
    c: Matrix<*mut f32>,
    adds: bool,
) {
    let mut row = 0;
    while row < rows {
        // SAFETY: the caller's promise.
        unsafe {
            let (a, c) = (a.from(row, 0), c.from(row, 0));
            match rows - row {
                1 => tile::<V, 1, C>(k, a, b, c, adds),
                2 => tile::<V, 2, C>(k, a, b, c, adds),
                3 => tile::<V, 3, C>(k, a, b, c, adds),
                4 => tile::<V, 4, C>(k, a, b, c, adds),
                5 => tile::<V, 5, C>(k, a, b, c, adds),
                _ => tile::<V, ROWS, C>(k, a, b, c, adds),
            }
        }
        row += ROWS;
    }
}

#[inline(always)]
unsafe fn tile<V: Vector, const R: usize, const C: usize>(
    k: usize,
    a: Matrix<*const f32>,
    b: Matrix<*const f32>,
    c: Matrix<*mut f32>,
    adds: bool,
) {
    let mut sums = [[V::splat(0.0); C]; R];
    // SAFETY: the caller's promise.
    unsafe {
        if adds {
            for (r, row) in sums.iter_mut().enumerate() {
                for (i, sum) in row.iter_mut().enumerate() {
                    *sum = V::load(c.at.add(r * c.step + i * V::LANES));
                }
            }
        }
        for at in 0..k {
            let mut line = [V::splat(0.0); C];
            for (i, v) in line.iter_mut().enumerate() {
                *v = V::load(b.at.add(at * b.step + i * V::LANES));
            }
            for (r, row) in sums.iter_mut().enumerate() {
                let factor = V::splat(*a.at.add(r * a.step + at));
                for (sum, v) in row.iter_mut().zip(line) {
                    *sum = factor.fma(v, *sum);
                }
            }
        }
        for (r, row) in sums.iter().enumerate() {
            for (i, sum) in row.iter().enumerate() {
                sum.store(c.at.add(r * c.step + i * V::LANES));
            }
        }
    }
}
