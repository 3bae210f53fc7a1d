//! Products of 16-bit floats on Hopper, by warpgroups: the kernel of `warpgroup.cu`, and what its other users need.

use super::behind::MOST_COLUMNS;
use super::own::{self, Written};
use super::problem::Problem;
use crate::error::{Error, Result};
use crate::network::dtype::DType;
use crate::plan::{Call, Instance, Launcher, Prepared};
use crate::providers::cuda::compile::compiled;
use crate::providers::cuda::device::{Boxes, Device, Grid, HOPPER};
use crate::providers::cuda::kernels::Gpu;
use crate::providers::cuda::kernels::launch::{KernelLaunch, Launches, fields};
use crate::providers::cuda::kernels::spare::Spare;
use std::sync::Arc;

/// The kernel.
pub const SOURCE: &str = concat!(
    include_str!("../../../../../kernels/groups.cuh"),
    include_str!("../../../../../kernels/copies.cuh"),
    include_str!("../../../../../kernels/warpgroup.cu")
);
/// So many shapes of tiles are tried for one product.
pub const SHAPES: u32 = 3;
/// What extents of rows are multiples of, in elements.
const EVEN: usize = Boxes::EVEN / 2;
/// Terms of a sum at a time: 128 bytes.
pub const DEPTH: usize = 64;
/// A product of few rows reads its weights and little else: tiles of fewer rows do that.
pub const FEWEST_ROWS: usize = 32;
/// Rows of a warpgroup, and of a warp.
const GROUP_ROWS: usize = 64;
const WARP_ROWS: usize = 16;
/// Warps that multiply.
const WARPS: usize = 8;
/// Threads of a block.
pub const THREADS: u32 = 384;
/// Bytes of a result of 16 bits.
const WIDTH: usize = 2;

/// `Shape` of `warpgroup.cu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Columns of a tile.
    pub columns: usize,
    stages: usize,
    /// Whether both warpgroups of a block have tiles of their own.
    alternate: bool,
}

const ALL: [Shape; 5] = [
    shape(256, 3, false),
    shape(192, 4, false),
    shape(128, 5, false),
    shape(192, 5, true),
    shape(64, 8, true),
];

const fn shape(columns: usize, stages: usize, alternate: bool) -> Shape {
    Shape {
        columns,
        stages,
        alternate,
    }
}

impl Shape {
    /// Rows of a tile.
    pub fn rows(&self) -> usize {
        if self.alternate { GROUP_ROWS } else { 2 * GROUP_ROWS }
    }

    /// Bytes of shared memory: tiles, results on their way, operands of columns, and what may be skipped in front. So many bytes has
    /// the widest number that is laid out for a result.
    pub fn shared_bytes(&self, width: usize) -> usize {
        const PATTERN: usize = 1024;
        /// Sums on their way, some columns at a time.
        const PART: usize = WARP_ROWS * 40 * 4;
        let tiles = self.stages * (self.rows() + self.columns) * DEPTH * 2;
        let results = WARP_ROWS * (self.columns * width + 16) + MOST_COLUMNS * self.columns * 2;
        tiles + WARPS * results.max(PART) + PATTERN
    }

    /// It as a type of the kernel; `turned` says that the right operand has a row for each column of the result.
    pub fn text(&self, turned: bool, width: usize) -> String {
        let Self {
            columns,
            stages,
            alternate,
        } = self;
        format!("Shape<{columns}, {stages}, {alternate}, {turned}, {width}>")
    }

    /// The same for results of 16 bits, whose right operand is turned and whose steps have so many lines of so many bytes.
    pub fn lined(&self, line: usize, lines: usize) -> String {
        let (columns, alternate) = (self.columns, self.alternate);
        let stages = self.stages * DEPTH * 2 / (line * lines);
        format!("Shape<{columns}, {stages}, {alternate}, true, {WIDTH}, {line}, 1, {lines}>")
    }

    /// Shared memory for results of 16 bits.
    pub fn bytes(&self) -> usize {
        self.shared_bytes(WIDTH)
    }

    /// For reports.
    pub fn describe(&self, many: &str) -> String {
        let turns = if self.alternate { ", by turns" } else { "" };
        format!("warpgroups, {many}tiles of {} x {}{turns}", self.rows(), self.columns)
    }

    /// How many tiles there are.
    pub fn tiles(&self, problem: &Problem, products: usize) -> usize {
        products * problem.batches() * problem.m.div_ceil(self.rows()) * problem.n.div_ceil(self.columns)
    }

    /// About how many cycles the products take: good enough to tell which shapes are worth timing.
    fn guess(&self, problem: &Problem, products: usize, processors: usize) -> f64 {
        /// Multiplications of a processor in a cycle, as far as its shared memory keeps up with them.
        const RATE: f64 = 2_048.0;
        /// The start of a block, and of a tile; and the cycles of 32 results.
        const START: f64 = 4_000.0;
        const TILE: f64 = 1_000.0;
        const RESULTS: f64 = 3.0;
        let area = self.rows() * self.columns;
        let busy = match area {
            ..8_192 => 0.5,
            8_192..16_384 => 0.75,
            16_384..32_768 => 0.88,
            _ => 0.95,
        };
        let depth = problem.k.next_multiple_of(DEPTH);
        let (sums, results) = (
            (area * depth) as f64 / (RATE * busy),
            area as f64 / 32.0 * RESULTS + TILE,
        );
        let tile = if self.alternate {
            sums.max(results / 2.0 + sums / 2.0)
        } else {
            sums + results
        };
        START + self.tiles(problem, products).div_ceil(processors) as f64 * tile
    }
}

/// Shapes, what looks best first.
pub fn ranked(problem: &Problem, products: usize, processors: usize) -> Vec<Shape> {
    let mut shapes = ALL.to_vec();
    let guess = |shape: &Shape| shape.guess(problem, products, processors);
    shapes.sort_by(|a, b| guess(a).total_cmp(&guess(b)));
    shapes
}

/// Whether the kernel multiplies so on a GPU.
pub fn fits(device: &Device, dtype: DType, problem: &Problem) -> bool {
    let Problem { m, n, k, ref steps, .. } = *problem;
    let half = matches!(dtype, DType::Float16 | DType::BFloat16);
    let right = if problem.transposed[1] { k } else { n };
    let even = [k, right]
        .iter()
        .chain(steps.iter().flatten())
        .all(|extent| extent % EVEN == 0);
    let flat = problem.batch.len() <= 1 && !problem.transposed[0];
    device.capability == HOPPER && half && even && flat && m >= FEWEST_ROWS && n > 0 && k > 0
}

/// A product with the `number`th of the shapes that look best for it, or several of one left operand.
pub struct Grouped {
    launches: Launches,
    /// The inputs that the copy engine reads.
    read: usize,
    spare: Spare,
}

impl Grouped {
    /// Prepares the kernel; what runs in its place where an operand lies unevenly needs no workspace.
    ///
    /// # Errors
    /// If it can't multiply so, or is too large for one launch.
    pub fn new(gpu: &Arc<Gpu>, dtype: DType, problem: &Problem, written: &Written, number: u32) -> Result<Self> {
        if !fits(&gpu.device, dtype, problem) {
            return Err(Error::unsupported("warpgroups don't multiply such matrices").got(format!("{problem:?}")));
        }
        let (products, processors) = (written.products, gpu.device.multiprocessors as usize);
        let shape = ranked(problem, products, processors)[number as usize % ALL.len()];
        let source = format!("{SOURCE}{}", entry(written, &shape, problem.transposed[1]));
        let function = gpu.compiler.entry(&source, "product", shape.bytes());
        let blocks = shape.tiles(problem, products).min(processors);
        let mut launch = KernelLaunch::new(
            function,
            Grid::over(blocks * THREADS as usize, THREADS)?,
            words(problem, products)?,
        );
        launch.boxes = boxes(dtype, problem, &shape, products);
        let how = shape.describe(&many(products));
        let (of, spared, wanted) = (gpu.clone(), problem.clone(), written.clone());
        let spare = move || own::any(&of, &spared, &wanted, 0).map(Prepared::from);
        Ok(Self {
            launches: Launches {
                launches: vec![launch],
                workspace: 0,
                device_check: None,
                how,
            },
            read: 1 + products,
            spare: Spare::new(spare),
        })
    }

    /// It as a kernel at concrete shapes.
    pub fn prepared(self) -> Prepared {
        compiled(self.launches.entries(), Instance::new(self.launches.how.clone(), self))
    }
}

impl Launcher for Grouped {
    fn launch(&mut self, call: &Call) -> Result<()> {
        // A slice may begin anywhere, and where is not known any sooner.
        let even = call.inputs[..self.read]
            .iter()
            .all(|address| address.addr().is_multiple_of(Boxes::EVEN));
        if even {
            self.launches.launch(call)
        } else {
            self.spare.launch(call)
        }
    }
}

/// What stands for a product of several in code, by its number `product`.
pub fn choice(products: usize, of: impl Fn(usize) -> String) -> String {
    let others = (1..products).map(|product| format!("product == {product} ? {} : ", of(product)));
    others.collect::<String>() + &of(0)
}

/// How reports tell that a launch is several products.
pub fn many(products: usize) -> String {
    if products > 1 {
        format!("{products} products at once, ")
    } else {
        String::new()
    }
}

fn entry(written: &Written, shape: &Shape, turned: bool) -> String {
    let products = written.products;
    let mut parameters = written.parameters();
    parameters.push("const Share s".into());
    parameters.push("const __grid_constant__ TensorMap left".into());
    parameters.extend((0..products).map(|product| format!("const __grid_constant__ TensorMap right{product}")));
    let (shape, held) = (shape.text(turned, WIDTH), written.held);
    format!(
        "{}extern \"C\" __global__ void __launch_bounds__({THREADS}) product({}) {{\n    \
         const auto result = [&](int32 product) {{ return {}; }};\n    \
         const auto right = [&](int32 product) {{ return {}; }};\n    \
         const auto tails = [&](int32 product) {{ return {}; }};\n    \
         warpgroups<{shape}, {held}, T0, float, Y0, Tail>(result, LeftRows{{&left, s.left_moves}}, right, tails, s);\n}}\n",
        written.text,
        parameters.join(", "),
        choice(products, |product| format!("y{product}")),
        choice(products, |product| format!("&right{product}")),
        choice(products, |product| written.tail(product)),
    )
}

/// Elements from one matrix of a batch to the next; none where there is one for all.
fn steps(problem: &Problem) -> [Option<usize>; 2] {
    [0, 1].map(|side| problem.steps[side].first().copied().filter(|&step| step > 0))
}

/// `Share` of `warpgroup.cu`.
fn words(problem: &Problem, products: usize) -> Result<Vec<i32>> {
    let moves = steps(problem).map(|step| step.is_some() as usize);
    let words = [
        problem.m,
        problem.n,
        problem.k,
        problem.batches(),
        moves[0],
        moves[1],
        products,
        problem.n,
        problem.n,
    ];
    fields(words.map(|word| word as i64))
}

/// The operands as inputs: the left one, and the right one of each product.
fn boxes(dtype: DType, problem: &Problem, shape: &Shape, products: usize) -> Vec<(usize, Boxes)> {
    let Problem { m, n, k, .. } = *problem;
    let whole = |side: usize, [lines, length]: [usize; 2], size: [usize; 2]| {
        let step = steps(problem)[side];
        Boxes {
            dtype,
            extents: vec![length, lines, step.map_or(1, |_| problem.batches())],
            strides: [length, step.unwrap_or(lines * length)]
                .map(|stride| stride * dtype.size())
                .to_vec(),
            size: vec![size[0], size[1], 1],
        }
    };
    let left = whole(0, [m, k], [DEPTH, shape.rows()]);
    let right = match problem.transposed[1] {
        true => whole(1, [n, k], [DEPTH, shape.columns]),
        false => whole(1, [k, n], [DEPTH, DEPTH]),
    };
    let rights = (1..=products).map(|input| (input, right.clone()));
    std::iter::once((0, left)).chain(rights).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(m: usize, k: usize, n: usize, products: usize) -> Shape {
        ranked(&Problem::new([false; 2], &[m, k], &[k, n]), products, 132)[0]
    }

    #[test]
    fn every_shape_has_room_and_boxes_that_the_copy_engine_takes() {
        for shape in ALL {
            assert!(shape.shared_bytes(WIDTH) <= 227 << 10, "{shape:?}");
            let problem = Problem::new([false, true], &[3, 100, 72], &[3, 40, 72]);
            for (_, boxes) in boxes(DType::Float16, &problem, &shape, 1) {
                assert!(boxes.size.iter().all(|&size| size <= 256), "{boxes:?}");
                assert!(
                    boxes.strides.iter().all(|stride| stride % Boxes::EVEN == 0),
                    "{boxes:?}"
                );
                assert_eq!(boxes.extents[2], 3);
            }
        }
    }

    #[test]
    fn tiles_fill_the_processors() {
        assert_eq!(best(4096, 3072, 768, 1).columns, 192);
        assert_eq!(best(4096, 768, 768, 1).columns, 192);
        assert_eq!(best(8192, 4096, 8192, 1).columns, 256);
    }

    #[test]
    fn an_operand_for_all_batches_stands_still() {
        let problem = Problem::new([false; 2], &[5, 64, 32], &[1, 32, 48]);
        assert_eq!(words(&problem, 2).unwrap(), [320, 48, 32, 1, 0, 0, 2, 48, 48]);
        let problem = Problem::new([false; 2], &[32, 64], &[5, 64, 48]);
        assert_eq!(words(&problem, 1).unwrap(), [32, 48, 64, 5, 0, 1, 1, 48, 48]);
    }

    #[test]
    fn each_product_has_its_operands() {
        let written = Written {
            text: String::new(),
            operands: 1,
            others: 0,
            unused: 0,
            products: 2,
            held: true,
        };
        let entry = entry(&written, &ALL[0], true);
        assert!(entry.contains("return product == 1 ? y1 : y0;"), "{entry}");
        assert!(
            entry.contains("return product == 1 ? Tail{x1_1} : Tail{x1_0};"),
            "{entry}"
        );
        assert!(
            entry.contains("TensorMap left, const __grid_constant__ TensorMap right0, const __grid"),
            "{entry}"
        );
    }
}
