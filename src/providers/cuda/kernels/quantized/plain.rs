//! Products of 8 bits on plain arithmetic: groups, and what tensor cores do not take. And what all of these kernels share.

use super::Quantized;
use super::blocks::Places;
use super::constants::OnDevice;
use crate::error::Result;
use crate::network::dtype::DType;
use crate::plan::{Call, Instance, Launcher, Prepared};
use crate::providers::cuda::compile::{EntryPoint, compiled};
use crate::providers::cuda::device::{Arguments, Grid};
use crate::providers::cuda::kernels::conv::direct::window;
use crate::providers::cuda::kernels::launch::fields;
use crate::providers::cuda::kernels::pointwise::code::element;
use crate::providers::cuda::kernels::spare::Spare;
use crate::providers::cuda::library::cudnn::Convolution;

/// What becomes of sums.
pub const QUANTIZED: &str = include_str!("../../../../../kernels/quantized.cuh");
const SOURCE: &str = include_str!("../../../../../kernels/quantized_conv.cu");
/// Threads of a block.
pub const THREADS: u32 = 128;

/// The parameters of an entry point for what follows a product: its operands, and its numbers. Their names end so.
pub fn declared(of: &Quantized, end: &str) -> String {
    let operands = 1..=of.behind.operands.len();
    let operands: String = operands
        .map(|number| format!(", const X{number}* x{number}{end}"))
        .collect();
    let others: String = others(of)
        .map(|number| format!(", Z{number}* z{number}{end}"))
        .collect();
    let numbers = (!of.behind.numbers.is_empty()).then(|| format!(", const Numbers n{end}"));
    operands + &others + &numbers.unwrap_or_default()
}

/// The numbers of what it stores beside the result.
fn others(of: &Quantized) -> impl Iterator<Item = usize> {
    1..of.behind.outputs.len()
}

/// What follows, made of these parameters.
pub fn tail(of: &Quantized, end: &str) -> String {
    let operands = (1..=of.behind.operands.len()).map(|number| format!("x{number}{end}"));
    let numbers = (!of.behind.numbers.is_empty()).then(|| format!("n{end}"));
    let others = others(of).map(|number| format!("z{number}{end}"));
    format!(
        "Tail{{{}}}",
        operands.chain(others).chain(numbers).collect::<Vec<_>>().join(", ")
    )
}

/// Its numbers, as bits.
pub fn numbers(of: &Quantized) -> Vec<i32> {
    of.behind.numbers.iter().map(|number| number.to_bits() as i32).collect()
}

/// Adds what these parameters are: operands, where to store what is stored beside the result, and numbers.
pub fn pass(arguments: &mut Arguments, operands: &[*const u8], others: &[*mut u8], numbers: &[i32]) {
    for &address in operands {
        arguments.address(address);
    }
    for &address in others {
        arguments.address(address);
    }
    arguments.fields(numbers);
}

/// `Window` of `quantized_conv.cu`.
#[derive(Clone)]
pub struct Window(pub Vec<i32>);

impl Window {
    /// That of a convolution.
    ///
    /// # Errors
    /// If it is too large.
    pub fn of(of: &Quantized, c: &Convolution) -> Result<Self> {
        let mut words = vec![c.x.sizes[1], c.y.sizes[1], c.groups(), c.x.step(), c.y.step()];
        words.extend([of.constants.pitch as i64, i64::from(of.scheme.zero)]);
        words.extend(window(c));
        fields(words).map(Self)
    }
}

/// Whether each channel is convolved by itself, and may be read with its neighbours.
pub fn is_depthwise(c: &Convolution) -> bool {
    let even = [c.x.step(), c.x.sizes[1]].iter().all(|n| n % 4 == 0);
    even && c.groups() == c.x.sizes[1] && c.y.sizes[1] == c.x.sizes[1]
}

/// The type of the left operand.
pub fn from(of: &Quantized) -> &'static str {
    element(of.scheme.dtype).unwrap_or("int8")
}

/// The type of weights.
pub fn by(of: &Quantized) -> &'static str {
    if of.scheme.is_int() { "int8" } else { from(of) }
}

/// The type of two neighbours of the left operand in `pairs.cuh`.
pub fn pair(of: &Quantized) -> &'static str {
    match of.scheme.dtype {
        DType::UInt8 => "TwoUnsigned",
        DType::Float8E4M3FN => "TwoFloats",
        _ => "TwoSigned",
    }
}

/// The kernel that lays out patches.
pub fn patches_entry(of: &Quantized) -> EntryPoint {
    // It needs no tail, and a source without one is the same for all layers.
    let x = from(of);
    let source = format!(
        "typedef {x} Y0;\nstruct Tail {{\n    __device__ {x} one(float, uint64, int32) const {{ return {x}{{}}; }}\n}};\n\
         {QUANTIZED}{SOURCE}\nextern \"C\" __global__ void patches_of_8_bits({x}* patches, const {x}* x, const Window s, \
         const int64 items) {{\n    lay_patches(patches, x, s, items);\n}}\n"
    );
    of.gpu.compiler.entry(&source, "patches_of_8_bits", 0)
}

#[derive(Clone)]
struct Plain {
    function: EntryPoint,
    grid: Grid,
    window: Window,
    places: Vec<i32>,
    items: i64,
    numbers: Vec<i32>,
    constants: OnDevice,
    /// Where operands lie at odd places, which is rare.
    single: Option<Box<Plain>>,
}

impl Plain {
    fn new(of: &Quantized, c: &Convolution, depthwise: bool) -> Result<Self> {
        let (body, each) = if depthwise {
            ("convolve_depthwise", 4)
        } else {
            ("convolve", 1)
        };
        let (x, w, declared, tail) = (from(of), by(of), declared(of, ""), tail(of, ""));
        let places = Places::of(of, c)?;
        // Channels that are convolved each by itself have a place each.
        let made = if depthwise {
            String::new()
        } else {
            format!(" {},", places.made)
        };
        let source = format!(
            "{QUANTIZED}{}{SOURCE}\nextern \"C\" __global__ void plain_product_of_8_bits(Y0* y, const {x}* x, const {w}* w, \
             const float* scales{declared}, const Window s{}, const int64 pitch, const int64 items) {{\n    \
             {body}(y, x, w, Channels{{scales, (int32)pitch}}, {tail}, s,{made} items);\n}}\n",
            of.behind.text, places.declared
        );
        let items = (c.y.pixels() * c.y.sizes[1]) as usize / each;
        Ok(Self {
            function: of.gpu.compiler.entry(&source, "plain_product_of_8_bits", 0),
            grid: Grid::over(items, THREADS)?,
            window: Window::of(of, c)?,
            places: places.words,
            items: items as i64,
            numbers: numbers(of),
            constants: of.constants.on(&of.gpu.device)?,
            single: match depthwise {
                true => Some(Box::new(Self::new(of, c, false)?)),
                false => None,
            },
        })
    }
}

/// The kernel, four channels a thread where each is by itself.
///
/// # Errors
/// If it is too large.
pub fn prepared(of: &Quantized, c: &Convolution) -> Result<Prepared> {
    let depthwise = is_depthwise(c);
    let how = if depthwise {
        "four channels a thread"
    } else {
        "one result a thread"
    };
    let launcher = Plain::new(of, c, depthwise)?;
    Ok(compiled([launcher.function.clone()], Instance::new(how, launcher)))
}

/// It, where pixels lie as tensor cores do not take them.
///
/// # Errors
/// If it is too large.
pub fn spare(of: &Quantized, c: &Convolution) -> Result<Spare> {
    let plain = Plain::new(of, c, false)?;
    Ok(Spare::new(move || {
        let launcher = plain.clone();
        Ok(compiled(
            [launcher.function.clone()],
            Instance::new("one result a thread", launcher),
        ))
    }))
}

impl Launcher for Plain {
    fn launch(&mut self, call: &Call) -> Result<()> {
        if let Some(single) = self
            .single
            .as_mut()
            .filter(|_| !call.inputs[0].addr().is_multiple_of(4))
        {
            return single.launch(call);
        }
        let mut arguments = Arguments::default();
        arguments.address(call.outputs[0]).address(call.inputs[0]);
        arguments
            .address(self.constants.weights())
            .address(self.constants.lists());
        pass(&mut arguments, &call.inputs[1..], &call.outputs[1..], &self.numbers);
        arguments.fields(&self.window.0).fields(&self.places);
        arguments.number(self.constants.listed()).number(self.items);
        // SAFETY: these are the parameters that the source declares, for operands that the planner vouches for.
        unsafe { self.function.launch(self.grid, &arguments, call.stream) }
    }
}
