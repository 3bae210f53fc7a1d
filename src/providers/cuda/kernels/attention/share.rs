//! Which kernel runs an attention, and what each of its blocks does.

use super::pipeline::Pipeline;
use super::tile::Tile;
use crate::network::dtype::DType;
use crate::providers::common::strided_view::ConcreteView;
use crate::providers::cuda::device::HOPPER;
use crate::providers::cuda::kernels::words::divisor;

/// Bytes that the tiled kernel moves at once.
pub const PACK_BYTES: usize = 16;
/// Rows and keys of a tile of the plain kernel, and its threads.
const PLAIN_TILE: usize = 32;
const PLAIN_THREADS: usize = 128;
/// A part of the keys is as many tiles at least, and fewer tiles in all are not cut into parts: joining costs a launch.
const PART_TILES: usize = 2;
const CUT_TILES: usize = 8;

/// A kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// On tensor cores.
    Tiles(Tile),
    /// So, with keys and values that the copy engine brings.
    Pipeline(Pipeline),
    /// On the ordinary cores, so many columns of the values at a time.
    Plain {
        /// Those columns.
        columns: usize,
    },
}

impl Way {
    /// The kernels for heads of these sizes, of keys and of values: one at least.
    pub fn all(dtype: DType, sizes: [usize; 2], capability: (i32, i32), shared_bytes: usize) -> Vec<Self> {
        let has_tiles = match dtype {
            DType::Float16 => true,
            DType::BFloat16 => capability >= (8, 0),
            _ => false,
        };
        let tiles = if has_tiles {
            Tile::all(sizes, shared_bytes, capability == HOPPER)
        } else {
            vec![]
        };
        if !tiles.is_empty() {
            return tiles.into_iter().map(Self::Tiles).collect();
        }
        let columns = match dtype {
            DType::Float64 => 64,
            _ if sizes[1] <= 64 => 64,
            _ => 128,
        };
        vec![Self::Plain { columns }]
    }

    /// Whether it is for scales that are not negative.
    pub fn is_grouped(self) -> bool {
        match self {
            Self::Tiles(tile) => tile.grouped,
            Self::Pipeline(_) => true,
            Self::Plain { .. } => false,
        }
    }

    fn tile_keys(self) -> usize {
        match self {
            Self::Tiles(tile) => tile.tile_keys(),
            Self::Pipeline(pipeline) => pipeline.keys,
            Self::Plain { .. } => PLAIN_TILE,
        }
    }
}

/// An operand with no stride along dimensions of 1: those do not matter, or are broadcast.
pub fn settled(mut strided: ConcreteView) -> ConcreteView {
    let ones = strided.shape.iter().zip(&mut strided.strides);
    ones.filter(|(extent, _)| **extent == 1)
        .for_each(|(_, stride)| *stride = 0);
    strided
}

/// The operands of four dimensions each.
pub struct Operands<'a> {
    /// Queries.
    pub q: &'a ConcreteView,
    /// Keys.
    pub k: &'a ConcreteView,
    /// Values.
    pub v: &'a ConcreteView,
    /// What is added to scores, or which count.
    pub mask: Option<&'a ConcreteView>,
    /// The result.
    pub y: &'a ConcreteView,
}

/// What the blocks of a launch do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Blocks, and threads of each.
    pub blocks: usize,
    /// Threads.
    pub threads: usize,
    /// Parts that the keys are cut into.
    pub splits: usize,
    /// Queries of all heads and batches.
    pub rows: usize,
    tiles: usize,
    span: usize,
}

impl Share {
    /// Scratch memory: what each part of the keys gave.
    pub fn workspace(&self, v_size: usize, dtype: DType) -> usize {
        let wide = dtype.size().max(size_of::<f32>());
        match self.splits {
            1 => 0,
            parts => parts * self.rows * (v_size + 2) * wide,
        }
    }

    /// Tiles of keys that a block goes through.
    pub fn steps(&self, way: Way) -> usize {
        self.span.div_ceil(way.tile_keys())
    }

    /// About how many cycles it takes: good enough to tell which tiles are worth timing.
    fn guess(&self, way: Way, multiprocessors: usize) -> usize {
        /// Cycles from a launch to the end of a block that has nothing to do, and from one launch to the next.
        const START: usize = 2500;
        /// Instructions of a warp besides those of its keys.
        const WARP: usize = 600;
        /// Until the first operands of a block have come.
        const BLOCK: usize = 1000;
        /// Threads that a multiprocessor has registers for, whatever a tile asks for.
        const ALWAYS: usize = 256;
        let (steps, blocks) = (self.steps(way), self.blocks.div_ceil(multiprocessors.max(1)));
        let joining = if self.splits > 1 { START } else { 0 };
        let (tile, keys) = match way {
            Way::Tiles(tile) => (tile, tile.keys),
            Way::Pipeline(pipeline) => return START + pipeline.guess(blocks, steps) + joining,
            Way::Plain { .. } => return 0,
        };
        let rounds = blocks.div_ceil(tile.residents.max(ALWAYS / tile.threads()));
        let warps = blocks * tile.threads().div_ceil(128);
        // Warpgroups read no operands themselves. These are for heads of 64.
        let sizes = tile.size + tile.v_size;
        let [multiply, wait] = if tile.grouped { [4, 6] } else { [6, 12] }.map(|cycles| cycles * sizes / 128);
        let busy = warps * (steps * (multiply * keys + 100) + WARP);
        let joins = if tile.key_warps > 1 { 400 } else { 0 } + joining;
        START + rounds * (BLOCK + steps * (wait * keys + 250)) + busy + joins
    }

    /// For reports.
    pub fn describe(&self, way: Way) -> String {
        let kernel = match way {
            Way::Tiles(tile) => tile.describe(),
            Way::Pipeline(pipeline) => pipeline.describe(),
            Way::Plain { .. } => "ordinary cores".into(),
        };
        match self.splits {
            1 => kernel,
            parts => format!("{kernel}, {parts} parts of the keys"),
        }
    }
}

impl Operands<'_> {
    /// The sizes of keys and of values.
    pub fn sizes(&self) -> [usize; 2] {
        [self.q.shape[3], self.v.shape[3]]
    }

    /// How the work is cut into blocks on so many multiprocessors.
    pub fn share(&self, way: Way, causal: bool, multiprocessors: usize) -> Share {
        let (batch, shared, keys) = (self.q.shape[0], self.k.shape[1], self.k.shape[2]);
        let (heads, queries) = (self.q.shape[1], self.q.shape[2]);
        let head_rows = heads / shared.max(1) * queries;
        let (threads, tile_rows, chunks) = match way {
            Way::Tiles(tile) => (tile.threads(), tile.rows(), 1),
            Way::Pipeline(pipeline) => (pipeline.threads(), pipeline.rows(), 1),
            Way::Plain { columns } => (PLAIN_THREADS, PLAIN_TILE, self.v.shape[3].div_ceil(columns)),
        };
        let tiles = head_rows.div_ceil(tile_rows);
        let blocks = batch * shared * tiles * chunks;
        let seen = if causal { keys.min(queries) } else { keys };
        let (splits, span) = cut(seen, way.tile_keys(), blocks, multiprocessors);
        Share {
            blocks: blocks * splits,
            threads,
            splits,
            rows: batch * heads * queries,
            tiles,
            span,
        }
    }

    /// The ways, what looks fastest first.
    pub fn ranked(&self, mut ways: Vec<Way>, causal: bool, multiprocessors: usize) -> Vec<Way> {
        ways.sort_by_key(|&way| self.share(way, causal, multiprocessors).guess(way, multiprocessors));
        ways
    }

    /// `Attend` of `attention.cu` from `group` up to `splits`.
    pub fn words(&self, share: &Share) -> Vec<i64> {
        let (shared, keys) = (self.k.shape[1], self.k.shape[2]);
        let group = self.q.shape[1] / shared.max(1);
        let [size, v_size] = self.sizes();
        let none = [0; 4];
        let mask = self.mask.map_or(&none[..], |mask| &mask.strides);
        let strides = [&self.q.strides, &self.k.strides, &self.v.strides, mask, &self.y.strides];
        let (extents, counts) = ([group, keys, size, v_size], [share.span, share.rows]);
        let numbers = extents.iter().chain(strides.into_iter().flatten()).chain(&counts);
        let numbers = numbers.map(|&word| word as i64);
        let divisors = [shared, self.q.shape[2], share.tiles, share.splits].map(divisor);
        numbers.chain(divisors.into_iter().flatten()).collect()
    }

    /// Whether 16 bytes of each row can be moved at once, where the operands begin at addresses that allow it.
    pub fn even(&self, way: Way) -> bool {
        let pack = PACK_BYTES / DType::Float16.size();
        let lies = |operand: &ConcreteView| {
            let (outer, last) = (&operand.strides[..3], operand.strides[3]);
            last == 1 && operand.shape[3].is_multiple_of(pack) && outer.iter().all(|stride| stride.is_multiple_of(pack))
        };
        !matches!(way, Way::Plain { .. }) && [self.q, self.k, self.v, self.y].into_iter().all(lies)
    }
}

/// Parts that the keys are cut into, and keys of each: with few queries there are too few blocks for the GPU.
fn cut(keys: usize, tile: usize, blocks: usize, multiprocessors: usize) -> (usize, usize) {
    let tiles = keys.div_ceil(tile).max(1);
    let wanted = (multiprocessors / blocks.max(1)).min(tiles / PART_TILES);
    if tiles < CUT_TILES || wanted < 2 {
        return (1, tiles * tile);
    }
    let each = tiles.div_ceil(wanted);
    (tiles.div_ceil(each), each * tile)
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: ((i32, i32), usize) = ((9, 0), 232_448);

    fn ways(dtype: DType, sizes: [usize; 2], (capability, shared): ((i32, i32), usize)) -> Vec<Way> {
        Way::all(dtype, sizes, capability, shared)
    }

    fn dense(shape: [usize; 4]) -> ConcreteView {
        let [_, h, s, d] = shape;
        ConcreteView {
            shape: shape.to_vec(),
            strides: vec![h * s * d, s * d, d, 1],
            offset: 0,
        }
    }

    fn best(batch: usize, queries: usize, keys: usize) -> (usize, usize) {
        let (q, k) = (dense([batch, 12, queries, 64]), dense([batch, 12, keys, 64]));
        let operands = Operands {
            q: &q,
            k: &k,
            v: &k,
            mask: None,
            y: &q,
        };
        match operands.ranked(ways(DType::Float16, [64, 64], H200), false, 132)[0] {
            Way::Tiles(tile) => (tile.rows(), tile.key_warps),
            _ => (0, 0),
        }
    }

    #[test]
    fn half_precision_goes_to_tensor_cores() {
        let tiled = |dtype, sizes, gpu| matches!(ways(dtype, sizes, gpu)[0], Way::Tiles(_));
        let turing = ((7, 5), 65_536);
        assert!(tiled(DType::Float16, [64, 64], H200) && tiled(DType::BFloat16, [33, 80], H200));
        assert!(tiled(DType::Float16, [64, 64], turing) && !tiled(DType::BFloat16, [64, 64], turing));
        assert_eq!(ways(DType::Float16, [257, 64], H200), [Way::Plain { columns: 64 }]);
        assert_eq!(ways(DType::Float32, [64, 80], H200), [Way::Plain { columns: 128 }]);
        assert_eq!(ways(DType::Float64, [64, 80], H200), [Way::Plain { columns: 64 }]);
    }

    #[test]
    fn few_rows_are_of_more_warps() {
        assert_eq!(best(1, 128, 128), (16, 4));
        assert_eq!(best(1, 197, 197), (16, 4));
        assert_eq!(best(8, 1, 300), (16, 4));
        assert!(best(32, 128, 128).0 >= 64 && best(8, 1024, 1024).0 >= 64);
    }

    #[test]
    fn few_queries_of_many_keys_are_cut() {
        assert_eq!(cut(128, 64, 24, 132), (1, 128));
        assert_eq!(cut(1024, 64, 12, 132), (8, 128));
        assert_eq!(cut(1000, 64, 12, 132), (8, 128));
        assert_eq!(cut(1024, 64, 100, 132), (1, 1024));
        assert_eq!(cut(0, 64, 12, 132), (1, 64));
        for keys in (512..5000).step_by(37) {
            let (parts, span) = cut(keys, 64, 12, 132);
            assert!(parts * span >= keys && (parts - 1) * span < keys, "{keys}");
        }
    }

    #[test]
    fn heads_that_share_keys_are_rows_of_one_matrix() {
        let (q, k, y) = (dense([2, 8, 3, 64]), dense([2, 2, 100, 64]), dense([2, 8, 3, 64]));
        let operands = Operands {
            q: &q,
            k: &k,
            v: &k,
            mask: None,
            y: &y,
        };
        let tiles = operands.ranked(ways(DType::Float16, operands.sizes(), H200), false, 132)[0];
        let share = operands.share(tiles, false, 132);
        // Four heads of three queries are twelve rows: a warp's.
        assert_eq!((share.blocks, share.threads, share.tiles, share.rows), (4, 128, 1, 48));
        let words = operands.words(&share);
        assert_eq!((words.len(), &words[..4]), (38, &[4, 100, 64, 64][..]));
        assert_eq!(
            (words[24], words[25], words[26], words[29]),
            (share.span as i64, 48, 2, 3)
        );
        assert_eq!(share.workspace(64, DType::Float16), 0);
        assert!(operands.even(tiles) && !operands.even(Way::Plain { columns: 64 }));
    }

    #[test]
    fn odd_rows_are_not_even() {
        let (q, k) = (dense([2, 2, 5, 64]), dense([2, 2, 7, 64]));
        let mut gaps = dense([2, 2, 5, 64]);
        gaps.strides[2] = 68;
        let tiles = ways(DType::Float16, [64, 64], H200)[0];
        let even = |q: &ConcreteView, v: &ConcreteView| {
            let operands = Operands {
                q,
                k: &k,
                v,
                mask: None,
                y: q,
            };
            operands.even(tiles)
        };
        assert!(even(&q, &k) && !even(&gaps, &k) && !even(&q, &dense([2, 2, 7, 33])));
        let turned = ConcreteView {
            strides: vec![64, 64, 1, 7],
            ..dense([2, 2, 7, 64])
        };
        assert!(!even(&q, &turned));
        let one = settled(ConcreteView {
            strides: vec![3, 64, 64, 1],
            ..dense([1, 2, 1, 64])
        });
        assert_eq!(one.strides, [0, 64, 0, 1]);
    }
}
