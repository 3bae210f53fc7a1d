//! The place of the best element of a line. NaN is better than any number.

use super::number::Number;
use super::{TILE, Tile};
use crate::providers::cpu::kernels::reduce::fold::{Block, Direction, Fold, Number as _};
use crate::providers::cpu::kernels::reduce::wide;
use crate::providers::cpu::simd::multiversion;

/// The best place of one line of f32: the best element first, then where it is.
pub fn line(elements: &[f32], (greatest, last): (bool, bool)) -> i64 {
    let fold = if greatest { Fold::Max } else { Fold::Min };
    let mut best = [f64::start(fold)];
    let block = Block {
        rows: 1,
        stride: elements.len(),
        width: elements.len(),
    };
    // SAFETY: the block is the slice.
    unsafe { wide::reduce(fold, Direction::Along, elements.as_ptr(), block, &mut best) };
    let best = best[0] as f32;
    let found = |v: &f32| *v == best || (v.is_nan() && best.is_nan());
    let place = if last {
        elements.iter().rposition(found)
    } else {
        elements.iter().position(found)
    };
    place.unwrap_or(0) as i64
}

multiversion! {
    /// As [`lanes`], for f32.
    pub unsafe fn lanes_f32<V>(from: *const f32, tile: &Tile, order: (bool, bool), to: *mut i64) {
        let _ = V::LANES;
        lanes(from, tile, order, to)
    }
}

/// The best place of each lane of a tile.
///
/// # Safety
/// The tile must be readable, and as many places as lanes writable.
#[inline(always)]
pub unsafe fn lanes<T: Number>(from: *const T, tile: &Tile, order: (bool, bool), to: *mut i64) {
    // SAFETY: the caller's promise.
    unsafe {
        match order {
            (true, false) => best(from, tile, to, false, |a, b| a > b),
            (true, true) => best(from, tile, to, true, |a, b| a >= b),
            (false, false) => best(from, tile, to, false, |a, b| a < b),
            (false, true) => best(from, tile, to, true, |a, b| a <= b),
        }
    }
}

#[inline(always)]
#[allow(clippy::eq_op)] // Only NaN differs from itself.
unsafe fn best<T: Number>(from: *const T, tile: &Tile, to: *mut i64, last: bool, beats: impl Fn(T, T) -> bool) {
    let width = tile.width.min(TILE);
    let mut places = [0u32; TILE];
    // SAFETY: the caller's promise; a tile has at most TILE lanes and, having been asked for its best, a row.
    unsafe {
        let mut best = [*from; TILE];
        for (lane, best) in best.iter_mut().enumerate().take(width) {
            *best = *from.add(lane);
        }
        for row in 1..tile.length {
            let from = from.add(row * tile.width);
            for lane in 0..width {
                let (v, b) = (*from.add(lane), best[lane]);
                let nan = (v != v) & (last | (b == b));
                let better = (beats(v, b) & (b == b)) | nan;
                best[lane] = if better { v } else { b };
                places[lane] = if better { row as u32 } else { places[lane] };
            }
        }
        for (lane, &place) in places.iter().enumerate().take(width) {
            to.add(lane).write(place as i64);
        }
    }
}
