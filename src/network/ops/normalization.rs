//! What normalisations share: checks of their parameters, and the reference.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{AttrDef, Preset, Read, attr};
use crate::network::op::{Evaluate, Infer, TensorType};
use crate::network::ops::pointwise::{self, broadcast_places};
use crate::network::ops::rewrite::Rewrite;
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// `epsilon`.
pub const EPSILON: AttrDef = attr("epsilon", Preset::Float(1e-5), "added to the variance");
/// `stash_type`.
pub const STASH_TYPE: AttrDef = attr(
    "stash_type",
    Preset::Int(1),
    "1: statistics of 16-bit floats are computed in float32 (ONNX's number of that dtype)",
);

/// The type of the input, which must be a floating-point one: the output has it too.
pub fn same_float(infer: &Infer) -> Result<TensorType> {
    let x = infer.input(0)?;
    if !x.dtype.is_float() {
        return Err(Error::dtype("the op normalises floating-point tensors").got(x.dtype.name()));
    }
    Ok(x.clone())
}

/// Checks that a parameter has one floating-point number per channel, `[C]`.
pub fn check_channels(infer: &Infer, index: usize) -> Result<()> {
    let (x, parameter) = (infer.input(0)?, infer.input(index)?);
    let channels = x.shape.get(1).ok_or_else(|| {
        Error::shape("the input has no channels")
            .expected("[N, C, ...]")
            .got(x.describe())
    })?;
    if parameter.rank() != 1 || !parameter.dtype.is_float() {
        return Err(Error::shape(format!("input {index} must have one number per channel"))
            .expected(format!("[{channels}]"))
            .got(parameter.describe()));
    }
    infer.require_equal(channels, &parameter.shape[0], "a parameter has one number per channel")
}

/// Checks that the parameters have the dtype of the input.
pub fn check_parameters(infer: &Infer) -> Result<()> {
    let inputs: Vec<_> = infer.inputs.iter().flatten().collect();
    pointwise::same_dtype(&inputs)
}

/// The rule of normalisations of all dimensions from `axis` on, with parameters that are broadcast.
pub fn infer_trailing(infer: &Infer) -> Result<Vec<TensorType>> {
    let x = same_float(infer)?;
    x.axis(infer.attrs.int("axis"))?;
    pointwise::one_way(infer, pointwise::common_float(infer)?)
}

/// The reference of normalisations of all dimensions from `axis` on.
pub fn evaluate_trailing(e: &Evaluate, centred: bool) -> Result<Vec<Array>> {
    let x = e.input(0)?;
    let axis = crate::network::constant_type(x).axis(e.attrs.int("axis"))?;
    let mut data = x.to_f64();
    let length = x.shape()[axis..].iter().product();
    normalise(&mut data, length, e.attrs.float("epsilon"), centred);
    affine(&mut data, x.shape(), e.input(1)?, e.optional(2));
    e.output(&data)
}

/// Writes a normalisation of all dimensions from `axis` on as reductions and pointwise ops.
pub fn decompose_trailing(network: &Network, id: LayerId, centred: bool) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let x = rewrite.input(0)?;
    let (ty, attrs) = (rewrite.ty(x).clone(), rewrite.attrs());
    let axes: Vec<_> = (ty.axis(attrs.int("axis"))?..ty.rank()).collect();
    let wide = rewrite.stashed(x)?;
    let normalised = rewrite.normalised(wide, &axes, attrs.float("epsilon"), centred)?;
    let normalised = rewrite.cast(normalised, ty.dtype)?;
    let result = rewrite.affine(normalised, rewrite.input(1)?, rewrite.optional(2))?;
    rewrite.finish(result)
}

/// Visits each element of an array `[N, C, ...]` with its channel.
pub fn each_channel(shape: &[usize], mut visit: impl FnMut(usize, usize)) {
    let inner: usize = shape[2..].iter().product();
    (0..shape.iter().product()).for_each(|place| visit(place, place / inner.max(1) % shape[1]));
}

/// `x / sqrt(mean(x^2) + epsilon)` of each run of `length` elements, after the mean was taken off if `centred`.
pub fn normalise(data: &mut [f64], length: usize, epsilon: f64, centred: bool) {
    for run in data.chunks_mut(length.max(1)) {
        let mean = |run: &[f64], f: fn(f64) -> f64| run.iter().map(|&v| f(v)).sum::<f64>() / run.len() as f64;
        let centre = if centred { mean(run, |v| v) } else { 0.0 };
        run.iter_mut().for_each(|v| *v -= centre);
        let deviation = (mean(run, |v| v * v) + epsilon).sqrt();
        run.iter_mut().for_each(|v| *v /= deviation);
    }
}

/// `data * scale + bias`, both broadcast.
pub fn affine(data: &mut [f64], shape: &[usize], scale: &Array, bias: Option<&Array>) {
    let (values, places) = (scale.to_f64(), broadcast_places(scale.shape(), shape));
    data.iter_mut().zip(places).for_each(|(v, at)| *v *= values[at]);
    if let Some(bias) = bias {
        let (values, places) = (bias.to_f64(), broadcast_places(bias.shape(), shape));
        data.iter_mut().zip(places).for_each(|(v, at)| *v += values[at]);
    }
}

/// `data * scale + bias`, both `[C]`, of an array `[N, C, ...]`.
pub fn affine_channels(e: &Evaluate, data: &mut [f64]) -> Result<Vec<Array>> {
    let (scale, bias) = (e.input(1)?.to_f64(), e.input(2)?.to_f64());
    each_channel(e.input(0)?.shape(), |place, c| {
        data[place] = data[place] * scale[c] + bias[c]
    });
    e.output(data)
}
