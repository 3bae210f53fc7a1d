//! Products on kernels of ours: on tensor cores for 16-bit floats, and for every type on plain arithmetic.

use super::problem::Problem;
use crate::error::{Error, Result};
use crate::network::dtype::DType;
use crate::providers::cuda::device::{Device, Grid};
use crate::providers::cuda::kernels::Gpu;
use crate::providers::cuda::kernels::launch::{Launch, fields};

const PLAIN: &str = include_str!("../../../../../kernels/matmul.cu");
const TENSOR: &str = include_str!("../../../../../kernels/gemm.cu");
/// Axes of a batch that `matmul.cu` walks.
const AXES: usize = 6;
/// Rows and columns of the result that a block of `multiply` gives, and its threads.
const SIDE: usize = 64;
const SIDE_THREADS: u32 = 256;
/// Threads of a block of `gemm`.
const THREADS: u32 = 128;
/// From this compute capability on there are the instructions that `gemm` is made of.
const AMPERE: (i32, i32) = (8, 0);
/// From this one on blocks come in clusters.
const HOPPER: (i32, i32) = (9, 0);
/// The tiles that are tried for one product.
pub const TILES: u32 = 4;

/// What a kernel is written for.
pub struct Written {
    /// The `Tail`, with `T0`, `Y0`, `X1`, ...
    pub text: String,
    /// How many operands the tail reads.
    pub operands: usize,
    /// Inputs of the kernel beside them.
    pub unused: usize,
}

impl Written {
    /// An entry point whose body calls a product with `y, a, b, tail, s`.
    fn entry(&self, attributes: &str, body: &str) -> String {
        let operands = (1..=self.operands).map(|number| format!(", const X{number}* x{number}"));
        let unused = (0..self.unused).map(|number| format!(", const void* unused{number}"));
        let parameters: String = operands.chain(unused).collect();
        let read: Vec<String> = (1..=self.operands).map(|number| format!("x{number}")).collect();
        format!(
            "{}extern \"C\" __global__ void {attributes} product(Y0* y, const T0* a, const T0* b{parameters}, const Product s) \
             {{\n    const Tail tail = {{{}}};\n    {body}(y, a, b, tail, s);\n}}\n",
            self.text,
            read.join(", ")
        )
    }
}

/// `Product` of `matmul.cu`.
fn numbers(problem: &Problem) -> Result<Vec<i32>> {
    let missing = AXES.checked_sub(problem.batch.len()).ok_or_else(|| {
        Error::unsupported("too many axes of a batch are broadcast one by one")
            .expected(format!("at most {AXES}"))
            .got(problem.batch.len().to_string())
    })?;
    let [left, right] = problem.strides();
    let mut words = vec![problem.m, problem.n, problem.k];
    words.extend(left.into_iter().chain(right));
    for (list, filler) in [(&problem.batch, 1), (&problem.steps[0], 0), (&problem.steps[1], 0)] {
        words.extend(std::iter::repeat_n(filler, missing));
        words.extend(list);
    }
    fields(words.into_iter().map(|word| word as i64))
}

/// The product on plain arithmetic.
///
/// # Errors
/// If it is too large for one kernel.
pub fn plain(gpu: &Gpu, problem: &Problem, written: &Written) -> Result<Launch> {
    let blocks = problem.batches() * problem.m.div_ceil(SIDE) * problem.n.div_ceil(SIDE);
    let entry = written.entry(&format!("__launch_bounds__({SIDE_THREADS})"), "multiply");
    let function = gpu.compiler.function(&format!("{PLAIN}{entry}"), "product", 0)?;
    let grid = Grid::over(blocks * SIDE_THREADS as usize, SIDE_THREADS)?;
    Ok(Launch::new(function, grid, numbers(problem)?, "tiles of 64 x 64"))
}

/// Whether `gemm` runs there.
pub fn has_tensor_cores(device: &Device, dtype: DType) -> bool {
    device.capability >= AMPERE && matches!(dtype, DType::Float16 | DType::BFloat16)
}

/// How a block of `gemm` works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tile {
    /// Rows and columns of the result, and terms of its sums at a time.
    size: [usize; 3],
    /// Warps along rows and columns; four in all.
    warps: [usize; 2],
    /// How many blocks share the sums.
    split: usize,
}

/// Terms that are on their way at once.
const STAGES: usize = 4;
const SIZES: [([usize; 3], [usize; 2]); 6] = [
    ([128, 128, 32], [2, 2]),
    ([128, 64, 32], [2, 2]),
    ([64, 64, 64], [2, 2]),
    ([64, 32, 64], [2, 2]),
    ([32, 32, 64], [2, 2]),
    ([16, 64, 64], [1, 4]),
];
const SPLITS: [usize; 4] = [1, 2, 4, 8];

impl Tile {
    /// Every tile that a GPU has room for.
    fn all(device: &Device) -> Vec<Self> {
        let splits = |split: &usize| *split == 1 || device.capability >= HOPPER;
        let of = |(size, warps)| {
            let tile = move |split| Self { size, warps, split };
            SPLITS.into_iter().filter(splits).map(tile)
        };
        let fits = |tile: &Self| tile.shared_bytes() <= device.shared_bytes;
        SIZES.into_iter().flat_map(of).filter(fits).collect()
    }

    /// Bytes of shared memory: operands on their way, and then the sums, whose rows are eight floats longer.
    fn shared_bytes(&self) -> usize {
        let [m, n, k] = self.size;
        (STAGES * k * (m + n) * 2).max(m * (n + 8) * size_of::<f32>())
    }

    /// Blocks of a product that do not share sums.
    fn blocks(&self, problem: &Problem) -> usize {
        problem.batches() * problem.m.div_ceil(self.size[0]) * problem.n.div_ceil(self.size[1])
    }

    /// About how many nanoseconds a product takes: good enough to tell which tiles are worth timing.
    fn guess(&self, problem: &Problem, processors: usize) -> f64 {
        /// Multiplications of a processor in a nanosecond, and bytes of the cache of all of them.
        const MULTIPLICATIONS: f64 = 2_000.0;
        const BANDWIDTH: f64 = 4_000.0;
        /// What a step of a block takes at least, its start, and the exchange of sums.
        const STEP: f64 = 250.0;
        const START: f64 = 1_500.0;
        const EXCHANGE: f64 = 700.0;
        /// Shared memory of a processor.
        const SHARED: usize = 200 << 10;
        let [m, n, k] = self.size;
        let blocks = self.blocks(problem) * self.split;
        let room = (SHARED / self.shared_bytes()).clamp(1, 8);
        let together = blocks.div_ceil(processors).min(room);
        let waves = blocks.div_ceil(processors * room);
        let steps = problem.k.div_ceil(k).div_ceil(self.split);
        let work = (m * n * k) as f64 / MULTIPLICATIONS * together as f64;
        let exchange = if self.split > 1 { EXCHANGE } else { 0.0 };
        let block = START + steps as f64 * work.max(STEP) + exchange;
        let bytes = 2.0 * (blocks * steps * k * (m + n)) as f64;
        // Of two that take as long, the one that reads less.
        (waves as f64 * block).max(START + bytes / BANDWIDTH) + bytes / BANDWIDTH / 16.0
    }
}

/// Tiles, what looks best first; at most two ways to split each size, so that a few differ.
fn ranked(mut tiles: Vec<Tile>, problem: &Problem, processors: usize) -> Vec<Tile> {
    const WAYS: usize = 2;
    tiles.sort_by(|a, b| a.guess(problem, processors).total_cmp(&b.guess(problem, processors)));
    let mut kept: Vec<Tile> = vec![];
    for tile in tiles {
        if kept.iter().filter(|other| other.size == tile.size).count() < WAYS {
            kept.push(tile);
        }
    }
    kept
}

/// The product on tensor cores, with the `number`th of the tiles that look best for it.
///
/// # Errors
/// If it is too large for one kernel.
pub fn tensor(gpu: &Gpu, problem: &Problem, written: &Written, number: u32) -> Result<Launch> {
    let tiles = ranked(Tile::all(&gpu.device), problem, gpu.device.multiprocessors as usize);
    let tile = tiles
        .get(number as usize)
        .or(tiles.last())
        .ok_or_else(|| Error::unsupported("the GPU has too little shared memory"))?;
    let Tile {
        size: [m, n, k],
        warps: [down, across],
        split,
    } = *tile;
    let [ta, tb] = problem.transposed;
    let body = format!("gemm<Tile<{m}, {n}, {k}, {down}, {across}, {STAGES}, {split}, {ta}, {tb}>>");
    let cluster = match split {
        1 => String::new(),
        _ => format!("__cluster_dims__(1, 1, {split}) "),
    };
    let entry = written.entry(&format!("{cluster}__launch_bounds__({THREADS})"), &body);
    let source = format!("{PLAIN}{TENSOR}{entry}");
    let function = gpu.compiler.function(&source, "product", tile.shared_bytes())?;
    let mut grid = Grid::over(tile.blocks(problem) * THREADS as usize, THREADS)?;
    grid.blocks[2] = split as u32;
    let how = format!("tensor cores, tiles of {m} x {n}, sums in {split}");
    Ok(Launch::new(function, grid, numbers(problem)?, &how))
}

/// The product on tensor cores, or on plain arithmetic where they can't do it.
///
/// # Errors
/// If it is too large for one kernel.
pub fn any(gpu: &Gpu, problem: &Problem, written: &Written, number: u32) -> Result<Launch> {
    tensor(gpu, problem, written, number).or_else(|_| plain(gpu, problem, written))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_products_are_split_and_large_ones_take_large_tiles() {
        let best = |m: usize, k: usize, n: usize| {
            let problem = Problem::new([false; 2], &[m, k], &[k, n]);
            let tile = |&(size, warps): &([usize; 3], [usize; 2])| SPLITS.map(|split| Tile { size, warps, split });
            let tiles = SIZES.iter().flat_map(tile);
            ranked(tiles.collect(), &problem, 132)[0]
        };
        assert!(best(128, 3072, 768).split > 1);
        let large = best(4096, 768, 3072);
        assert_eq!((large.size[0], large.split), (128, 1));
        assert_eq!(best(1, 768, 768).size[0], 16);
    }

    #[test]
    fn numbers_fill_the_struct() {
        let problem = Problem::new([false, true], &[2, 1, 5, 7], &[1, 3, 4, 7]);
        let words = numbers(&problem).unwrap();
        assert_eq!(words.len(), 7 + 3 * AXES);
        assert_eq!(words[..7], [5, 4, 7, 7, 1, 1, 7]);
        assert_eq!(words[11..13], [2, 3]);
        assert_eq!((&words[17..19], &words[23..25]), (&[35, 0][..], &[0, 28][..]));
    }
}
