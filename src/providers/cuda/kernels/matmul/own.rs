//! Products on kernels of ours: on tensor cores for 16-bit floats, and for every type on plain arithmetic.

use super::problem::Problem;
use crate::error::{Error, Result};
use crate::network::dtype::DType;
use crate::providers::cuda::device::{Device, Grid, HOPPER};
use crate::providers::cuda::kernels::Gpu;
use crate::providers::cuda::kernels::launch::{Launches, fields};

const PLAIN: &str = include_str!("../../../../../kernels/matmul.cu");
/// What is behind it in sources for tensor cores.
const TENSOR: &str = concat!(
    include_str!("../../../../../kernels/fragments.cuh"),
    include_str!("../../../../../kernels/cluster.cuh"),
    include_str!("../../../../../kernels/products.cuh"),
    include_str!("../../../../../kernels/gemm.cu")
);
/// Axes of a batch that `matmul.cu` walks.
const AXES: usize = 6;
/// Rows and columns of the result that a block of `multiply` gives, and its threads.
const SIDE: usize = 64;
const SIDE_THREADS: u32 = 256;
/// From this compute capability on there are the instructions that `gemm` is made of.
const AMPERE: (i32, i32) = (8, 0);
/// The tiles that are tried for one product.
pub const TILES: u32 = 6;

/// What a kernel is written for.
#[derive(Clone)]
pub struct Written {
    /// The `Tail`, with `T0`, `Y0`, `X1`, ...
    pub text: String,
    /// How many operands the tail reads.
    pub operands: usize,
    /// How many results it stores beside the first; none where there are several products.
    pub others: usize,
    /// Inputs of the kernel beside them.
    pub unused: usize,
    /// Whether nobody writes right operands any more.
    pub held: bool,
    /// How many products there are, each with a right operand, operands of a tail and a result of its own. Their results
    /// come first among the parameters, then the left operand, the right ones, and the operands of each tail.
    pub products: usize,
}

impl Written {
    fn each(&self, one: impl Fn(usize) -> String) -> Vec<String> {
        (0..self.products).map(one).collect()
    }

    /// The parameters of an entry point, before those of the kernel.
    pub fn parameters(&self) -> Vec<String> {
        let declared =
            |product: usize| (1..=self.operands).map(move |number| format!("const X{number}* x{number}_{product}"));
        let mut parameters = self.each(|product| format!("Y0* y{product}"));
        parameters.extend((1..=self.others).map(|number| format!("Z{number}* z{number}")));
        parameters.push("const T0* a".into());
        parameters.extend(self.each(|product| format!("const T0* b{product}")));
        parameters.extend((0..self.products).flat_map(declared));
        parameters.extend((0..self.unused).map(|number| format!("const void* unused{number}")));
        parameters
    }

    /// The tail of a product.
    pub fn tail(&self, product: usize) -> String {
        let read = (1..=self.operands).map(|number| format!("x{number}_{product}"));
        let stored = (1..=self.others).map(|number| format!("z{number}"));
        format!("Tail{{{}}}", read.chain(stored).collect::<Vec<_>>().join(", "))
    }

    /// An entry point that begins so, and whose body calls a product with `y, a, b, tail, s`; `blockIdx.y` says which, where
    /// there are several.
    fn entry(&self, attributes: &str, first: &str, body: &str) -> String {
        let other = |product: usize| {
            let tail = self.tail(product);
            format!("    if (blockIdx.y == {product}) {{ y = y{product}; b = b{product}; tail = {tail}; }}\n")
        };
        let others: String = (1..self.products).map(other).collect();
        let mut parameters = self.parameters();
        parameters.push("const Product s".into());
        format!(
            "{}extern \"C\" __global__ void {attributes} product({}) {{\n    {first}Y0* y = y0;\n    \
             const T0* b = b0;\n    Tail tail = {};\n{others}    {body}(y, a, b, tail, s);\n}}\n",
            self.text,
            parameters.join(", "),
            self.tail(0),
        )
    }
}

/// `Product` of `matmul.cu`.
pub fn numbers(problem: &Problem) -> Result<Vec<i32>> {
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
pub fn plain(gpu: &Gpu, problem: &Problem, written: &Written) -> Result<Launches> {
    let blocks = problem.batches() * problem.m.div_ceil(SIDE) * problem.n.div_ceil(SIDE);
    let entry = written.entry(
        &format!("__launch_bounds__({SIDE_THREADS})"),
        "after_previous();\n    ",
        "multiply",
    );
    let function = gpu.compiler.entry(&format!("{PLAIN}{entry}"), "product", 0);
    let grid = Grid::over(blocks * SIDE_THREADS as usize, SIDE_THREADS)?;
    Ok(Launches::one(function, grid, numbers(problem)?, "tiles of 64 x 64"))
}

/// Whether `gemm` runs there.
pub fn has_tensor_cores(device: &Device, dtype: DType) -> bool {
    device.capability >= AMPERE && matches!(dtype, DType::Float16 | DType::BFloat16)
}

/// How a block of `gemm` works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    /// Rows and columns of the result, and terms of its sums at a time.
    pub size: [usize; 3],
    /// Warps along rows and columns.
    pub warps: [usize; 2],
    /// How many such steps are on their way at once.
    pub stages: usize,
    /// How many blocks share the sums.
    split: usize,
}

/// The size of a tile, and its warps.
pub type Size = ([usize; 3], [usize; 2]);

const SIZES: [Size; 7] = [
    ([128, 128, 32], [2, 4]),
    ([128, 64, 64], [4, 2]),
    ([64, 64, 64], [2, 4]),
    ([64, 64, 64], [2, 2]),
    ([64, 32, 64], [2, 2]),
    ([32, 32, 64], [2, 2]),
    ([16, 64, 64], [1, 4]),
];
/// Many where a block has a processor to itself, few where others hide what it waits for.
const STAGES: [usize; 2] = [4, 8];
const SPLITS: [usize; 4] = [1, 2, 4, 8];

impl Tile {
    /// Every tile that a GPU has room for.
    fn all(device: &Device) -> Vec<Self> {
        let clusters = device.capability >= HOPPER;
        let fits = |tile: &Self| tile.shared_bytes() <= device.shared_bytes && (tile.split == 1 || clusters);
        Self::every().filter(fits).collect()
    }

    fn every() -> impl Iterator<Item = Self> {
        let splits = |tile: Self| SPLITS.into_iter().map(move |split| Self { split, ..tile });
        Self::of(&SIZES).flat_map(splits)
    }

    /// Those of some sizes that share no sums.
    pub fn of(sizes: &'static [Size]) -> impl Iterator<Item = Self> {
        let stages = |&(size, warps): &'static Size| {
            let of = move |stages| Self {
                size,
                warps,
                stages,
                split: 1,
            };
            STAGES.into_iter().map(of)
        };
        sizes.iter().flat_map(stages)
    }

    /// Threads of a block.
    pub fn threads(&self) -> usize {
        32 * self.warps[0] * self.warps[1]
    }

    /// Bytes of the operands of a step.
    fn step_bytes(&self) -> usize {
        let [m, n, k] = self.size;
        2 * k * (m + n)
    }

    /// Bytes of shared memory: operands on their way, and then the sums, whose rows are eight floats longer; behind them what
    /// blocks of a cluster send one another.
    pub fn shared_bytes(&self) -> usize {
        let [m, n, _] = self.size;
        let sent = if self.split > 1 { m * n * size_of::<f32>() } else { 0 };
        (self.stages * self.step_bytes()).max(m * (n + 8) * size_of::<f32>()) + sent
    }

    /// Blocks of a product that do not share sums.
    fn blocks(&self, problem: &Problem) -> usize {
        problem.batches() * problem.m.div_ceil(self.size[0]) * problem.n.div_ceil(self.size[1])
    }

    /// About how many nanoseconds a step takes where so many blocks are together on a processor.
    fn step(&self, together: usize) -> f64 {
        /// Multiplications of a processor in a nanosecond: of a warp that waits for what it reads, and at most.
        const OF_WARP: f64 = 250.0;
        const OF_ALL: f64 = 1_700.0;
        /// Bytes in a nanosecond that a processor reads of its shared memory, and of the cache.
        const SHARED: f64 = 218.0;
        const CACHE: f64 = 50.0;
        /// Until what is asked for has come, and to wait for one another.
        const LATENCY: f64 = 1_500.0;
        const BARRIER: f64 = 40.0;
        let [m, n, k] = self.size;
        let [down, across] = self.warps;
        let warps = (down * across * together) as f64;
        let work = (m * n * k * together) as f64 / (OF_WARP * warps).min(OF_ALL);
        let read = 2.0 * warps * (k * (m / down + n / across)) as f64 / SHARED;
        let fetched = (self.step_bytes() * together) as f64 / CACHE;
        let awaited = LATENCY / (self.stages - 1) as f64;
        work.max(read).max(fetched).max(awaited) + BARRIER
    }

    /// About how many nanoseconds `count` such products take: good enough to tell which tiles are worth timing.
    fn guess(&self, problem: &Problem, count: usize, processors: usize) -> f64 {
        /// Bytes of the cache of all processors in a nanosecond.
        const BANDWIDTH: f64 = 5_000.0;
        /// The start of a block until its first operands have come, and the exchange of sums.
        const START: f64 = 2_400.0;
        const EXCHANGE: f64 = 700.0;
        /// Shared memory of a processor, and its threads.
        const SHARED: usize = 224 << 10;
        const THREADS: usize = 2048;
        let blocks = count * self.blocks(problem) * self.split;
        let room = (SHARED / self.shared_bytes()).min(THREADS / self.threads()).max(1);
        let together = blocks.div_ceil(processors).min(room);
        let waves = blocks.div_ceil(processors * room);
        let steps = problem.k.div_ceil(self.size[2]).div_ceil(self.split);
        let exchange = if self.split > 1 { EXCHANGE } else { 0.0 };
        let block = START + steps as f64 * self.step(together) + exchange;
        let bytes = (blocks * steps * self.step_bytes()) as f64;
        // Of two that take as long, the one that reads less.
        (waves as f64 * block).max(START + bytes / BANDWIDTH) + bytes / BANDWIDTH / 16.0
    }
}

/// Tiles, what looks best for `count` products at once first; at most two ways to run each size, so that a few differ.
pub fn ranked(mut tiles: Vec<Tile>, problem: &Problem, count: usize, processors: usize) -> Vec<Tile> {
    const WAYS: usize = 2;
    let guess = |tile: &Tile| tile.guess(problem, count, processors);
    tiles.sort_by(|a, b| guess(a).total_cmp(&guess(b)));
    let mut kept: Vec<Tile> = vec![];
    for tile in tiles {
        let alike = |other: &&Tile| (other.size, other.warps) == (tile.size, tile.warps);
        if kept.iter().filter(alike).count() < WAYS {
            kept.push(tile);
        }
    }
    kept
}

/// A source with `gemm` in front of this.
pub fn on_tensor_cores(behind: &str) -> String {
    format!("{PLAIN}{TENSOR}{behind}")
}

/// The product on tensor cores, with the `number`th of the tiles that look best for it; several of the same shapes and the
/// same left operand at once, where it is written for those.
///
/// # Errors
/// If it is too large for one kernel.
pub fn tensor(gpu: &Gpu, problem: &Problem, written: &Written, number: u32) -> Result<Launches> {
    let processors = gpu.device.multiprocessors as usize;
    let tiles = ranked(Tile::all(&gpu.device), problem, written.products, processors);
    let tile = tiles
        .get(number as usize)
        .or(tiles.last())
        .ok_or_else(|| Error::unsupported("the GPU has too little shared memory"))?;
    let Tile {
        size: [m, n, k],
        warps: [down, across],
        stages,
        split,
    } = *tile;
    let [ta, tb] = problem.transposed;
    let held = written.held;
    let body = format!("gemm<Tile<{m}, {n}, {k}, {down}, {across}, {stages}, {split}, {ta}, {tb}>, {held}>");
    let cluster = match split {
        1 => String::new(),
        _ => format!("__cluster_dims__(1, 1, {split}) "),
    };
    let threads = tile.threads();
    let entry = written.entry(&format!("{cluster}__launch_bounds__({threads})"), "", &body);
    let source = on_tensor_cores(&entry);
    let function = gpu.compiler.entry(&source, "product", tile.shared_bytes());
    let mut grid = Grid::over(tile.blocks(problem) * threads, threads as u32)?;
    grid.blocks[1] = written.products as u32;
    grid.blocks[2] = split as u32;
    let how = match written.products {
        1 => format!("tensor cores, tiles of {m} x {n}, sums in {split}"),
        many => format!("tensor cores, {many} products at once, tiles of {m} x {n}, sums in {split}"),
    };
    Ok(Launches::one(function, grid, numbers(problem)?, &how))
}

/// The product on tensor cores, or on plain arithmetic where they can't do it.
///
/// # Errors
/// If it is too large for one kernel.
pub fn any(gpu: &Gpu, problem: &Problem, written: &Written, number: u32) -> Result<Launches> {
    tensor(gpu, problem, written, number).or_else(|_| plain(gpu, problem, written))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(m: usize, k: usize, n: usize, count: usize) -> Tile {
        let problem = Problem::new([false; 2], &[m, k], &[k, n]);
        let fits = |tile: &Tile| tile.shared_bytes() <= 227 << 10;
        ranked(Tile::every().filter(fits).collect(), &problem, count, 132)[0]
    }

    #[test]
    fn small_products_are_split_and_large_ones_take_large_tiles() {
        let small = best(128, 3072, 768, 1);
        assert!(small.split > 1 && small.stages == 8);
        let large = best(4096, 768, 3072, 1);
        assert_eq!((large.size[0], large.split), (128, 1));
        assert_eq!(best(1, 768, 768, 1).size[0], 16);
        assert_eq!(best(128, 768, 768, 3).size[..2], [128, 128]);
    }

    #[test]
    fn every_tile_is_fetched_by_all_of_its_threads() {
        for tile in Tile::every() {
            let [m, n, k] = tile.size;
            let [down, across] = tile.warps;
            assert!(
                (m / down).is_multiple_of(16) && (n / across).is_multiple_of(16),
                "{tile:?}"
            );
            assert!((m * k / 8).is_multiple_of(tile.threads()), "{tile:?}");
            assert!((n * k / 8).is_multiple_of(tile.threads()), "{tile:?}");
        }
    }

    #[test]
    fn several_products_are_one_kernel() {
        let written = Written {
            text: String::new(),
            operands: 1,
            others: 0,
            unused: 1,
            products: 2,
            held: false,
        };
        let entry = written.entry("", "", "gemm");
        let parameters = "product(Y0* y0, Y0* y1, const T0* a, const T0* b0, const T0* b1, const X1* x1_0, const X1* x1_1, \
                          const void* unused0, const Product s)";
        assert!(entry.contains(parameters), "{entry}");
        assert!(
            entry.contains("Tail tail = Tail{x1_0};\n    if (blockIdx.y == 1) { y = y1;"),
            "{entry}"
        );
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
