//! Sums and products of all elements up to each.

use super::number::Number;
use super::{TILE, Tile};

/// Which way to combine, whether without the element itself, and whether from the back.
#[derive(Debug, Clone, Copy)]
pub struct How {
    pub product: bool,
    pub exclusive: bool,
    pub reverse: bool,
}

/// Sums or products so far, one for each lane of a tile.
pub struct Totals<T: Number> {
    how: How,
    totals: [T::Sum; TILE],
}

impl<T: Number> Totals<T> {
    /// Of no elements.
    pub fn new(how: How) -> Self {
        let start = if how.product { T::ONE } else { T::Sum::default() };
        Self {
            how,
            totals: [start; TILE],
        }
    }

    /// Replaces the elements of each lane of a tile by the sums or products up to them.
    ///
    /// # Safety
    /// The tile must be readable and writable.
    pub unsafe fn take(&mut self, numbers: *mut T, tile: &Tile) {
        // SAFETY: the caller's promise.
        unsafe {
            match self.how.product {
                true => self.lanes(numbers, tile, T::times),
                false => self.lanes(numbers, tile, T::add),
            }
        }
    }

    /// # Safety
    /// The tile must be readable and writable.
    #[inline(always)]
    unsafe fn lanes(&mut self, numbers: *mut T, tile: &Tile, combine: impl Fn(T::Sum, T) -> T::Sum) {
        let how = self.how;
        for i in 0..tile.length {
            let row = if how.reverse { tile.length - 1 - i } else { i };
            for (lane, total) in self.totals.iter_mut().enumerate().take(tile.width) {
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
}
