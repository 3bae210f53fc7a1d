//! Attention without a mask on Hopper: how the kernel of `attention_pipeline.cu` cuts rows and keys, and how it is brought keys and
//! values.

use super::share::PACK_BYTES;
use super::tile::{LINE, widest_values};
use crate::network::dtype::DType;
use crate::providers::common::strided_view::ConcreteView;
use crate::providers::cuda::device::Boxes;

/// Rows of a warpgroup.
const GROUP_ROWS: usize = 64;
/// Tiles of keys, and of values, in shared memory at once.
const STAGES: usize = 2;
/// What tiles begin at multiples of.
const PATTERN: usize = 1024;
/// Up to which size of a head, keys of a tile and warpgroups that multiply.
const CUTS: [(usize, &[[usize; 2]]); 4] = [
    (64, &[[128, 3], [128, 2]]),
    (96, &[[128, 2]]),
    (128, &[[128, 2], [64, 3]]),
    (256, &[[64, 2]]),
];

/// What a block of `attend_in_pipeline` has in shared memory and in its warpgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pipeline {
    /// Of queries and keys, at most.
    pub size: usize,
    /// Of values, at most.
    pub v_size: usize,
    /// Keys of a tile.
    pub keys: usize,
    /// Warpgroups that multiply; one more fetches.
    pub groups: usize,
}

impl Pipeline {
    /// Those for heads of these sizes that fit into so much shared memory.
    pub fn all([size, v_size]: [usize; 2], shared_bytes: usize) -> Vec<Self> {
        let cuts = CUTS.iter().find(|(most, _)| size.max(v_size) <= *most && size > 0);
        let (Some((_, cuts)), Some(v_size)) = (cuts, widest_values(v_size)) else {
            return vec![];
        };
        let pipeline = |&[keys, groups]: &[usize; 2]| Self {
            size: size.next_multiple_of(16),
            v_size,
            keys,
            groups,
        };
        let fits = |pipeline: &Self| pipeline.shared_bytes() <= shared_bytes;
        cuts.iter().map(pipeline).filter(fits).collect()
    }

    /// Rows of a block.
    pub fn rows(self) -> usize {
        self.groups * GROUP_ROWS
    }

    /// Threads of a block.
    pub fn threads(self) -> usize {
        (self.groups + 1) * 128
    }

    /// Shared memory of a block.
    pub fn shared_bytes(self) -> usize {
        let [size, v_size] = [self.size, self.v_size].map(|size| size.next_multiple_of(LINE));
        let tiles = STAGES * self.keys * (size + v_size);
        2 * (tiles + self.rows() * size.max(self.v_size + 8)) + PATTERN
    }

    /// About how many cycles so many blocks take that go through so many tiles each, beside `Share::guess`, which is lower than
    /// what is measured, too.
    pub fn guess(self, blocks: usize, steps: usize) -> usize {
        const BLOCK: usize = 3_000;
        let cycles = self.keys * self.groups * (430 + 4 * (self.size + self.v_size)) / 130;
        blocks * (BLOCK + steps * cycles)
    }

    /// For reports.
    pub fn describe(self) -> String {
        let Self { size, v_size, keys, .. } = self;
        format!(
            "warpgroups in a pipeline, {size} x {v_size}, {} rows, {keys} keys a tile",
            self.rows()
        )
    }
}

/// Keys or values as the copy engine brings them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvBoxes {
    /// The boxes.
    pub boxes: Boxes,
    /// Whether each batch and each head has its own.
    pub moves: [bool; 2],
}

impl KvBoxes {
    /// A view of four dimensions in boxes of so many keys, if the copy engine takes it.
    pub fn new(dtype: DType, view: &ConcreteView, keys: usize) -> Option<Self> {
        let &[batch, heads, rows, size] = view.shape.as_slice() else {
            return None;
        };
        let moves = [0, 1].map(|axis| view.strides[axis] != 0 && view.shape[axis] > 1);
        // An axis of one place may have any stride.
        let own = size.next_multiple_of(PACK_BYTES / dtype.size());
        let stride = |axis: usize, moves: bool| if moves { view.strides[axis] } else { own } * dtype.size();
        let strides = [stride(2, rows > 1), stride(1, moves[1]), stride(0, moves[0])];
        let even = |&stride: &usize| stride > 0 && stride.is_multiple_of(PACK_BYTES) && stride < 1 << 40;
        let lies = view.strides[3] == 1 && strides.iter().all(even);
        let extent = |extent: usize, moves: bool| if moves { extent } else { 1 };
        lies.then(|| Self {
            boxes: Boxes {
                dtype,
                extents: vec![size, rows, extent(heads, moves[1]), extent(batch, moves[0])],
                strides: strides.to_vec(),
                size: vec![LINE, keys, 1, 1],
            },
            moves,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fits_into_a_multiprocessor_of_hopper() {
        for size in (16..=256).step_by(16) {
            for v_size in (16..=256).step_by(16) {
                let cuts = CUTS.iter().find(|(most, _)| size.max(v_size) <= *most).unwrap().1;
                assert_eq!(
                    Pipeline::all([size, v_size], 232_448).len(),
                    cuts.len(),
                    "{size} {v_size}"
                );
            }
        }
        assert!(Pipeline::all([257, 64], 232_448).is_empty() && Pipeline::all([0, 64], 232_448).is_empty());
    }

    #[test]
    fn keys_of_all_batches_stand_still() {
        let view = |shape: [usize; 4], strides: [usize; 4]| ConcreteView {
            shape: shape.to_vec(),
            strides: strides.to_vec(),
            offset: 0,
        };
        let of = |view: &ConcreteView| KvBoxes::new(DType::Float16, view, 128);
        // [batch, keys, heads, size] turned, of one batch for all.
        let found = of(&view([3, 4, 100, 96], [0, 96, 384, 1])).unwrap();
        assert_eq!(found.moves, [false, true]);
        assert_eq!(found.boxes.extents, [96, 100, 4, 1]);
        assert_eq!(found.boxes.strides, [768, 192, 192]);
        assert_eq!(found.boxes.size, [64, 128, 1, 1]);
        assert!(of(&view([1, 1, 7, 64], [0, 0, 68, 1])).is_none());
        assert!(of(&view([1, 1, 7, 64], [0, 0, 1, 7])).is_none());
        assert!(of(&view([2, 1, 7, 64], [0, 0, 0, 1])).is_none());
        assert_eq!(of(&view([1, 1, 1, 60], [0, 0, 0, 1])).unwrap().boxes.strides, [128; 3]);
    }
}
