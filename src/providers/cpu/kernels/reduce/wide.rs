//! Blocks of f32, folded in vectors. Chains of f32 are short, so that the result has the precision of f64 sums.

use super::fold::{Block, Direction, Fold, Number};
use crate::providers::cpu::kernels::transpose_tile::transpose_tile;
use crate::providers::cpu::simd::{Vector, multiversion};
use std::mem::MaybeUninit;
use std::ops::Range;

/// The most elements that one lane folds in f32 before the result is folded in f64.
const CHAIN: usize = 64;
/// Vectors that are folded at a time.
const AT_ONCE: usize = 4;
/// Edge of the tiles that are turned, which is the length of the longest vector.
const EDGE: usize = 16;
/// Fewer rows than this are not worth turning a tile.
const FEW: usize = 4;

/// Visits a block in parts that were widened: the rows, and a dense copy of (a part of) them.
///
/// # Safety
/// The elements, of `size` bytes, must be readable; `widen` must write all that it is asked to.
pub unsafe fn blocks<T>(
    from: *const u8,
    size: usize,
    block: Block,
    widen: impl Fn(*const u8, *mut T, usize),
    mut body: impl FnMut(Range<usize>, *const T, Block),
) {
    const BUFFER: usize = 2048;
    let mut buffer = [const { MaybeUninit::<T>::uninit() }; BUFFER];
    let to: *mut T = buffer.as_mut_ptr().cast();
    for start in (0..block.width).step_by(BUFFER) {
        let width = (block.width - start).min(BUFFER);
        let most = BUFFER / width;
        for top in (0..block.rows).step_by(most) {
            let rows = (block.rows - top).min(most);
            // SAFETY: the places lie in the block, and the buffer holds `rows * width`.
            let place = |row: usize| unsafe { from.add(((top + row) * block.stride + start) * size) };
            match block.stride == width {
                true => widen(place(0), to, rows * width),
                // SAFETY: as above.
                false => (0..rows).for_each(|row| widen(place(row), unsafe { to.add(row * width) }, width)),
            }
            let stride = width;
            body(top..top + rows, to, Block { rows, stride, width });
        }
    }
}

/// Folds f32 into one result per row or column of a block.
///
/// # Safety
/// As [`Number::reduce`].
pub unsafe fn reduce(fold: Fold, direction: Direction, from: *const f32, block: Block, acc: &mut [f64]) {
    // SAFETY: the caller's promise.
    unsafe { versions(fold, direction, from, block, acc) }
}

multiversion! {
    unsafe fn versions<V>(fold: Fold, direction: Direction, from: *const f32, block: Block, acc: &mut [f64]) {
        match fold {
            Fold::Sum => directed::<V, Sum>(direction, from, block, acc),
            Fold::Abs => directed::<V, Abs>(direction, from, block, acc),
            Fold::Square => directed::<V, Square>(direction, from, block, acc),
            Fold::Max => directed::<V, Max>(direction, from, block, acc),
            Fold::Min => directed::<V, Min>(direction, from, block, acc),
            Fold::Prod => products(direction, from, block, acc),
        }
    }
}

/// A fold on vectors.
trait Lanes {
    const FOLD: Fold;
    const START: f32;
    /// Folds one more element into each lane.
    fn step<V: Vector>(acc: V, x: V) -> V;
    /// Folds two accumulators.
    #[inline(always)]
    fn join<V: Vector>(a: V, b: V) -> V {
        match Self::FOLD {
            Fold::Max | Fold::Min => Self::step(a, b),
            _ => a + b,
        }
    }
}

macro_rules! lanes {
    ($($name:ident $start:expr, |$acc:ident, $x:ident| $step:expr;)*) => {$(
        struct $name;
        impl Lanes for $name {
            const FOLD: Fold = Fold::$name;
            const START: f32 = $start;
            #[inline(always)]
            fn step<V: Vector>($acc: V, $x: V) -> V {
                $step
            }
        }
    )*};
}

lanes! {
    Sum 0.0, |acc, x| acc + x;
    Abs 0.0, |acc, x| acc + x.abs();
    Square 0.0, |acc, x| x.fma(x, acc);
    // `max` gives its argument where either is NaN: a NaN that comes later stays, one that is there already is kept.
    Max f32::NEG_INFINITY, |acc, x| V::select(acc.eq(acc), acc.max(x), acc);
    Min f32::INFINITY, |acc, x| V::select(acc.eq(acc), acc.min(x), acc);
}

#[inline(always)]
unsafe fn directed<V: Vector, L: Lanes>(direction: Direction, from: *const f32, block: Block, acc: &mut [f64]) {
    // SAFETY: the caller's promise: each part lies in the block.
    unsafe {
        match direction {
            Direction::Along => {
                let most = CHAIN * AT_ONCE * V::LANES;
                for start in (0..block.width).step_by(most) {
                    let width = (block.width - start).min(most);
                    rows::<V, L>(from.add(start), Block { width, ..block }, acc);
                }
            }
            Direction::Down => {
                for top in (0..block.rows).step_by(CHAIN) {
                    let rows = (block.rows - top).min(CHAIN);
                    down::<V, L>(from.add(top * block.stride), Block { rows, ..block }, acc);
                }
            }
        }
    }
}

/// Folds rows: each into the lanes of one vector, and those of 16 rows into 16 results by turning them.
#[inline(always)]
unsafe fn rows<V: Vector, L: Lanes>(from: *const f32, block: Block, acc: &mut [f64]) {
    let mut top = 0;
    // SAFETY: the caller's promise; both tiles hold 16 of the longest vectors.
    unsafe {
        while top < block.rows {
            let count = (block.rows - top).min(EDGE);
            let mut lanes = [L::START; EDGE * EDGE];
            for row in 0..count {
                let lane = along::<V, L>(from.add((top + row) * block.stride), block.width);
                lane.store(lanes.as_mut_ptr().add(row * V::LANES));
            }
            let acc = &mut acc[top..top + count];
            if count < FEW {
                for (row, acc) in acc.iter_mut().enumerate() {
                    let lanes = &lanes[row * V::LANES..][..V::LANES];
                    *acc = lanes.iter().fold(*acc, |acc, &lane| acc.join(L::FOLD, lane as f64));
                }
            } else {
                let results = turned::<L>(&lanes, V::LANES);
                acc.iter_mut()
                    .zip(results)
                    .for_each(|(acc, v)| *acc = acc.join(L::FOLD, v));
            }
            top += count;
        }
    }
}

/// Folds the lanes of each of 16 vectors.
#[inline(always)]
fn turned<L: Lanes>(lanes: &[f32; EDGE * EDGE], width: usize) -> [f64; EDGE] {
    let mut turned = [0f32; EDGE * EDGE];
    let (from, to) = (lanes.as_ptr().cast(), turned.as_mut_ptr().cast());
    // SAFETY: 16 vectors of `width <= 16` lie in either tile.
    unsafe { transpose_tile(size_of::<f32>(), (width, EDGE), from, width as isize, to, EDGE as isize) };
    let mut results = [f64::start(L::FOLD); EDGE];
    for lane in turned.chunks_exact(EDGE).take(width) {
        for (result, &v) in results.iter_mut().zip(lane) {
            *result = result.join(L::FOLD, v as f64);
        }
    }
    results
}

/// Folds neighbours, at most CHAIN per lane and accumulator.
#[inline(always)]
unsafe fn along<V: Vector, L: Lanes>(from: *const f32, n: usize) -> V {
    let mut lanes = [V::splat(L::START); AT_ONCE];
    let mut i = 0;
    // SAFETY: the caller's promise: `0..n` lies in the row.
    unsafe {
        while i + AT_ONCE * V::LANES <= n {
            for (k, lane) in lanes.iter_mut().enumerate() {
                *lane = L::step(*lane, V::load(from.add(i + k * V::LANES)));
            }
            i += AT_ONCE * V::LANES;
        }
        while i + V::LANES <= n {
            lanes[0] = L::step(lanes[0], V::load(from.add(i)));
            i += V::LANES;
        }
        if i < n {
            lanes[1] = L::step(lanes[1], part::<V>(from.add(i), n - i, rest::<L>()));
        }
    }
    L::join(L::join(lanes[0], lanes[1]), L::join(lanes[2], lanes[3]))
}

/// What fills up a vector without changing the result.
#[inline(always)]
fn rest<L: Lanes>() -> f32 {
    match L::FOLD {
        Fold::Max | Fold::Min => L::START,
        _ => 0.0,
    }
}

/// The first `n < LANES` elements, and `rest` in the other lanes.
#[inline(always)]
unsafe fn part<V: Vector>(from: *const f32, n: usize, rest: f32) -> V {
    // SAFETY: the caller's promise; the buffer holds any vector.
    unsafe {
        if rest == 0.0 {
            return V::load_part(from, n);
        }
        let mut buffer = [rest; EDGE];
        std::ptr::copy_nonoverlapping(from, buffer.as_mut_ptr(), n);
        V::load(buffer.as_ptr())
    }
}

/// Folds columns.
#[inline(always)]
unsafe fn down<V: Vector, L: Lanes>(from: *const f32, block: Block, acc: &mut [f64]) {
    let mut column = 0;
    // SAFETY: the caller's promise: the columns lie in the block.
    unsafe {
        while column + AT_ONCE * V::LANES <= block.width {
            let mut lanes = [V::splat(L::START); AT_ONCE];
            for row in 0..block.rows {
                let from = from.add(row * block.stride + column);
                for (k, lane) in lanes.iter_mut().enumerate() {
                    *lane = L::step(*lane, V::load(from.add(k * V::LANES)));
                }
            }
            for lane in lanes {
                join::<V>(lane, L::FOLD, &mut acc[column..column + V::LANES]);
                column += V::LANES;
            }
        }
        while column < block.width {
            let width = V::LANES.min(block.width - column);
            let from = from.add(column);
            for lane in narrow::<V, L>(from, Block { width, ..block }) {
                join::<V>(lane, L::FOLD, &mut acc[column..column + width]);
            }
            column += width;
        }
    }
}

/// Folds columns that fit one vector; rows go to several accumulators in turn, each a result of its own.
#[inline(always)]
unsafe fn narrow<V: Vector, L: Lanes>(from: *const f32, block: Block) -> [V; AT_ONCE] {
    let mut lanes = [V::splat(L::START); AT_ONCE];
    // SAFETY: the caller's promise.
    unsafe {
        let load = |row: usize| {
            let from = from.add(row * block.stride);
            match block.width == V::LANES {
                true => V::load(from),
                false => V::load_part(from, block.width),
            }
        };
        let turns = block.rows / AT_ONCE;
        for turn in 0..turns {
            for (k, lane) in lanes.iter_mut().enumerate() {
                *lane = L::step(*lane, load(turn * AT_ONCE + k));
            }
        }
        for row in turns * AT_ONCE..block.rows {
            lanes[0] = L::step(lanes[0], load(row));
        }
    }
    lanes
}

/// Folds the first lanes of a vector into as many results.
#[inline(always)]
fn join<V: Vector>(lane: V, fold: Fold, acc: &mut [f64]) {
    let mut narrow = [0f32; EDGE];
    // SAFETY: the buffer holds the longest vector.
    unsafe { lane.store(narrow.as_mut_ptr()) };
    for (acc, lane) in acc.iter_mut().zip(narrow) {
        *acc = acc.join(fold, lane as f64);
    }
}

/// Products leave the range of f32 even where the result is in it.
#[inline(always)]
unsafe fn products(direction: Direction, from: *const f32, block: Block, acc: &mut [f64]) {
    for row in 0..block.rows {
        for column in 0..block.width {
            let at = if direction == Direction::Along { row } else { column };
            // SAFETY: the caller's promise.
            acc[at] *= unsafe { *from.add(row * block.stride + column) } as f64;
        }
    }
}
