//! MatMulNBits with what follows it: products whose weights stay in 4 or 8 bits in memory. Few rows meet them by the kernel of
//! `n_bits.cu`; in calls with many, weights are written out into the workspace, for cuBLASLt. An engine for many rows is faster with weights
//! that are numbers, which the op decomposes into.

mod pack;
mod written_out;

use super::matmul::behind::Behind;
use super::matmul::library::Steps;
use super::matmul::{Inputs, follow};
use super::{Answer, Gpu};
use crate::device::Memory;
use crate::error::Result;
use crate::network::dim::Binding;
use crate::network::dtype::DType;
use crate::network::ops::matmul_n_bits::Geometry;
use crate::plan::layout::Layout;
use crate::plan::tactic::tactics;
use crate::plan::{Call, Candidate, Form, Instance, Kernel, Launcher, Prepared, Request, Tier};
use crate::providers::common::Why;
use crate::providers::common::epilogue::{Epilogue, behind, name};
use crate::providers::common::scope::Scope;
use crate::providers::cuda::compile::{EntryPoint, compiled};
use crate::providers::cuda::device::memory::DeviceMemory;
use crate::providers::cuda::device::{Arguments, Grid};
use crate::providers::cuda::kernels::launch::fields;
use crate::providers::cuda::kernels::pointwise::code::element;
use pack::{TILE, Weights};
use std::sync::Arc;

/// The kernels, and the instructions that they are made of.
const SOURCE: &str = concat!(
    include_str!("../../../../../kernels/fragments.cuh"),
    include_str!("../../../../../kernels/codes.cuh"),
    include_str!("../../../../../kernels/n_bits.cu")
);
/// How many warps share the terms of so many tiles, and how many such blocks a multiprocessor has, for one, two and four eights of rows.
/// They fill a multiprocessor: where there is room beside them, blocks of the kernel behind come to lie on few of them, which what is timed
/// alone does not show.
const BLOCKS: [(usize, usize, usize); 3] = [(16, 1, 2), (16, 2, 1), (8, 2, 1)];
/// These, and the same with one tile, for few columns.
const SHAPES: usize = 2;
/// Pieces of each tile that are on their way to a warp.
const AHEAD: usize = 2;
/// So many of cuBLASLt's algorithms are tried.
const ALGORITHMS: usize = 3;
/// Layers with more rows at the shapes to optimise for have weights that are numbers.
const MOST: usize = 32;
/// Calls with more rows than these write weights out, and those with at most so many don't, whatever was timed at other shapes.
const MANY: usize = 96;
const FEW: usize = 8;

/// The layer with as much of what follows as can be done with it, longest first.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    if scope.op() != "MatMulNBits" {
        return Ok(vec![]);
    }
    if !gpu.has_packed_weights() {
        return Err(Why::new(
            "weights of few bits want tensor cores of compute capability 8.0",
        ));
    }
    if rows_at_opt(scope).is_some_and(|rows| rows > MOST) {
        return Err(Why::new("many rows are faster with weights that are written out"));
    }
    let Some(weights) = weights(scope) else {
        return Err(Why::new(
            "packed weights are constants of 4 or 8 bits, in blocks of multiples of 16 whose zero points are integers of as many bits",
        ));
    };
    let product = scope.layer().outputs[0];
    let rank = scope.output_type(0).rank();
    let takes = |id| rank > 1 && follow::is_step(scope, id);
    let mut epilogues = behind(scope, product, rank.saturating_sub(1), &takes);
    epilogues.retain(|epilogue| epilogue.others().is_empty());
    let weights = Arc::new(weights);
    Ok(epilogues
        .iter()
        .filter_map(|epilogue| candidate(scope, epilogue, &weights, gpu))
        .collect())
}

/// Rows of the left operand at the shapes to optimise for.
fn rows_at_opt(scope: &Scope) -> Option<usize> {
    let symbols = scope.network.symbols.iter();
    let opt: Binding = symbols.map(|(name, range)| (name.clone(), range.opt)).collect();
    let (_, outer) = scope.input_type(0)?.shape.split_last()?;
    let extents = outer.iter().map(|extent| usize::try_from(extent.eval(&opt).ok()?).ok());
    extents.product()
}

fn weights(scope: &Scope) -> Option<Weights> {
    let geometry = Geometry::of(&scope.layer().attrs).ok()?;
    let is_known = matches!(
        scope.output_type(0).dtype,
        DType::Float32 | DType::Float16 | DType::BFloat16
    );
    let zeros = scope.constant(3);
    let is_constant = zeros.is_some() || scope.input(3).is_none();
    let (codes, scales) = (scope.constant(1)?, scope.constant(2)?);
    (is_known && is_constant).then(|| Weights::new(geometry, codes, scales, zeros))?
}

fn candidate(scope: &Scope, epilogue: &Epilogue, weights: &Arc<Weights>, gpu: &Arc<Gpu>) -> Option<Candidate> {
    let network = scope.network;
    let behind = Behind::new(network, epilogue);
    let steps = Steps::new(network, epilogue);
    // The second one stands for the weights that are written out.
    let left = scope.input(0)?;
    let mut inputs = Inputs::new([left, left], &behind, &steps, &[]);
    inputs.all.remove(1);
    let layers = epilogue.layers_behind(scope.layer);
    let kernel = NBits {
        name: name(network, &layers),
        dtype: scope.output_type(0).dtype,
        tf32: gpu.rounds_to_tf32(scope),
        weights: weights.clone(),
        text: behind.text,
        read: behind.operands.len(),
        steps,
        inputs: inputs.clone(),
        gpu: gpu.clone(),
    };
    Some(Candidate {
        kernel: Arc::new(kernel),
        layers,
        inputs: inputs.all,
        outputs: behind.outputs,
    })
}

struct NBits {
    name: String,
    /// The element type of the left operand and of the product.
    dtype: DType,
    /// Whether operands of float32 may be rounded to tf32.
    tf32: bool,
    weights: Arc<Weights>,
    /// `Tail`, and how many operands it reads.
    text: String,
    read: usize,
    /// The same for cuBLASLt.
    steps: Steps,
    inputs: Inputs,
    gpu: Arc<Gpu>,
}

tactics! {
    /// A way to multiply.
    enum Way {
        /// From codes, by blocks of a shape.
        Codes(number: usize) = "codes",
        /// By one of cuBLASLt's algorithms, with weights that are written out.
        WrittenOut(number: usize) = "written out",
    }
}

/// How a block works: warps that share the terms, eights of rows, and tiles; and how many of them a multiprocessor has.
#[derive(Clone, Copy)]
struct Block {
    warps: usize,
    eights: usize,
    tiles: usize,
    residents: usize,
}

impl Block {
    /// The `number`th for so many rows.
    fn new(number: usize, rows: usize) -> Self {
        // Each eight of rows has registers of its own.
        let eights = rows.div_ceil(8).next_power_of_two().min(1 << (BLOCKS.len() - 1));
        let (warps, tiles, residents) = BLOCKS[eights.ilog2() as usize];
        Self {
            warps,
            eights,
            tiles: if number > 0 { 1 } else { tiles },
            residents,
        }
    }

    /// Whether the `number`th is no other than the first.
    fn is_known(number: usize, rows: usize) -> bool {
        number > 0 && Self::new(number, rows).tiles == Self::new(0, rows).tiles
    }

    /// As it fits weights and GPU: more blocks of fewer warps where there are few pieces, and less of both where memory or registers want that.
    fn fit(mut self, weights: &Weights, parts: usize, shared_bytes: usize) -> Self {
        /// What each block of a multiprocessor takes besides.
        const RESERVED: usize = 1024;
        /// A multiprocessor takes few blocks, of however few warps.
        const FEWEST: usize = 4;
        while self.warps > FEWEST && self.warps / 2 >= weights.pieces() {
            (self.warps, self.residents) = (self.warps / 2, self.residents * 2);
        }
        while self.warps > 1 && self.bytes(weights) > shared_bytes {
            self.warps /= 2;
        }
        let by_memory = (shared_bytes + RESERVED) / (self.bytes(weights) + RESERVED);
        self.residents = self.residents.div_ceil(parts).min(by_memory).max(1);
        self
    }

    /// `sizeof(Memory)` of `n_bits.cu`: pieces on their way, and the sums of two groups of tiles.
    fn bytes(&self, weights: &Weights) -> usize {
        self.warps * (AHEAD * self.tiles * weights.piece_bytes() + 2 * self.rows() * self.columns() * size_of::<f32>())
    }

    fn threads(&self) -> usize {
        self.warps * 32
    }

    fn rows(&self) -> usize {
        self.eights * 8
    }

    fn columns(&self) -> usize {
        self.tiles * TILE
    }
}

impl NBits {
    /// `Coding` of `n_bits.cu`.
    fn coding(&self) -> String {
        let Geometry { bits, block, .. } = self.weights.geometry;
        let (zeros, scale) = (self.weights.has_zeros(), element(self.weights.scale).unwrap_or("float"));
        format!("Coding<{bits}, {block}, {zeros}, {scale}>")
    }

    /// How a block works on this GPU.
    fn block(&self, number: usize, rows: usize) -> Block {
        // Floats are three parts, and hold as many registers as two of 16 bits.
        let parts = self.dtype.size() / 2;
        Block::new(number, rows).fit(&self.weights, parts, self.gpu.device.shared_bytes)
    }

    /// `NBits` of `n_bits.cu`.
    fn numbers(&self, rows: usize) -> Result<Vec<i32>> {
        let Geometry { n, k, .. } = self.weights.geometry;
        fields([rows, n, k, self.weights.tiles()].map(|number| number as i64))
    }

    fn source(&self, block: Block) -> String {
        let operands = (1..=self.read)
            .map(|number| format!("const X{number}* x{number}, "))
            .collect::<String>();
        let unused = (0..self.inputs.unused)
            .map(|number| format!("const void* unused{number}, "))
            .collect::<String>();
        let tail = (1..=self.read)
            .map(|number| format!("x{number}"))
            .collect::<Vec<_>>()
            .join(", ");
        let Block {
            warps,
            eights,
            tiles,
            residents,
        } = block;
        format!(
            "{SOURCE}{}typedef Shape<{}, {warps}, {eights}, {tiles}, {AHEAD}> Blocks;\n\
             extern \"C\" __global__ void __launch_bounds__({}, {residents}) product_of_codes(Y0* y, const T0* a, \
             {operands}{unused}const uint8* weights, const NBits s) {{\n    \
             multiply_codes<Blocks>(y, a, weights, Tail{{{tail}}}, s);\n}}\n",
            self.text,
            self.coding(),
            block.threads(),
        )
    }

    fn by_codes(&self, rows: usize, number: usize) -> Result<Prepared> {
        let block = self.block(number, rows);
        let shared_bytes = block.bytes(&self.weights);
        let function = self
            .gpu
            .compiler
            .entry(&self.source(block), "product_of_codes", shared_bytes);
        let mut grid = Grid::over(rows.div_ceil(block.rows()), 1)?;
        // Blocks take turns at groups of tiles, so that there are no more of them than run at once.
        let at_once = self.gpu.device.multiprocessors as usize * block.residents / grid.blocks[0].max(1) as usize;
        grid.blocks[1] = self.weights.tiles().div_ceil(block.tiles).min(at_once.max(1)) as u32;
        grid.threads = block.threads() as u32;
        let launcher = OnCodes {
            function: function.clone(),
            grid,
            numbers: self.numbers(rows)?,
            weights: self.weights.on(&self.gpu.device)?,
        };
        let bits = self.weights.geometry.bits;
        let how = format!(
            "{bits} bits, tiles of {} rows x {}, terms in {}",
            block.rows(),
            block.columns(),
            block.warps
        );
        let prepared = compiled([function], Instance::new(how, launcher));
        Ok(match Block::is_known(number, rows) {
            // The same kernel as another form, so it is not timed.
            true => prepared.with_tier(Tier::Reference),
            false => prepared,
        })
    }
}

impl Kernel for NBits {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn identity(&self) -> String {
        let Self {
            name,
            tf32,
            text,
            steps,
            ..
        } = self;
        let (geometry, zeros, scale) = (self.weights.geometry, self.weights.has_zeros(), self.weights.scale);
        format!(
            "{name} {geometry:?} {zeros} {scale} tf32 {tf32} {} {:?} {text}",
            steps.scale, steps.activation
        )
    }

    fn forms(&self) -> Vec<Form> {
        let form = |way: Way| Form {
            tactic: way.tactic(),
            inputs: vec![Layout::Plain; self.inputs.all.len()],
            outputs: vec![Layout::Plain],
        };
        let codes = (0..SHAPES).map(Way::Codes);
        codes.chain((0..ALGORITHMS).map(Way::WrittenOut)).map(form).collect()
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let rows = request.outputs[0].elements() / self.weights.geometry.n;
        match Way::of(&request.form.tactic)? {
            // Slower than cuBLASLt where that is there, and has an algorithm for these sizes.
            Way::Codes(number) if rows > MANY => self
                .written_out(request, rows, 0)
                .or_else(|_| self.by_codes(rows, number)),
            Way::WrittenOut(_) if rows <= FEW => self.by_codes(rows, 0),
            Way::Codes(number) => self.by_codes(rows, number),
            Way::WrittenOut(number) => self.written_out(request, rows, number),
        }
    }
}

struct OnCodes {
    function: EntryPoint,
    grid: Grid,
    numbers: Vec<i32>,
    weights: Arc<DeviceMemory>,
}

impl Launcher for OnCodes {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let mut arguments = Arguments::of(call);
        arguments
            .address(self.weights.address().cast_const())
            .fields(&self.numbers);
        // SAFETY: these are the parameters that the source declares, for operands that the planner vouches for.
        unsafe { self.function.launch(self.grid, &arguments, call.stream) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::array::Array;
    use crate::providers::cuda::compile::each_entry_waits;

    #[test]
    fn kernels_start_while_the_one_in_front_runs() {
        let entry = |body: &str| format!("{SOURCE}extern \"C\" __global__ void entry() {{ {body} }}");
        assert!(each_entry_waits(&entry("multiply_codes();")));
    }

    #[test]
    fn rows_have_registers_in_eights() {
        for (rows, tiles) in [(1, 1), (8, 1), (9, 2), (16, 2), (17, 2), (700, 2)] {
            assert_eq!(Block::new(0, rows).tiles, tiles);
            assert_eq!(Block::is_known(1, rows), tiles == 1);
        }
        assert_eq!([9, 17, 33].map(|rows| Block::new(0, rows).eights), [2, 4, 4]);
    }

    #[test]
    fn blocks_have_as_many_warps_as_there_is_work_and_room_for() {
        let weights = |k: usize| {
            let geometry = Geometry {
                k,
                n: 16,
                bits: 4,
                block: 128,
            };
            let codes = Array::from_bytes(DType::UInt8, vec![8 * k], &vec![0; 8 * k]).unwrap();
            let scales = Array::from_f64(DType::Float32, vec![k / 8], &vec![0.5; k / 8]).unwrap();
            Weights::new(geometry, &codes, &scales, None).unwrap()
        };
        let fit = |rows, k, parts, shared: usize| {
            let block = Block::new(0, rows).fit(&weights(k), parts, shared << 10);
            (block.warps, block.residents)
        };
        assert_eq!(
            [128, 768, 2048, 4096].map(|k| fit(1, k, 1, 227)),
            [(4, 8), (8, 4), (16, 2), (16, 2)]
        );
        // Three parts of floats, and shared memory that is less.
        assert_eq!(
            (fit(1, 4096, 2, 227), fit(1, 4096, 1, 99), fit(16, 4096, 1, 99)),
            ((16, 1), (16, 2), (8, 1))
        );
    }
}
