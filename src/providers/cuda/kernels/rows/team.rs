//! How many threads share a row.

use crate::error::Result;
use crate::providers::cuda::device::Grid;

/// Threads of a block whose warps have rows of their own.
const THREADS: usize = 128;
/// The most threads of a block: more would have too few registers.
pub const MOST: usize = 512;
/// Threads of a warp.
const WARP: usize = 32;
/// Threads that keep a multiprocessor busy.
const BUSY: usize = 512;

/// Threads that share a row: a power of two of neighbours in a warp, or a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Team {
    /// Their number.
    pub size: usize,
    /// How many packs of a row each of them has.
    pub packs: usize,
}

impl Team {
    /// The team for rows of so many packs, of which a thread takes at most `most` if there are rows enough for all
    /// multiprocessors, and one if not.
    pub fn of(rows: usize, packs: usize, most: usize, multiprocessors: u32) -> Self {
        let busy = |size: usize| rows * size >= multiprocessors as usize * BUSY;
        let sizes = (0..=MOST.ilog2()).map(|bits| 1usize << bits);
        let fits = |&size: &usize| packs.div_ceil(size) <= if busy(size) { most } else { 1 };
        let size = sizes.into_iter().find(fits).unwrap_or(MOST);
        Self {
            size,
            packs: packs.div_ceil(size).max(1),
        }
    }

    /// Whether it is a whole block.
    pub fn is_block(self) -> bool {
        self.size > WARP
    }

    /// The most threads of a block, whatever the rows.
    pub fn bound(self) -> u32 {
        (if self.is_block() { MOST } else { THREADS }) as u32
    }

    /// The blocks for so many rows.
    ///
    /// # Errors
    /// If there are more than a grid has.
    pub fn grid(self, rows: usize) -> Result<Grid> {
        let threads = if self.is_block() { self.size } else { THREADS };
        Grid::over(rows * self.size, threads as u32)
    }

    /// For reports.
    pub fn describe(self) -> String {
        match self.is_block() {
            true => format!("a block of {} threads a row", self.size),
            false => format!("{} threads a row", self.size),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn teams_grow_with_rows_and_shrink_with_their_number() {
        let size = |rows, packs| Team::of(rows, packs, 4, 132).size;
        assert_eq!(size(4096, 96), 32);
        assert_eq!(size(128, 96), 128);
        assert_eq!(size(1 << 20, 3), 1);
        assert_eq!(size(100_000, 512), 128);
        assert_eq!(size(1, 1), 1);
        assert_eq!(size(1, 0), 1);
        assert_eq!(Team::of(1, 100_000, 4, 132), Team { size: 512, packs: 196 });
        let grid = Team { size: 32, packs: 1 }.grid(5).unwrap();
        assert_eq!((grid.blocks, grid.threads), ([2, 1, 1], 128));
        let grid = Team { size: 64, packs: 1 }.grid(5).unwrap();
        assert_eq!((grid.blocks, grid.threads), ([5, 1, 1], 64));
    }
}
