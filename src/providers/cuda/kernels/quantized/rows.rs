//! Products of 8 bits whose left operand is rows, by warpgroups of Hopper: the kernel of `warpgroup.cu`, on pairs of neighbours.

use super::Quantized;
use super::constants::OnDevice;
use super::plain;
use super::tiled::in_pairs;
use crate::error::Result;
use crate::network::dtype::DType;
use crate::plan::layout::Operand;
use crate::plan::{Call, Instance, Launcher, Prepared};
use crate::providers::cuda::compile::{EntryPoint, compiled};
use crate::providers::cuda::device::{Arguments, Boxes, Grid};
use crate::providers::cuda::kernels::conv::tiled::problem;
use crate::providers::cuda::kernels::launch::fields;
use crate::providers::cuda::kernels::matmul::problem::Problem;
use crate::providers::cuda::kernels::matmul::warpgroup::{
    self, DEPTH, FEWEST_ROWS, Shape, THREADS, choice, many, ranked,
};
use crate::providers::cuda::kernels::spare::Spare;
use crate::providers::cuda::library::cudnn::{After, Convolution, Tensor};

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

/// The kernel of products of one left operand, of which there are several only where each gives one result.
fn source(products: &[&Quantized], shape: &Shape) -> String {
    let of = products[0];
    let pair = plain::pair(of);
    let scaled = format!("Scaled<{}>", of.scheme.zero != 0);
    let all = |each: &dyn Fn(usize) -> String| (0..products.len()).map(each).collect::<String>();
    let choice = |each: &dyn Fn(usize) -> String| choice(products.len(), each);
    let end = |product: usize| format!("_{product}");
    let results = all(&|product| format!("Y0* y{product}, "));
    let lists = all(&|product| format!("const float* scales{product}, "));
    let declared = all(&|product| plain::declared(of, &end(product)));
    let maps = all(&|product| format!(", const __grid_constant__ TensorMap right{product}"));
    let tail = |product: usize| {
        let tail = plain::tail(of, &end(product));
        format!("{scaled}({tail}, Channels{{scales{product}, (int32)pitch}})")
    };
    format!(
        "{}{PAIRS}{}{}{SOURCE}\nextern \"C\" __global__ void __launch_bounds__({THREADS}) rows_of_8_bits({results}{lists}const Share s, \
         const int64 pitch, const __grid_constant__ TensorMap left{maps}{declared}) {{\n    \
         const auto result = [&](int32 product) {{ return {}; }};\n    \
         const auto rights = [&](int32 product) {{ return {}; }};\n    \
         const auto tails = [&](int32 product) {{ return {}; }};\n    \
         warpgroups<{}, true, {pair}, SumOf<{pair}>::type, Y0, {scaled}>(result, LeftRows{{&left, 0}}, rights, tails, s);\n}}\n",
        plain::QUANTIZED,
        of.behind.text,
        warpgroup::SOURCE,
        choice(&|product| format!("y{product}")),
        choice(&|product| format!("&right{product}")),
        choice(&tail),
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

/// Rows as pixels of an image that is one row high.
pub fn matrices(x: &Operand, y: &Operand) -> Convolution {
    let [terms, columns] = [x, y].map(|operand| operand.shape.last().copied().unwrap_or(0) as i64);
    let rows = y.elements() as i64 / columns.max(1);
    let [x, result] = [terms, columns].map(|channels| Tensor::dense(vec![1, channels, 1, rows]));
    of_pixels(y.dtype, x, result)
}

/// The convolution that looks at each pixel by itself.
pub fn of_pixels(dtype: DType, x: Tensor, y: Tensor) -> Convolution {
    Convolution {
        dtype,
        tf32: false,
        transposed: false,
        w: Tensor::dense(vec![y.sizes[1], x.sizes[1], 1, 1]),
        x,
        y,
        strides: vec![1; 2],
        dilations: vec![1; 2],
        begin: vec![0; 2],
        end: vec![0; 2],
        bias: false,
        residual: None,
        activation: None,
        after: After::default(),
    }
}

/// The kernel of products of one left operand in the `number`th of the shapes that look best, if it multiplies so.
pub fn prepared(products: &[&Quantized], c: &Convolution, number: usize) -> Option<Result<Prepared>> {
    let (problem, of, count) = (rows(c)?, products[0], products.len());
    let processors = of.gpu.device.multiprocessors as usize;
    let shape = ranked(&problem, count, processors)[number];
    let make = || {
        let bytes = shape.shared_bytes(of.behind.width);
        let function = of
            .gpu
            .compiler
            .entry(&source(products, &shape), "rows_of_8_bits", bytes);
        let blocks = shape.tiles(&problem, count).min(processors);
        let share = [problem.m, problem.n, problem.k, 1, 0, 0, count].map(|word| word as i64);
        let (from, pitch) = (c.x.step() as usize, of.constants.pitch);
        let each = products.iter().map(|of| {
            Ok(Product {
                numbers: plain::numbers(of),
                constants: of.constants.on(&of.gpu.device)?,
                spare: plain::spare(of, c)?,
            })
        });
        let launcher = OnRows {
            function: function.clone(),
            grid: Grid::over(blocks * THREADS as usize, THREADS)?,
            share: fields(share.into_iter().chain([c.y.step(), problem.n as i64]))?,
            left: boxes(problem.m, problem.k, from, shape.rows()),
            right: boxes(problem.n, problem.k, pitch, shape.columns),
            operands: of.behind.operands.len(),
            products: each.collect::<Result<_>>()?,
        };
        Ok(compiled(
            [function],
            Instance::new(shape.describe(&many(count)), launcher),
        ))
    };
    Some(make())
}

/// What is known of a product before it is launched, and what runs it by itself.
struct Product {
    numbers: Vec<i32>,
    constants: OnDevice,
    spare: Spare,
}

struct OnRows {
    function: EntryPoint,
    grid: Grid,
    share: Vec<i32>,
    left: Boxes,
    right: Boxes,
    /// How many operands each product has besides.
    operands: usize,
    products: Vec<Product>,
}

impl OnRows {
    /// What a product reads besides the left operand and its constants.
    fn operands<'a>(&self, call: &Call<'a>, product: usize) -> &'a [*const u8] {
        &call.inputs[1 + product * self.operands..][..self.operands]
    }

    /// Its result, and what it stores besides.
    fn results<'a>(&self, call: &Call<'a>, product: usize) -> &'a [*mut u8] {
        let each = call.outputs.len() / self.products.len();
        &call.outputs[product * each..][..each]
    }

    /// One product after another, as ordinary arithmetic takes them.
    fn launch_each(&mut self, call: &Call) -> Result<()> {
        for product in 0..self.products.len() {
            let inputs = [&call.inputs[..1], self.operands(call, product)].concat();
            let outputs = self.results(call, product);
            self.products[product].spare.launch(&Call {
                inputs: &inputs,
                outputs,
                ..*call
            })?;
        }
        Ok(())
    }
}

impl Launcher for OnRows {
    fn launch(&mut self, call: &Call) -> Result<()> {
        // A slice may begin anywhere, and where is not known any sooner.
        if !call.inputs[0].addr().is_multiple_of(Boxes::EVEN) {
            return self.launch_each(call);
        }
        let device = self.function.device();
        let constants = || self.products.iter().map(|product| &product.constants);
        let mut arguments = Arguments::default();
        for product in 0..self.products.len() {
            arguments.address(self.results(call, product)[0]);
        }
        constants().for_each(|of| _ = arguments.address(of.lists()));
        arguments
            .fields(&self.share)
            .number(self.products[0].constants.listed());
        arguments.map(&self.left.at(device, call.inputs[0])?);
        for of in constants() {
            arguments.map(&self.right.at(device, of.weights())?);
        }
        for (number, product) in self.products.iter().enumerate() {
            let others = &self.results(call, number)[1..];
            plain::pass(&mut arguments, self.operands(call, number), others, &product.numbers);
        }
        // SAFETY: these are the parameters that the source declares, for operands that the planner vouches for.
        unsafe { self.function.launch(self.grid, &arguments, call.stream) }
    }
}
