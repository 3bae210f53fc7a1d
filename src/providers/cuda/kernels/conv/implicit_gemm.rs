//! Convolutions of 16-bit floats as implicit GEMM on Hopper, by warpgroups: the products of `warpgroup.cu`, whose left operand is
//! rows or windows of pixels, with whatever follows.

use super::direct::Direct;
use super::left_operand::{self, LeftOperand, line, lines};
use super::problem::Problem;
use super::tiled::problem;
use crate::error::Result;
use crate::network::{Network, TensorId};
use crate::plan::{Call, Instance, Launcher, Prepared};
use crate::providers::common::epilogue::Epilogue;
use crate::providers::cuda::compile::{EntryPoint, compiled};
use crate::providers::cuda::device::{Arguments, Boxes, Grid};
use crate::providers::cuda::kernels::Gpu;
use crate::providers::cuda::kernels::launch::fields;
use crate::providers::cuda::kernels::matmul::behind::Behind;
use crate::providers::cuda::kernels::matmul::problem::Problem as Matrices;
use crate::providers::cuda::kernels::matmul::warpgroup::{self, THREADS, fits, ranked};
use crate::providers::cuda::kernels::spare::Spare;
use crate::providers::cuda::library::cudnn::Convolution;
use std::sync::Arc;

pub use warpgroup::SHAPES;

/// What follows a convolution, as code.
#[derive(Clone)]
pub struct Code {
    /// The `Tail`.
    text: String,
    /// Of the inputs behind the weights, the operand of the `Tail` that each is, counted from 1; none where it reads another one in its
    /// place.
    operands: Vec<Option<usize>>,
}

impl Code {
    /// The code of an epilogue whose kernel has these inputs behind the weights, of which a bias is the first. None where it reads
    /// anything else.
    pub fn new(network: &Network, epilogue: &Epilogue, bias: Option<TensorId>, inputs: &[TensorId]) -> Option<Self> {
        let behind = Behind::biased(network, epilogue, bias);
        let mut operands = vec![None; inputs.len()];
        for (at, operand) in behind.operands.iter().enumerate() {
            let own = bias.is_some() && at + 1 == behind.operands.len();
            let after = usize::from(bias.is_some());
            let found = || Some(after + inputs[after..].iter().position(|&input| input == operand.tensor)?);
            operands[if own { 0 } else { found()? }] = Some(at + 1);
        }
        Some(Self {
            text: behind.text,
            operands,
        })
    }

    /// The kernel for a shape of tiles.
    fn source(&self, shape: &str, held: bool, left: &LeftOperand) -> String {
        let [parameter, made] = left.text();
        let declared = self.operands.iter().enumerate().map(|(input, operand)| match operand {
            Some(number) => format!("const X{number}* x{number}, "),
            None => format!("const void* unused{input}, "),
        });
        let count = self.operands.iter().flatten().count();
        let read: Vec<String> = (1..=count).map(|number| format!("x{number}")).collect();
        format!(
            "{}{}{}extern \"C\" __global__ void __launch_bounds__({THREADS}) convolution(Y0* y, const T0* x, const T0* w, \
             {}const Share s{parameter}, const __grid_constant__ TensorMap left, const __grid_constant__ TensorMap right) {{\n    \
             const auto result = [&](int32) {{ return y; }};\n    \
             const auto rights = [&](int32) {{ return &right; }};\n    \
             const auto tails = [&](int32) {{ return Tail{{{}}}; }};\n    \
             warpgroups<{shape}, {held}, T0, float, Y0, Tail>(result, {made}, rights, tails, s);\n}}\n",
            warpgroup::SOURCE,
            left_operand::SOURCE,
            self.text,
            declared.collect::<String>(),
            read.join(", "),
        )
    }
}

/// The matrices that a convolution multiplies.
fn matrices(of: &Problem) -> Matrices {
    let terms = of.taps() * of.channels;
    Matrices::new([false, true], &[of.pixels(), terms], &[of.results, terms])
}

/// Whether each processor has a tile, of the smallest.
fn is_large(of: &Problem, processors: usize) -> bool {
    const SMALLEST: usize = 64 * 64;
    of.pixels() * of.results >= processors * SMALLEST
}

/// The convolution in the `number`th of the shapes of tiles that look best for it, if it is large and the copy engine brings it; `held` says
/// that nobody writes the weights any more.
pub fn prepared(gpu: &Arc<Gpu>, c: &Convolution, code: &Code, held: bool, number: u32) -> Option<Result<Prepared>> {
    let of = problem(c)?;
    let (line, matrices, processors) = (line(&of)?, matrices(&of), gpu.device.multiprocessors as usize);
    if !is_large(&of, processors) || !fits(&gpu.device, c.dtype, &matrices) {
        return None;
    }
    let shape = *ranked(&matrices, 1, processors).get(number as usize)?;
    let left = LeftOperand::new(&of, c.dtype, c.x.step() as usize, [shape.rows(), line])?;
    let make = || {
        let source = code.source(&shape.lined(line, lines(line, matrices.k)), held, &left);
        let function = gpu.compiler.entry(&source, "convolution", shape.bytes());
        let blocks = shape.tiles(&matrices, 1).min(processors);
        let operand = c.residual.as_ref().unwrap_or(&c.y);
        let share = [matrices.m, matrices.n, matrices.k, 1, 0, 0, 1].map(|word| word as i64);
        let how = format!("{} of {} by {line} bytes", shape.describe(""), left.describe());
        let row = matrices.k * c.dtype.size();
        let launcher = ImplicitGemm {
            function: function.clone(),
            grid: Grid::over(blocks * THREADS as usize, THREADS)?,
            share: fields(share.into_iter().chain([c.y.step(), operand.step()]))?,
            windows: left.words(&of)?,
            right: Boxes {
                dtype: c.dtype,
                extents: vec![matrices.k, matrices.n, 1],
                strides: vec![row, row * matrices.n],
                size: vec![line / c.dtype.size(), shape.columns, 1],
            },
            left,
            spare: Direct::spare(gpu, c, c.dtype),
        };
        Ok(compiled([function], Instance::new(how, launcher)))
    };
    Some(make())
}

struct ImplicitGemm {
    function: EntryPoint,
    grid: Grid,
    share: Vec<i32>,
    windows: Vec<i32>,
    left: LeftOperand,
    right: Boxes,
    spare: Spare,
}

impl Launcher for ImplicitGemm {
    fn launch(&mut self, call: &Call) -> Result<()> {
        // A slice may begin anywhere, and where is not known any sooner.
        let even = |address: &*const u8| address.addr().is_multiple_of(Boxes::EVEN);
        if !call.inputs[..2].iter().all(even) {
            return self.spare.launch(call);
        }
        let mut arguments = Arguments::of(call);
        arguments.fields(&self.share);
        arguments.fields(&self.windows);
        let device = self.function.device();
        self.left.pass(&mut arguments, device, call)?;
        arguments.map(&self.right.at(device, call.inputs[1])?);
        // SAFETY: these are the parameters that the source declares, for operands that the planner vouches for.
        unsafe { self.function.launch(self.grid, &arguments, call.stream) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::common::testing::Graph;

    #[test]
    fn operands_of_the_code_are_inputs_of_the_kernel() {
        let mut g = Graph::new();
        let (x, w) = (g.input("x", "4 8"), g.weights(&[8, 8]));
        let (bias, shift, skip) = (g.weights(&[8]), g.weights(&[8]), g.input("skip", "4 8"));
        let product = g.op("MatMul", &[x, w]);
        let silu = g.op("Silu", &[product]);
        let shifted = g.op("Add", &[silu, shift]);
        g.op("Add", &[shifted, skip]);
        let order = g.network.order().unwrap();
        let epilogue = Epilogue::new(&g.network, product, 1, &order[1..]).unwrap();
        let code = |bias: Option<TensorId>, inputs: &[TensorId]| Code::new(&g.network, &epilogue, bias, inputs);
        // What the code reads first is the shift.
        let all = code(Some(bias), &[bias, skip, shift]).unwrap();
        assert_eq!(all.operands, [Some(3), Some(2), Some(1)]);
        assert_eq!(code(None, &[skip, shift]).unwrap().operands, [Some(2), Some(1)]);
        // A bias that is a shift too.
        let twice = code(Some(shift), &[shift, skip, shift]).unwrap();
        assert_eq!(twice.operands, [Some(3), Some(2), Some(1)]);
        assert!(code(None, &[skip]).is_none());
    }

    #[test]
    fn a_kernel_has_the_parameters_of_its_launch() {
        let mut g = Graph::new();
        let (x, w, bias) = (g.input("x", "4 8"), g.weights(&[8, 8]), g.weights(&[8]));
        let product = g.op("MatMul", &[x, w]);
        g.op("Silu", &[product]);
        let order = g.network.order().unwrap();
        let epilogue = Epilogue::new(&g.network, product, 1, &order[1..]).unwrap();
        let code = Code::new(&g.network, &epilogue, Some(bias), &[bias, x]).unwrap();
        let of = Problem {
            images: 2,
            input: [9, 7],
            output: [9, 7],
            kernel: [3, 3],
            begin: [1, 1],
            strides: [1, 1],
            dilations: [1, 1],
            channels: 32,
            results: 8,
        };
        let left = LeftOperand::new(&of, crate::network::dtype::DType::Float16, 32, [128, 64]).unwrap();
        let source = code.source("Shape<>", true, &left);
        let parameters = "convolution(Y0* y, const T0* x, const T0* w, const X1* x1, const void* unused1, const Share s, \
                          const Windows windows, const __grid_constant__ TensorMap left, const __grid_constant__ TensorMap right)";
        assert!(source.contains(parameters), "{source}");
        assert!(source.contains("return Tail{x1};"), "{source}");
        assert!(source.contains("(sum + widen(x1[column]))"), "{source}");
    }
}
