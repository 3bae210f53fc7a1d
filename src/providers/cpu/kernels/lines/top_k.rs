//! The best elements of a line, the best first.

use super::Tile;
use super::number::Number;
use crate::network::ops::arg::compare;
use std::cmp::Ordering;

/// How many are taken, by which order, and where they go.
#[derive(Clone, Copy)]
pub struct Pick {
    pub kept: usize,
    pub greatest: bool,
    /// From one element of a line to the next.
    pub inner: usize,
    /// Bytes of an element.
    pub size: usize,
}

/// An element that may be among the best.
#[derive(Clone, Copy)]
pub struct Candidate<T> {
    value: T,
    place: u64,
}

/// How many candidates of a line are held: the fewer there are over, the more often the worst are dropped.
pub fn room(kept: usize, length: usize) -> usize {
    const LEAST_OVER: usize = 256;
    (kept + kept.max(LEAST_OVER)).min(length).max(1)
}

/// The best elements so far of one line.
pub struct Best<'a, T> {
    pick: Pick,
    held: &'a mut [Candidate<T>],
    count: usize,
    /// Whether only what is better than the last of the kept ones counts still.
    full: bool,
}

impl<'a, T: Number> Best<'a, T> {
    /// None so far. `held` has the [`room`] for candidates.
    pub fn new(pick: Pick, held: &'a mut [Candidate<T>]) -> Self {
        Self {
            pick,
            held,
            count: 0,
            full: false,
        }
    }

    /// Takes in one lane of a tile, whose first row is row `first` of the line.
    ///
    /// # Safety
    /// The tile must be readable.
    pub unsafe fn take(&mut self, numbers: *const T, tile: &Tile, lane: usize, first: usize) {
        for row in 0..tile.length {
            // SAFETY: the caller's promise.
            let value = unsafe { *numbers.add(row * tile.width + lane) };
            // Of equal elements the first comes first, and it is held already.
            if self.full && !self.beats(&value, &self.held[self.pick.kept - 1].value) {
                continue;
            }
            let place = (first + row) as u64;
            self.held[self.count] = Candidate { value, place };
            self.count += 1;
            if self.count == self.held.len() {
                self.drop_worst();
            }
        }
    }

    fn beats(&self, a: &T, b: &T) -> bool {
        compare(a, b, self.pick.greatest) == Ordering::Less
    }

    fn drop_worst(&mut self) {
        let Pick { kept, greatest, .. } = self.pick;
        if kept <= self.count {
            self.held[..self.count].select_nth_unstable_by(kept - 1, |a, b| rank(a, b, greatest));
            (self.count, self.full) = (kept, true);
        }
    }

    /// Writes the best elements and their places.
    ///
    /// # Safety
    /// The line must start at `from` (to read), and the results at both of `to` (to write).
    pub unsafe fn write(mut self, from: *const u8, to: (*mut u8, *mut i64)) {
        self.drop_worst();
        let Pick {
            kept,
            greatest,
            inner,
            size,
        } = self.pick;
        let best = &mut self.held[..kept];
        best.sort_unstable_by(|a, b| rank(a, b, greatest));
        for (i, candidate) in best.iter().enumerate() {
            let (source, target) = (candidate.place as usize * inner, i * inner);
            // SAFETY: the caller's promise.
            unsafe {
                std::ptr::copy_nonoverlapping(from.add(source * size), to.0.add(target * size), size);
                to.1.add(target).write(candidate.place as i64);
            }
        }
    }
}

fn rank<T: Number>(a: &Candidate<T>, b: &Candidate<T>, greatest: bool) -> Ordering {
    compare(&a.value, &b.value, greatest).then(a.place.cmp(&b.place))
}
