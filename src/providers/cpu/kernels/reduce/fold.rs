//! How two numbers become one, in the two classes of numbers that reductions are computed in.

use super::Finish;
use super::of_8_bits;
use super::wide::{self, blocks};
use crate::network::dtype::DType;
use crate::providers::cpu::simd::convert;

/// What a reduction does with its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fold {
    Sum,
    /// The sum of absolute values.
    Abs,
    /// The sum of squares.
    Square,
    Max,
    Min,
    Prod,
}

/// A block of elements: this many rows, so far from one to the next, of this many neighbours.
#[derive(Clone, Copy)]
pub struct Block {
    pub rows: usize,
    pub stride: usize,
    pub width: usize,
}

/// Which elements of a block meet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Those of a row: there is one result per row.
    Along,
    /// Those of a column: there is one result per column.
    Down,
}

/// A class of numbers that reductions are computed in.
pub trait Number: Copy + Send + Sync + 'static {
    /// What any number is folded into first.
    fn start(fold: Fold) -> Self;
    /// The result over no elements.
    fn of_nothing(fold: Fold, dtype: DType) -> Self;
    /// Folds one more element in.
    fn step(self, fold: Fold, element: Self) -> Self;
    /// Folds two results.
    fn join(self, fold: Fold, other: Self) -> Self;
    /// What becomes of the result over `count` elements.
    fn finish(self, finish: Finish, count: usize) -> Self;
    /// Folds the elements of a block into one result per row or column.
    ///
    /// # Safety
    /// The elements, of `dtype`, must be readable, and `acc` as many as there are results.
    unsafe fn reduce(fold: Fold, direction: Direction, dtype: DType, from: *const u8, block: Block, acc: &mut [Self]);
    /// Writes neighbours as `dtype`.
    ///
    /// # Safety
    /// They must be writable.
    unsafe fn store(values: &[Self], dtype: DType, to: *mut u8);
}

/// The results that a block's rows or columns fold into, in order of memory.
///
/// # Safety
/// As [`Number::reduce`].
pub unsafe fn each<A: Number>(fold: Fold, direction: Direction, from: *const A, block: Block, acc: &mut [A]) {
    for row in 0..block.rows {
        for column in 0..block.width {
            // SAFETY: the caller's promise.
            let element = unsafe { *from.add(row * block.stride + column) };
            let at = if direction == Direction::Along { row } else { column };
            acc[at] = acc[at].step(fold, element);
        }
    }
}

/// The part of the results that some rows of a block fold into.
fn part<A>(direction: Direction, acc: &mut [A], rows: std::ops::Range<usize>) -> &mut [A] {
    match direction {
        Direction::Along => &mut acc[rows],
        Direction::Down => acc,
    }
}

impl Number for f64 {
    fn start(fold: Fold) -> f64 {
        match fold {
            Fold::Sum | Fold::Abs | Fold::Square => 0.0,
            Fold::Max => f64::NEG_INFINITY,
            Fold::Min => f64::INFINITY,
            Fold::Prod => 1.0,
        }
    }

    fn of_nothing(fold: Fold, _dtype: DType) -> f64 {
        Self::start(fold)
    }

    #[inline(always)]
    fn step(self, fold: Fold, element: f64) -> f64 {
        match fold {
            Fold::Abs => self + element.abs(),
            Fold::Square => self + element * element,
            _ => self.join(fold, element),
        }
    }

    #[inline(always)]
    fn join(self, fold: Fold, other: f64) -> f64 {
        match fold {
            Fold::Sum | Fold::Abs | Fold::Square => self + other,
            // A NaN stays one.
            Fold::Max if self.is_nan() || self > other => self,
            Fold::Min if self.is_nan() || self < other => self,
            Fold::Max | Fold::Min => other,
            Fold::Prod => self * other,
        }
    }

    fn finish(self, finish: Finish, count: usize) -> f64 {
        match finish {
            Finish::Nothing => self,
            Finish::Mean => self / count as f64,
            Finish::DequantizedMean(scheme) => of_8_bits::dequantized(self, count, scheme).into(),
            Finish::RequantizedMean(read, written) => of_8_bits::requantized(self, count, read, written),
            Finish::Sqrt => self.sqrt(),
            Finish::Log => self.ln(),
        }
    }

    unsafe fn reduce(fold: Fold, direction: Direction, dtype: DType, from: *const u8, block: Block, acc: &mut [f64]) {
        // SAFETY: the caller's promise; a widened block is a dense copy of a part.
        unsafe {
            match dtype {
                DType::Float64 => each(fold, direction, from.cast(), block, acc),
                DType::Float32 => wide::reduce(fold, direction, from.cast(), block, acc),
                _ => {
                    let widen = |from, to, n| convert::to_f32(dtype, from, to, n);
                    blocks(from, dtype.size(), block, widen, |rows, from, block| {
                        wide::reduce(fold, direction, from, block, part(direction, acc, rows));
                    });
                }
            }
        }
    }

    unsafe fn store(values: &[f64], dtype: DType, to: *mut u8) {
        // SAFETY (in all): the caller's promise.
        if dtype == DType::Float64 {
            unsafe { to.cast::<f64>().copy_from_nonoverlapping(values.as_ptr(), values.len()) };
            return;
        }
        let mut floats = [0.0; 64];
        for (at, values) in values.chunks(64).enumerate() {
            floats
                .iter_mut()
                .zip(values)
                .for_each(|(float, &value)| *float = value as f32);
            unsafe { convert::from_f32(dtype, floats.as_ptr(), to.add(at * 64 * dtype.size()), values.len()) };
        }
    }
}

impl Number for i64 {
    fn start(fold: Fold) -> i64 {
        match fold {
            Fold::Sum | Fold::Abs | Fold::Square => 0,
            Fold::Max => i64::MIN,
            Fold::Min => i64::MAX,
            Fold::Prod => 1,
        }
    }

    fn of_nothing(fold: Fold, dtype: DType) -> i64 {
        match fold {
            Fold::Max => crate::network::ops::values::lowest(dtype),
            Fold::Min => crate::network::ops::values::highest(dtype),
            _ => Self::start(fold),
        }
    }

    #[inline(always)]
    fn step(self, fold: Fold, element: i64) -> i64 {
        match fold {
            Fold::Abs => self.wrapping_add(element.wrapping_abs()),
            Fold::Square => self.wrapping_add(element.wrapping_mul(element)),
            _ => self.join(fold, element),
        }
    }

    #[inline(always)]
    fn join(self, fold: Fold, other: i64) -> i64 {
        match fold {
            Fold::Sum | Fold::Abs | Fold::Square => self.wrapping_add(other),
            Fold::Max => self.max(other),
            Fold::Min => self.min(other),
            Fold::Prod => self.wrapping_mul(other),
        }
    }

    fn finish(self, finish: Finish, count: usize) -> i64 {
        match finish {
            Finish::Nothing => self,
            _ => (self as f64).finish(finish, count) as i64,
        }
    }

    unsafe fn reduce(fold: Fold, direction: Direction, dtype: DType, from: *const u8, block: Block, acc: &mut [i64]) {
        // SAFETY: the caller's promise; a widened block is a dense copy of a part.
        unsafe {
            let widen = |from, to, n| convert::to_i64(dtype, from, to, n);
            blocks(from, dtype.size(), block, widen, |rows, from, block| {
                each(fold, direction, from, block, part(direction, acc, rows));
            });
        }
    }

    unsafe fn store(values: &[i64], dtype: DType, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { convert::from_i64(dtype, values.as_ptr(), to, values.len()) };
    }
}
