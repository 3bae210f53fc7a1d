//! Products of 8 bits of the first convolution of a network: the kernel of `stem.cu`, which reads pixels as they lie.

use super::Quantized;
use super::constants::OnDevice;
use super::plain;
use crate::error::Result;
use crate::network::dtype::DType;
use crate::plan::{Call, Instance, Launcher, Prepared};
use crate::providers::cuda::compile::{EntryPoint, compiled};
use crate::providers::cuda::device::{Arguments, Grid};
use crate::providers::cuda::kernels::conv::geometry::Geometry;
use crate::providers::cuda::kernels::conv::stem::{self, Share, THREADS};
use crate::providers::cuda::kernels::launch::fields;
use crate::providers::cuda::kernels::pointwise::code::element;
use crate::providers::cuda::kernels::quantize_behind::params;
use crate::providers::cuda::library::cudnn::Convolution;

const SOURCE: &str = include_str!("../../../../../kernels/quantized_stem.cu");
/// The sum of so many products of 8 bits stays below 2^24 in magnitude, with what the zero point takes off it too: float32 holds each such
/// integer.
const MOST_TERMS: usize = 256;

/// Whether the kernel is for a convolution with so many terms.
pub fn fits(geometry: &Geometry, terms: usize) -> bool {
    geometry.traits(DType::Int8).stem && terms <= MOST_TERMS
}

fn source(of: &Quantized, c: &Convolution, share: &Share) -> String {
    let (code, w, declared, tail) = (
        plain::from(of),
        plain::by(of),
        plain::declared(of, ""),
        plain::tail(of, ""),
    );
    let (x, beyond, reader) = match of.image.and_then(element) {
        // Zero is what the zero point stands for.
        Some(x) => (x, format!("{x}{{}}"), format!("AsCodes<float16, {code}>{{codes}}")),
        // Its last byte is the code.
        None => (code, format!("*(const {code}*)&outside"), "AsTheyAre<float16>{}".into()),
    };
    format!(
        "{}{}{}{SOURCE}\nextern \"C\" __global__ void __launch_bounds__({THREADS}, 2) first_convolution_of_8_bits(Y0* y, \
         const {x}* x, const {w}* w, const float* scales{declared}, const Shape s, const int64 pitch, const int64 terms, \
         const int64 outside, const QuantizeParams codes) {{\n    \
         const Tail tail = {tail};\n    \
         const bool wide = s.y_step % 8 == 0 && (uint64)y % sizeof(Pack<Y0, 8>) == 0 && tail.wide();\n    \
         const ScaledWriter writer{{y, Channels{{scales, (int32)pitch}}, tail, wide}};\n    \
         stem<float16, {x}, {w}, {}>(x, w, (int32)terms, {beyond}, {reader}, writer, s);\n}}\n",
        plain::QUANTIZED,
        of.behind.text,
        stem::SOURCE,
        share.window(c),
    )
}

/// The kernel, of an input in any layout.
///
/// # Errors
/// If it is too large.
pub fn prepared(of: &Quantized, c: &Convolution) -> Result<Prepared> {
    let share = Share::of(&of.gpu, c);
    let source = source(of, c, &share);
    let function = of.gpu.compiler.entry(&source, "first_convolution_of_8_bits", 0);
    let launcher = FirstConvolution {
        function: function.clone(),
        grid: share.grid,
        shape: fields(share.words)?,
        terms: of.constants.pitch as i64,
        outside: i64::from(of.scheme.zero),
        codes: params(of.scheme),
        numbers: plain::numbers(of),
        constants: of.constants.on(&of.gpu.device)?,
    };
    Ok(compiled(
        [function],
        Instance::new("few channels, on tensor cores", launcher),
    ))
}

struct FirstConvolution {
    function: EntryPoint,
    grid: Grid,
    shape: Vec<i32>,
    terms: i64,
    outside: i64,
    codes: [i32; 4],
    numbers: Vec<i32>,
    constants: OnDevice,
}

impl Launcher for FirstConvolution {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let mut arguments = Arguments::default();
        arguments.address(call.outputs[0]).address(call.inputs[0]);
        arguments
            .address(self.constants.weights())
            .address(self.constants.lists());
        plain::pass(&mut arguments, &call.inputs[1..], &call.outputs[1..], &self.numbers);
        arguments.fields(&self.shape);
        for number in [self.constants.listed(), self.terms, self.outside] {
            arguments.number(number);
        }
        arguments.fields(&self.codes);
        // SAFETY: these are the parameters that the source declares, for operands that the planner vouches for.
        unsafe { self.function.launch(self.grid, &arguments, call.stream) }
    }
}
