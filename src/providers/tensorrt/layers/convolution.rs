//! Convolutions and their transposes.

use super::Family;
use crate::error::{Error, Result};
use crate::network::Layer;
use crate::network::attr::Read;
use crate::network::dim::Dim;
use crate::network::op::TensorType;
use crate::network::ops::conv_transpose;
use crate::network::ops::spatial::Window;
use crate::providers::tensorrt::handle::{Spec, Tensor};
use crate::providers::tensorrt::writer::Writer;

/// See [`super::FAMILIES`].
pub const CONV: Family = Family {
    ops: &["Conv"],
    write: convolution,
};
/// See [`super::FAMILIES`].
pub const TRANSPOSE: Family = Family {
    ops: &["ConvTranspose"],
    write: deconvolution,
};

/// The extents of a kernel, as numbers.
fn kernel(weights: &TensorType) -> Result<Vec<i64>> {
    let extents: Option<Vec<i64>> = weights.shape.iter().skip(2).map(Dim::as_const).collect();
    extents.ok_or_else(|| Error::unsupported("the kernel's extents come with a call"))
}

/// Padding before and after along each axis, of sizes that may come with a call.
///
/// # Errors
/// If the padding depends on such sizes, or is negative.
pub fn padding(window: &Window, auto: bool, input: &[Dim], output: &[Dim]) -> Result<(Vec<i64>, Vec<i64>)> {
    let sides = (0..window.kernel.len()).map(|axis| match (input[axis].as_const(), output[axis].as_const()) {
        (Some(input), Some(output)) => Ok(window.padding(axis, input, output)),
        _ if auto => Err(Error::unsupported("auto_pad of an extent that comes with a call")),
        _ => Ok(window.padding(axis, 0, 0)),
    });
    let (begin, end): (Vec<i64>, Vec<i64>) = sides.collect::<Result<Vec<_>>>()?.into_iter().unzip();
    match begin.iter().chain(&end).any(|&pad| pad < 0) {
        true => Err(Error::unsupported("TensorRT has no negative padding")),
        false => Ok((begin, end)),
    }
}

/// Whether padding follows from sizes.
pub fn is_auto(layer: &Layer) -> bool {
    layer.attrs.text("auto_pad").starts_with("SAME")
}

/// The input with a last axis of 1 where it has one spatial axis: TensorRT's windows have two or three.
pub fn widened(w: &mut Writer, x: Tensor, ty: &TensorType) -> Result<(Tensor, bool)> {
    if ty.rank() != 3 {
        return Ok((x, false));
    }
    let shape: Vec<Dim> = ty.shape.iter().cloned().chain([Dim::from(1i64)]).collect();
    Ok((w.reshape(x, &shape)?, true))
}

/// A list for each spatial axis, with one for the axis that [`widened`] added.
pub fn along(mut list: Vec<i64>, widened: bool, other: i64) -> Vec<i64> {
    if widened {
        list.push(other);
    }
    list
}

/// What both kinds have in common: weights, bias, groups.
fn write(
    w: &mut Writer,
    layer: &Layer,
    kind: &str,
    maps: i64,
    window: &Window,
    pads: (Vec<i64>, Vec<i64>),
) -> Result<Tensor> {
    let ty = w.ty(layer, 0)?;
    let x = w.input(layer, 0)?;
    let (x, wide) = widened(w, x, ty)?;
    let mut spec = Spec::new(kind).input(x);
    // Weights that are constants are read where they are; those of a Dequantize come as a tensor.
    let weights = match w.constant_of(layer, 1) {
        Some(_) => None,
        None if wide => return Err(Error::unsupported("quantized weights of one spatial axis")),
        None => Some(w.input(layer, 1)?),
    };
    let has_bias = layer.inputs.get(2).copied().flatten().is_some();
    let bias = match w.constant_of(layer, 2) {
        None if has_bias => Some(w.input(layer, 2)?),
        _ => None,
    };
    spec = spec.optional(weights).optional(bias);
    if let Some(array) = w.constant_of(layer, 1) {
        spec = spec.weights(array)?;
        if let Some(array) = w.constant_of(layer, 2) {
            spec = spec.weights(array)?;
        }
    } else if w.constant_of(layer, 2).is_some() {
        let bias = w.input(layer, 2)?;
        spec = Spec::new(kind).input(x).optional(weights).input(bias);
    }
    let spec = spec
        .int("maps", maps)
        .int("groups", layer.attrs.int("group"))
        .ints("kernel", along(window.kernel.clone(), wide, 1))
        .ints("strides", along(window.strides.clone(), wide, 1))
        .ints("dilations", along(window.dilations.clone(), wide, 1))
        .ints("pre_padding", along(pads.0, wide, 0))
        .ints("post_padding", along(pads.1, wide, 0));
    let y = w.one(spec)?;
    match wide {
        true => w.reshape(y, &w.network[layer.outputs[0]].ty.shape),
        false => Ok(y),
    }
}

fn convolution(w: &mut Writer, layer: &Layer) -> Result<Vec<Tensor>> {
    let (x, weights) = (w.ty(layer, 0)?, w.ty(layer, 1)?);
    let window = Window::read(&layer.attrs, kernel(weights)?)?;
    let y = &w.network[layer.outputs[0]].ty;
    let pads = padding(&window, is_auto(layer), &x.shape[2..], &y.shape[2..])?;
    let maps = weights.shape[0].as_const();
    let maps = maps.ok_or_else(|| Error::unsupported("the number of channels comes with a call"))?;
    Ok(vec![write(w, layer, "Convolution", maps, &window, pads)?])
}

fn deconvolution(w: &mut Writer, layer: &Layer) -> Result<Vec<Tensor>> {
    let (x, weights) = (w.ty(layer, 0)?, w.ty(layer, 1)?);
    if is_auto(layer) || !layer.attrs.ints("output_shape").is_empty() {
        return Err(Error::unsupported(
            "TensorRT has no auto_pad and no output_shape of transposed convolutions",
        ));
    }
    let (window, ..) = conv_transpose::geometry(&layer.attrs, &weights.shape, &x.shape[2..])?;
    let extra = layer.attrs.ints("output_padding");
    let end = window.end.iter().enumerate();
    // What an output is longer at its end is padding less there.
    let end: Vec<i64> = end
        .map(|(axis, pad)| pad - extra.get(axis).copied().unwrap_or(0))
        .collect();
    if window.begin.iter().chain(&end).any(|&pad| pad < 0) {
        return Err(Error::unsupported("TensorRT has no output_padding beyond the padding"));
    }
    let maps = weights.shape[1].as_const().map(|maps| maps * layer.attrs.int("group"));
    let maps = maps.ok_or_else(|| Error::unsupported("the number of channels comes with a call"))?;
    let pads = (window.begin.clone(), end);
    Ok(vec![write(w, layer, "Deconvolution", maps, &window, pads)?])
}
