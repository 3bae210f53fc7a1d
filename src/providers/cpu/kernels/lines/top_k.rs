//! The best elements of a line, the best first.

use super::Tile;
use super::number::Number;
use crate::network::ops::arg::compare;

/// How many are taken, by which order, and where they go.
pub struct Pick {
    pub kept: usize,
    pub greatest: bool,
    /// From one element of a line to the next.
    pub inner: usize,
    /// Bytes of an element.
    pub size: usize,
}

impl Pick {
    /// Writes the best elements of one lane of a tile, and their places.
    ///
    /// # Safety
    /// The tile must be readable, lines start at `from` (to read) and at both of `to` (to write).
    pub unsafe fn lane<T: Number>(
        &self,
        numbers: *const T,
        tile: &Tile,
        lane: usize,
        order: &mut [u64],
        from: *const u8,
        to: (*mut u8, *mut i64),
    ) {
        // SAFETY: the caller's promise.
        let number = |i: &u64| unsafe { *numbers.add(*i as usize * tile.width + lane) };
        let rank = |a: &u64, b: &u64| compare(&number(a), &number(b), self.greatest).then(a.cmp(b));
        order.iter_mut().enumerate().for_each(|(i, at)| *at = i as u64);
        if self.kept == 0 {
            return;
        }
        if self.kept < order.len() {
            order.select_nth_unstable_by(self.kept - 1, rank);
        }
        let best = &mut order[..self.kept];
        best.sort_unstable_by(rank);
        for (i, &place) in best.iter().enumerate() {
            let (source, target) = (place as usize * self.inner + lane, i * self.inner + lane);
            // SAFETY: the caller's promise.
            unsafe {
                std::ptr::copy_nonoverlapping(from.add(source * self.size), to.0.add(target * self.size), self.size);
                to.1.add(target).write(place as i64);
            }
        }
    }
}
