//! Sums of all elements up to each.

use super::Tile;
use super::number::Number;

/// Replaces the elements of each lane of a tile by the sums up to them.
///
/// # Safety
/// The tile must be readable and writable.
pub unsafe fn sums<T: Number>(numbers: *mut T, tile: &Tile, exclusive: bool, reverse: bool) {
    let mut sums = [T::Sum::default(); super::TILE];
    for i in 0..tile.length {
        let row = if reverse { tile.length - 1 - i } else { i };
        for (lane, sum) in sums.iter_mut().enumerate().take(tile.width) {
            // SAFETY: the caller's promise.
            unsafe {
                let place = numbers.add(row * tile.width + lane);
                let before = *sum;
                *sum = T::add(before, *place);
                *place = T::of(if exclusive { before } else { *sum });
            }
        }
    }
}
