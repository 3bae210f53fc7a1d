//! Offsets in one block of memory for buffers that live at different times.

use crate::device::Space;
use crate::knobs::Placement;
use crate::network::guard_pages;
use crate::plan::program::SlotId;

/// A buffer and when it is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Its size.
    pub bytes: usize,
    /// The first command that needs it.
    pub first: usize,
    /// The last command that needs it.
    pub last: usize,
}

/// A block at its place, for reports.
#[derive(Debug, Clone)]
pub struct Placed {
    /// The memory whose arena it lies in.
    pub space: Space,
    /// Bytes from the start of the arena.
    pub offset: usize,
    /// Its size, and when it is alive.
    pub block: Block,
    /// The slots that lie in it; none in the workspace of a command.
    pub slots: Vec<SlotId>,
}

/// Offsets are multiples of this: what CUDA's libraries ask for, and some cache lines.
const ALIGNMENT: usize = 256;

/// As [`assign`], each block with pages of its own: see [`guard_pages`].
pub fn assign_apart(blocks: &[Block], placement: Placement) -> (Vec<usize>, usize) {
    let sizes: Vec<_> = blocks.iter().map(|block| block.bytes).collect();
    guard_pages::apart(&sizes, placement)
}

/// Gives each block an offset so that no two that are alive at once overlap; also gives the size of the whole.
///
/// Largest first, each at the lowest place that is free for its lifetime ("greedy by size" in
/// Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference, 2020).
pub fn assign(blocks: &[Block]) -> (Vec<usize>, usize) {
    let mut by_size: Vec<usize> = (0..blocks.len()).collect();
    by_size.sort_by_key(|&i| (std::cmp::Reverse(blocks[i].bytes), blocks[i].first, i));
    let mut offsets = vec![0; blocks.len()];
    // (offset, end, block), by offset.
    let mut placed: Vec<(usize, usize, usize)> = vec![];
    let mut total = 0;
    for i in by_size {
        let size = blocks[i].bytes.next_multiple_of(ALIGNMENT);
        if size == 0 {
            continue;
        }
        let together = |&&(_, _, j): &&(usize, usize, usize)| {
            blocks[i].first <= blocks[j].last && blocks[j].first <= blocks[i].last
        };
        let mut offset = 0;
        for &(start, end, _) in placed.iter().filter(together) {
            if start >= offset + size {
                break;
            }
            offset = offset.max(end);
        }
        offsets[i] = offset;
        total = total.max(offset + size);
        let at = placed.partition_point(|&(start, _, _)| start < offset);
        placed.insert(at, (offset, offset + size, i));
    }
    (offsets, total)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// xorshift64*: random enough for a test, the same at every run.
    fn random(state: &mut u64) -> usize {
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize
    }

    #[test]
    fn blocks_that_are_alive_at_once_never_overlap() {
        let mut state = 1;
        for _ in 0..200 {
            let blocks: Vec<_> = (0..random(&mut state) % 60)
                .map(|_| {
                    let first = random(&mut state) % 50;
                    Block {
                        bytes: random(&mut state) % 5000,
                        first,
                        last: first + random(&mut state) % 8,
                    }
                })
                .collect();
            let (offsets, total) = assign(&blocks);
            for (i, a) in blocks.iter().enumerate() {
                assert!(offsets[i] % ALIGNMENT == 0 && offsets[i] + a.bytes <= total);
                for (j, b) in blocks.iter().enumerate().skip(i + 1) {
                    let alive = a.first <= b.last && b.first <= a.last;
                    let overlap = offsets[i] < offsets[j] + b.bytes && offsets[j] < offsets[i] + a.bytes;
                    assert!(!(alive && overlap && a.bytes > 0 && b.bytes > 0), "{i} {j}: {blocks:?}");
                }
            }
        }
    }

    #[test]
    fn a_chain_needs_two_blocks() {
        let chain: Vec<_> = (0..10)
            .map(|i| Block {
                bytes: 100,
                first: i,
                last: i + 1,
            })
            .collect();
        assert_eq!(assign(&chain).1, 2 * ALIGNMENT);
    }
}
