//! Convolutions on a kernel of ours, one result a thread: for what no library has an engine, and for what follows one.

use super::super::Gpu;
use super::super::launch::fields;
use super::super::pointwise::code::element;
use super::super::spare::Spare;
use crate::error::Result;
use crate::network::dtype::DType;
use crate::plan::{Call, Instance, Launcher, Prepared};
use crate::providers::cuda::compile::{EntryPoint, compiled};
use crate::providers::cuda::device::{Arguments, Grid};
use crate::providers::cuda::library::cudnn::{Activation, After, Convolution};
use std::sync::Arc;

const SOURCE: &str = include_str!("../../../../../kernels/conv.cu");
/// Spatial axes that `conv.cu` walks; one or two are the last of these.
pub const AXES: usize = 3;
/// Threads of a block.
const THREADS: u32 = 128;
/// Bytes that a thread reads of each operand at once, at most.
pub const WIDEST: usize = 16;

/// The number by which the kernels know an activation (`f_activated` of `types.cuh`).
pub fn code(activation: Option<Activation>) -> i64 {
    match activation {
        None => 0,
        // Not a product with 0, which of an infinite number is none.
        Some(Activation::Relu(0.0)) => 1,
        Some(Activation::Relu(_)) => 9,
        Some(Activation::Sigmoid) => 2,
        Some(Activation::Silu) => 3,
        Some(Activation::Tanh) => 4,
        Some(Activation::Gelu) => 5,
        Some(Activation::Clip(..)) => 6,
        Some(Activation::HardSigmoid(..)) => 7,
        Some(Activation::HardSwish) => 8,
    }
}

/// The two numbers of an activation, as the bits of floats.
pub fn numbers(activation: Option<Activation>) -> [i64; 2] {
    let numbers = match activation {
        Some(Activation::Relu(slope)) => [slope, 0.0],
        Some(Activation::Clip(a, b) | Activation::HardSigmoid(a, b)) => [a, b],
        _ => [0.0; 2],
    };
    numbers.map(|number| i64::from(number.to_bits() as i32))
}

/// The addresses of bias, residual, and what comes after the activation in a call, behind input and weights; null where there is none.
pub fn sides(c: &Convolution, call: &Call) -> [*const u8; 4] {
    let mut others = call.inputs[2..].iter().copied();
    let there = [c.bias, c.residual.is_some(), c.after.scale, c.after.shift];
    there.map(|there| if there { others.next() } else { None }.unwrap_or(std::ptr::null()))
}

/// The number by which the kernels know what comes after the activation (`After` of `types.cuh`).
pub fn after(c: &Convolution) -> i64 {
    let After { scale, shift, residual } = c.after;
    [scale, shift, residual]
        .into_iter()
        .rev()
        .fold(0, |bits, there| 2 * bits + i64::from(there))
}

/// The parameters of a kernel for [`sides`], whose elements are of a type.
pub fn parameters(ty: &str) -> String {
    format!("const {ty}* bias, const {ty}* residual, const {ty}* scale, const {ty}* shift")
}

/// The kernel that runs any convolution.
pub struct Direct {
    function: EntryPoint,
    shape: Vec<i32>,
    grid: Grid,
    convolution: Convolution,
}

impl Direct {
    /// The kernel for a convolution of an input of this type, which may be another one than that of weights and result.
    ///
    /// # Errors
    /// If it is too large.
    pub fn new(gpu: &Gpu, c: &Convolution, from: DType) -> Result<Self> {
        let [ty, from] = [c.dtype, from].map(|dtype| element(dtype).unwrap_or("float"));
        let source = format!(
            "{SOURCE}\nextern \"C\" __global__ void conv({ty}* y, const {from}* x, const {ty}* w, {}, const Shape shape) {{\n    \
             convolve<{ty}, {from}, {}, {}>(y, x, w, bias, residual, scale, shift, shape);\n}}\n",
            parameters(ty),
            c.transposed,
            after(c),
        );
        let results: i64 = c.y.sizes.iter().product();
        Ok(Self {
            function: gpu.compiler.entry(&source, "conv", 0),
            shape: words(c)?,
            grid: Grid::over(results as usize, THREADS)?,
            convolution: c.clone(),
        })
    }

    /// It, where operands may lie as another kernel does not take them.
    pub fn spare(gpu: &Arc<Gpu>, c: &Convolution, from: DType) -> Spare {
        let (gpu, c) = (gpu.clone(), c.clone());
        Spare::new(move || Self::new(&gpu, &c, from).map(Self::prepared))
    }

    /// It as a kernel at concrete shapes.
    pub fn prepared(self) -> Prepared {
        compiled([self.function.clone()], Instance::new("one result a thread", self))
    }
}

impl Launcher for Direct {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let mut arguments = Arguments::default();
        let operands = [call.outputs[0].cast_const(), call.inputs[0], call.inputs[1]];
        let all = operands.into_iter().chain(sides(&self.convolution, call));
        all.for_each(|address| _ = arguments.address(address));
        arguments.fields(&self.shape);
        // SAFETY: these are the parameters that the source declares, for operands that the planner vouches for.
        unsafe { self.function.launch(self.grid, &arguments, call.stream) }
    }
}

/// `Shape` of `conv.cu`.
fn words(c: &Convolution) -> Result<Vec<i32>> {
    let residual = c.residual.as_ref().unwrap_or(&c.y);
    let mut words = vec![c.x.sizes[0], c.x.sizes[1], c.y.sizes[1], c.groups()];
    words.extend([c.y.step(), residual.step(), code(c.activation)]);
    words.extend(numbers(c.activation));
    words.extend(&c.x.strides[..2]);
    words.extend(std::iter::repeat_n(0, AXES + 2 - c.x.strides.len()));
    words.extend(&c.x.strides[2..]);
    words.extend([c.w.strides[0], c.w.strides[1], c.w.step()]);
    words.extend(window(c));
    fields(words)
}

/// Along each axis, those that are not there in front: extents of input, result and kernel, strides, dilations, padding before.
pub fn window(c: &Convolution) -> Vec<i64> {
    let mut words = vec![];
    let lists: [(&[i64], i64); 6] = [
        (&c.x.sizes[2..], 1),
        (&c.y.sizes[2..], 1),
        (&c.w.sizes[2..], 1),
        (&c.strides, 1),
        (&c.dilations, 1),
        (&c.begin, 0),
    ];
    for (list, missing) in lists {
        words.extend(std::iter::repeat_n(missing, AXES - list.len()));
        words.extend(list);
    }
    words
}

/// What follows a convolution, where the library does that alone.
pub struct Finish {
    packed: EntryPoint,
    /// For addresses that are at odd places, which are rare: compiled when they come.
    single: EntryPoint,
    pack: usize,
    convolution: Convolution,
    from_step: i64,
}

impl Finish {
    /// The kernel for what follows a convolution whose own result has pixels that are `from_step` elements apart.
    ///
    /// # Errors
    /// If it does not compile.
    pub fn new(gpu: &Gpu, c: &Convolution, from_step: i64) -> Result<Self> {
        let widest = WIDEST / c.dtype.size();
        let residual = c.residual.as_ref().unwrap_or(&c.y);
        let all = [c.y.sizes[1], c.y.step(), from_step, residual.step()];
        let pack = pack(widest, &all);
        let packed = Self::entry(gpu, c, pack);
        packed.compile()?;
        Ok(Self {
            packed,
            single: Self::entry(gpu, c, 1),
            pack,
            convolution: c.clone(),
            from_step,
        })
    }

    fn entry(gpu: &Gpu, c: &Convolution, pack: usize) -> EntryPoint {
        let ty = element(c.dtype).unwrap_or("float");
        let (code, after, parameters) = (code(c.activation), after(c), parameters(ty));
        let source = format!(
            "{SOURCE}\nextern \"C\" __global__ void finish_convolution({ty}* y, const {ty}* from, {parameters}, const Tail tail) {{\n    \
             finish<{ty}, {pack}, {code}, {after}>(y, from, bias, residual, scale, shift, tail);\n}}\n"
        );
        gpu.compiler.entry(&source, "finish_convolution", 0)
    }

    /// Puts it into the stream of a call, whose [`sides`] it reads as far as they are given.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn run(&self, from: *const u8, sides: [*const u8; 4], call: &Call) -> Result<()> {
        let c = &self.convolution;
        let addresses = [&[call.outputs[0].cast_const(), from], &sides[..]].concat();
        let bytes = self.pack * c.dtype.size();
        let even = addresses.iter().all(|address| address.addr().is_multiple_of(bytes));
        let (pack, function) = if even {
            (self.pack, &self.packed)
        } else {
            (1, &self.single)
        };
        let packs = c.y.sizes[1] / pack as i64;
        let items = c.y.pixels() * packs;
        let [first, second] = numbers(c.activation);
        let other = c.residual.as_ref().unwrap_or(&c.y);
        let mut arguments = Arguments::default();
        addresses.iter().for_each(|&address| _ = arguments.address(address));
        arguments.fields(&fields([
            items,
            packs,
            self.from_step,
            c.y.step(),
            other.step(),
            first,
            second,
        ])?);
        let grid = Grid::over(items as usize, THREADS)?;
        // SAFETY: these are the parameters that the source declares, for operands that the planner vouches for.
        unsafe { function.launch(grid, &arguments, call.stream) }
    }
}

/// The most elements, a power of two, that all of these are multiples of.
pub fn pack(widest: usize, all: &[i64]) -> usize {
    let even = |pack: usize| all.iter().all(|&n| n % pack as i64 == 0);
    let packs = [16, 8, 4, 2].into_iter().filter(|&pack| pack <= widest);
    packs.into_iter().find(|&pack| even(pack)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::cuda::library::cudnn::Tensor;

    #[test]
    fn fewer_axes_are_the_last_ones() {
        let c = Convolution {
            dtype: DType::Float32,
            tf32: false,
            transposed: false,
            x: Tensor::dense(vec![2, 8, 5, 6]),
            w: Tensor::dense(vec![16, 4, 3, 1]),
            y: Tensor::dense(vec![2, 16, 5, 6]),
            strides: vec![1, 2],
            dilations: vec![1, 1],
            begin: vec![1, 0],
            end: vec![1, 0],
            bias: true,
            residual: None,
            activation: Some(Activation::Silu),
            after: After::default(),
        };
        let words = words(&c).unwrap();
        assert_eq!(words[..9], [2, 8, 16, 2, 16, 16, 3, 0, 0]);
        assert_eq!(words[9..17], [240, 1, 0, 48, 8, 12, 1, 4]);
        assert_eq!(words[17..], [1, 5, 6, 1, 5, 6, 1, 3, 1, 1, 1, 2, 1, 1, 1, 0, 1, 0]);
    }

    #[test]
    fn packs_divide_everything() {
        assert_eq!(pack(8, &[64, 192]), 8);
        assert_eq!(pack(8, &[64, 100]), 4);
        assert_eq!(pack(8, &[63]), 1);
    }
}
