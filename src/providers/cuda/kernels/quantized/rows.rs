//! Products of 8 bits whose left operand is rows, by warpgroups of Hopper: the kernel of `warpgroup.cu`, on pairs of neighbours.

use super::Quantized;
use super::constants::OnDevice;
use super::plain;
use super::tiled::in_pairs;
use crate::error::Result;
use crate::network::dtype::DType;
use crate::plan::{Call, Instance, Launcher, Prepared};
use crate::providers::cuda::compile::{EntryPoint, compiled};
use crate::providers::cuda::device::{Arguments, Boxes, Grid};
use crate::providers::cuda::kernels::conv::tiled::problem;
use crate::providers::cuda::kernels::launch::fields;
use crate::providers::cuda::kernels::matmul::problem::Problem;
use crate::providers::cuda::kernels::matmul::warpgroup::{self, DEPTH, FEWEST_ROWS, Shape, THREADS, ranked};
use crate::providers::cuda::kernels::spare::Spare;
use crate::providers::cuda::library::cudnn::Convolution;

/// Pairs of 8 bits.
pub const PAIRS: &str = include_str!("../../../../../kernels/pairs.cuh");
/// The kernel, of which others use the products.
pub const SOURCE: &str = include_str!("../../../../../kernels/quantized_rows.cu");

/// The rows that a convolution multiplies, in pairs, if it looks at each pixel by itself.
fn rows(c: &Convolution) -> Option<Problem> {
    let pairs = in_pairs(c)?;
    let found = problem(&pairs)?;
    let rows = found.input[1];
    (found.is_rows() && rows >= FEWEST_ROWS)
        .then(|| Problem::new([false, true], &[rows, found.channels], &[found.results, found.channels]))
}

fn source(of: &Quantized, shape: &Shape) -> String {
    let (pair, declared, tail) = (plain::pair(of), plain::declared(of), plain::tail(of));
    let starts = of.scheme.zero != 0;
    format!(
        "{}{PAIRS}{}{}{SOURCE}\nextern \"C\" __global__ void __launch_bounds__({THREADS}) rows_of_8_bits(Y0* y, \
         const float* scales{declared}, const Share s, const int64 pitch, const __grid_constant__ TensorMap left, \
         const __grid_constant__ TensorMap right) {{\n    \
         const auto result = [&](int32) {{ return y; }};\n    \
         const auto rights = [&](int32) {{ return &right; }};\n    \
         const auto tails = [&](int32) {{ return Scaled<{starts}>({tail}, Channels{{scales, (int32)pitch}}); }};\n    \
         warpgroups<{}, true, {pair}, SumOf<{pair}>::type, Y0, Scaled<{starts}>>(result, &left, rights, tails, s);\n}}\n",
        plain::QUANTIZED,
        of.behind.text,
        warpgroup::SOURCE,
        shape.text(true, of.behind.width),
    )
}

/// A matrix of pairs of 8 bits, and the boxes that it is brought in.
fn boxes(rows: usize, pairs: usize, step: usize, lines: usize) -> Boxes {
    Boxes {
        // Any type of 16 bits is a pair.
        dtype: DType::Float16,
        extents: vec![pairs, rows, 1],
        strides: vec![step, step * rows],
        size: vec![DEPTH, lines, 1],
    }
}

/// The kernel in the `number`th of the shapes that look best, if it multiplies so.
pub fn prepared(of: &Quantized, c: &Convolution, number: usize) -> Option<Result<Prepared>> {
    let problem = rows(c)?;
    let processors = of.gpu.device.multiprocessors as usize;
    let shape = ranked(&problem, 1, processors)[number];
    let make = || {
        let bytes = shape.shared_bytes(of.behind.width);
        let function = of.gpu.compiler.entry(&source(of, &shape), "rows_of_8_bits", bytes);
        let blocks = shape.tiles(&problem, 1).min(processors);
        let share = [problem.m, problem.n, problem.k, 1, 0, 0, 1].map(|word| word as i64);
        let (from, pitch) = (c.x.step() as usize, of.constants.pitch);
        let launcher = OnRows {
            function: function.clone(),
            grid: Grid::over(blocks * THREADS as usize, THREADS)?,
            share: fields(share.into_iter().chain([c.y.step()]))?,
            numbers: plain::numbers(of),
            left: boxes(problem.m, problem.k, from, shape.rows()),
            right: boxes(problem.n, problem.k, pitch, shape.columns),
            constants: of.constants.on(&of.gpu.device)?,
            spare: plain::spare(of, c)?,
        };
        Ok(compiled([function], Instance::new(shape.describe(""), launcher)))
    };
    Some(make())
}

struct OnRows {
    function: EntryPoint,
    grid: Grid,
    share: Vec<i32>,
    numbers: Vec<i32>,
    left: Boxes,
    right: Boxes,
    constants: OnDevice,
    spare: Spare,
}

impl Launcher for OnRows {
    fn launch(&mut self, call: &Call) -> Result<()> {
        // A slice may begin anywhere, and where is not known any sooner.
        if !call.inputs[0].addr().is_multiple_of(Boxes::EVEN) {
            return self.spare.launch(call);
        }
        let device = self.function.device();
        let mut arguments = Arguments::default();
        arguments.address(call.outputs[0]).address(self.constants.lists());
        plain::pass(&mut arguments, call, &self.numbers);
        arguments.fields(&self.share).number(self.constants.listed());
        arguments.map(&self.left.at(device, call.inputs[0])?);
        arguments.map(&self.right.at(device, self.constants.weights())?);
        // SAFETY: these are the parameters that the source declares, for operands that the planner vouches for.
        unsafe { self.function.launch(self.grid, &arguments, call.stream) }
    }
}
