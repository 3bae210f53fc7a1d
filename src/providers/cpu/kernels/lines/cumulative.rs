//! Sums and products of all elements up to each.

use super::Tile;
use super::number::Number;

/// Which way to combine, whether without the element itself, and whether from the back.
#[derive(Debug, Clone, Copy)]
pub struct How {
    pub product: bool,
    pub exclusive: bool,
    pub reverse: bool,
}

/// Replaces the elements of each lane of a tile by the sums or products up to them.
///
/// # Safety
/// The tile must be readable and writable.
pub unsafe fn run<T: Number>(numbers: *mut T, tile: &Tile, how: How) {
    // SAFETY: the caller's promise.
    unsafe {
        if how.product {
            lanes(numbers, tile, how, T::ONE, T::times);
        } else {
            lanes(numbers, tile, how, T::Sum::default(), T::add);
        }
    }
}

/// # Safety
/// The tile must be readable and writable.
#[inline(always)]
unsafe fn lanes<T: Number>(
    numbers: *mut T,
    tile: &Tile,
    how: How,
    start: T::Sum,
    combine: impl Fn(T::Sum, T) -> T::Sum,
) {
    let mut totals = [start; super::TILE];
    for i in 0..tile.length {
        let row = if how.reverse { tile.length - 1 - i } else { i };
        for (lane, total) in totals.iter_mut().enumerate().take(tile.width) {
            // SAFETY: the caller's promise.
            unsafe {
                let place = numbers.add(row * tile.width + lane);
                let before = *total;
                *total = combine(before, *place);
                *place = T::of(if how.exclusive { before } else { *total });
            }
        }
    }
}
