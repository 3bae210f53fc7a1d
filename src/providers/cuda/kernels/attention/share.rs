//! Which kernel runs an attention, and what each of its blocks does.

use super::seen::Strided;
use crate::network::dtype::DType;

/// Bytes that the tiled kernel moves at once.
pub const PACK_BYTES: usize = 16;
/// Rows of a warp of the tiled kernel, and the most of a block.
const WARP_ROWS: usize = 16;
const MOST_ROWS: usize = 64;
/// Rows and keys of a tile of the plain kernel, and its threads.
const PLAIN_TILE: usize = 32;
const PLAIN_THREADS: usize = 128;
/// The largest head that tiles are made for.
const MOST_SIZE: usize = 256;
/// A part of the keys is as many tiles at least, and fewer tiles in all are not cut into parts: joining costs a launch.
const PART_TILES: usize = 2;
const CUT_TILES: usize = 8;

/// A kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// On tensor cores, for heads of up to these sizes, with so many keys in a tile.
    Tiles {
        /// Of queries and keys.
        size: usize,
        /// Of values.
        v_size: usize,
        /// Keys of a tile.
        keys: usize,
    },
    /// On the ordinary cores, so many columns of the values at a time.
    Plain {
        /// Those columns.
        columns: usize,
    },
}

impl Way {
    /// The kernel for heads of these sizes, of keys and of values.
    pub fn of(dtype: DType, sizes: [usize; 2], capability: (i32, i32), shared_bytes: usize) -> Self {
        let plain = match dtype {
            DType::Float64 => 64,
            _ if sizes[1] <= 64 => 64,
            _ => 128,
        };
        let has_tiles = match dtype {
            DType::Float16 => true,
            DType::BFloat16 => capability >= (8, 0),
            _ => false,
        };
        if has_tiles && sizes.iter().all(|&size| (1..=MOST_SIZE).contains(&size)) {
            let [size, v_size] = sizes.map(|size| size.next_multiple_of(16));
            let fits = |&(keys, times): &(usize, usize)| {
                let way = Self::Tiles { size, v_size, keys };
                // Results of larger heads leave no registers for the scores of many keys.
                (keys < 64 || size.max(v_size) <= 128) && times * way.shared_bytes() <= shared_bytes
            };
            // Two blocks on a multiprocessor hide what each waits for.
            if let Some((keys, _)) = [(64, 2), (32, 1), (16, 1)].into_iter().find(fits) {
                return Self::Tiles { size, v_size, keys };
            }
        }
        Self::Plain { columns: plain }
    }

    /// Shared memory that a launch asks for, whatever the number of its warps.
    pub fn shared_bytes(self) -> usize {
        match self {
            Self::Tiles { size, v_size, keys } => {
                2 * (MOST_ROWS * (size.max(v_size) + 8) + 2 * keys * (size + 8 + v_size + 8))
            }
            Self::Plain { .. } => 0,
        }
    }

    fn tile_keys(self) -> usize {
        match self {
            Self::Tiles { keys, .. } => keys,
            Self::Plain { .. } => PLAIN_TILE,
        }
    }
}

/// An operand with no stride along dimensions of 1: those do not matter, or are broadcast.
pub fn settled(mut strided: Strided) -> Strided {
    let ones = strided.shape.iter().zip(&mut strided.strides);
    ones.filter(|(extent, _)| **extent == 1)
        .for_each(|(_, stride)| *stride = 0);
    strided
}

/// The operands of four dimensions each.
pub struct Operands<'a> {
    /// Queries.
    pub q: &'a Strided,
    /// Keys.
    pub k: &'a Strided,
    /// Values.
    pub v: &'a Strided,
    /// What is added to scores, or which count.
    pub mask: Option<&'a Strided>,
    /// The result.
    pub y: &'a Strided,
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

    /// For reports.
    pub fn describe(&self, way: Way) -> String {
        let kernel = match way {
            Way::Tiles { size, v_size, keys } => format!("tensor cores, {size} x {v_size}, {keys} keys a tile"),
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
            Way::Tiles { .. } => {
                let warps = head_rows.div_ceil(WARP_ROWS).clamp(1, MOST_ROWS / WARP_ROWS);
                (warps * 32, warps * WARP_ROWS, 1)
            }
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

    /// `Attend` of `attention.cu` from `shared` up to `rows`.
    pub fn words(&self, share: &Share) -> Vec<i64> {
        let (shared, keys) = (self.k.shape[1], self.k.shape[2]);
        let group = self.q.shape[1] / shared.max(1);
        let [size, v_size] = self.sizes();
        let none = [0; 4];
        let mask = self.mask.map_or(&none[..], |mask| &mask.strides);
        let extents = [shared, group, self.q.shape[2], keys, size, v_size];
        let strides = [&self.q.strides, &self.k.strides, &self.v.strides, mask, &self.y.strides];
        let last = [share.tiles, share.splits, share.span, share.rows];
        let words = extents.iter().chain(strides.into_iter().flatten()).chain(&last);
        words.map(|&word| word as i64).collect()
    }

    /// Whether 16 bytes of each row can be moved at once, where the operands begin at addresses that allow it.
    pub fn even(&self, way: Way) -> bool {
        let pack = PACK_BYTES / DType::Float16.size();
        let lies = |operand: &Strided| {
            let (outer, last) = (&operand.strides[..3], operand.strides[3]);
            last == 1 && operand.shape[3].is_multiple_of(pack) && outer.iter().all(|stride| stride.is_multiple_of(pack))
        };
        matches!(way, Way::Tiles { .. }) && [self.q, self.k, self.v, self.y].into_iter().all(lies)
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

    fn way(dtype: DType, sizes: [usize; 2], (capability, shared): ((i32, i32), usize)) -> Way {
        Way::of(dtype, sizes, capability, shared)
    }

    fn dense(shape: [usize; 4]) -> Strided {
        let [_, h, s, d] = shape;
        Strided {
            shape: shape.to_vec(),
            strides: vec![h * s * d, s * d, d, 1],
            offset: 0,
        }
    }

    #[test]
    fn half_precision_goes_to_tensor_cores() {
        let tiles = |size, v_size, keys| Way::Tiles { size, v_size, keys };
        assert_eq!(way(DType::Float16, [64, 64], H200), tiles(64, 64, 64));
        assert_eq!(way(DType::BFloat16, [33, 80], H200), tiles(48, 80, 64));
        assert_eq!(way(DType::Float16, [256, 256], H200), tiles(256, 256, 32));
        assert_eq!(way(DType::Float16, [257, 64], H200), Way::Plain { columns: 64 });
        assert_eq!(way(DType::Float32, [64, 80], H200), Way::Plain { columns: 128 });
        assert_eq!(way(DType::Float64, [64, 80], H200), Way::Plain { columns: 64 });
    }

    #[test]
    fn smaller_gpus_have_smaller_tiles() {
        let (ada, turing) = (((8, 9), 101_376), ((7, 5), 65_536));
        assert!(matches!(
            way(DType::Float16, [64, 64], ada),
            Way::Tiles { keys: 64, .. }
        ));
        assert!(matches!(
            way(DType::Float16, [128, 128], ada),
            Way::Tiles { keys: 32, .. }
        ));
        assert!(matches!(
            way(DType::Float16, [256, 256], ada),
            Way::Tiles { keys: 32, .. }
        ));
        assert!(matches!(
            way(DType::Float16, [64, 64], turing),
            Way::Tiles { keys: 32, .. }
        ));
        assert!(matches!(way(DType::Float16, [256, 256], turing), Way::Plain { .. }));
        assert!(matches!(way(DType::BFloat16, [64, 64], turing), Way::Plain { .. }));
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
        let tiles = way(DType::Float16, operands.sizes(), H200);
        let share = operands.share(tiles, false, 132);
        // Four heads of three queries are twelve rows: one warp.
        assert_eq!((share.blocks, share.threads, share.tiles, share.rows), (4, 32, 1, 48));
        let words = operands.words(&share);
        assert_eq!((words.len(), &words[..6]), (30, &[2, 4, 3, 100, 64, 64][..]));
        assert_eq!(share.workspace(64, DType::Float16), 0);
        assert!(operands.even(tiles) && !operands.even(Way::Plain { columns: 64 }));
    }

    #[test]
    fn odd_rows_are_not_even() {
        let (q, k) = (dense([2, 2, 5, 64]), dense([2, 2, 7, 64]));
        let mut gaps = dense([2, 2, 5, 64]);
        gaps.strides[2] = 68;
        let tiles = way(DType::Float16, [64, 64], H200);
        let even = |q: &Strided, v: &Strided| {
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
        let turned = Strided {
            strides: vec![64, 64, 1, 7],
            ..dense([2, 2, 7, 64])
        };
        assert!(!even(&q, &turned));
        let one = settled(Strided {
            strides: vec![3, 64, 64, 1],
            ..dense([1, 2, 1, 64])
        });
        assert_eq!(one.strides, [0, 64, 0, 1]);
    }
}
