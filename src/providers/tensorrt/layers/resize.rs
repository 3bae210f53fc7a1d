//! Images at other sizes, and read between elements.

use super::Family;
use crate::error::{Error, Result};
use crate::network::Layer;
use crate::network::array::Array;
use crate::network::attr::Read;
use crate::providers::tensorrt::handle::{Spec, Tensor};
use crate::providers::tensorrt::writer::{Extents, Writer};

/// See [`super::FAMILIES`].
pub const FAMILY: Family = Family {
    ops: &["Resize", "GridSample"],
    write,
};

fn write(w: &mut Writer, layer: &Layer) -> Result<Vec<Tensor>> {
    Ok(vec![match layer.op.name {
        "Resize" => resize(w, layer)?,
        _ => grid_sample(w, layer)?,
    }])
}

fn interpolation(mode: &str) -> &'static str {
    match mode {
        "nearest" => "NEAREST",
        "linear" => "LINEAR",
        _ => "CUBIC",
    }
}

fn resize(w: &mut Writer, layer: &Layer) -> Result<Tensor> {
    let attrs = &layer.attrs;
    let lacks = |what: &str| Err(Error::unsupported(format!("TensorRT has no resize with {what}")));
    let mode = interpolation(attrs.text("mode"));
    if attrs.flag("antialias") {
        return lacks("antialias");
    }
    if attrs.flag("exclude_outside") {
        return lacks("exclude_outside");
    }
    if attrs.text("keep_aspect_ratio_policy") != "stretch" {
        return lacks("an aspect ratio that is kept");
    }
    let (coordinates, upper) = match attrs.text("coordinate_transformation_mode") {
        "half_pixel" => ("HALF_PIXEL", false),
        // The same but for an extent of 1, which reads the first element.
        "pytorch_half_pixel" => ("HALF_PIXEL", true),
        "align_corners" => ("ALIGN_CORNERS", false),
        "asymmetric" => ("ASYMMETRIC", false),
        other => return lacks(other),
    };
    let rounding = match attrs.text("nearest_mode") {
        "round_prefer_floor" => "HALF_DOWN",
        "round_prefer_ceil" => "HALF_UP",
        "floor" => "FLOOR",
        _ => "CEIL",
    };
    let (ty, y) = (w.ty(layer, 0)?, &w.network[layer.outputs[0]].ty);
    let x = w.input(layer, 0)?;
    let spec = Spec::new("Resize").input(x);
    let spec = match scales(w, layer, ty.rank()) {
        Some(scales) => spec.floats("scales", scales),
        None if layer.inputs.get(2).copied().flatten().is_some()
            && w.ty(layer, 2)?.elements().as_const() != Some(0) =>
        {
            return lacks("scales that come with a call");
        }
        None => match w.extents(&y.shape, false)? {
            Extents::Known(known) => spec.ints("shape", known),
            Extents::Computed(computed) => spec.input(computed),
        },
    };
    let spec = spec
        .word("mode", mode)
        .word("coordinates", coordinates)
        .int("upper", upper);
    w.one(match mode {
        "NEAREST" => spec.word("rounding", rounding),
        "CUBIC" => spec.float("cubic", attrs.float("cubic_coeff_a")),
        _ => spec,
    })
}

/// A factor for each axis, where they are constants.
fn scales(w: &Writer, layer: &Layer, rank: usize) -> Option<Vec<f32>> {
    let given = w
        .constant_of(layer, 2)
        .map(Array::to_f64)
        .filter(|scales| !scales.is_empty())?;
    let mut scales = vec![1.0; rank];
    match layer.attrs.ints("axes") {
        [] => scales
            .iter_mut()
            .zip(given)
            .for_each(|(scale, given)| *scale = given as f32),
        axes => {
            for (&axis, given) in axes.iter().zip(given) {
                scales[w.ty(layer, 0).ok()?.axis(axis).ok()?] = given as f32;
            }
        }
    }
    Some(scales)
}

fn grid_sample(w: &mut Writer, layer: &Layer) -> Result<Tensor> {
    if w.ty(layer, 0)?.rank() != 4 {
        return Err(Error::unsupported("TensorRT samples images of two spatial axes"));
    }
    if layer.attrs.flag("clamp_taps") {
        return Err(Error::unsupported(
            "nothing says how TensorRT reads neighbours behind the border",
        ));
    }
    let (x, grid) = (w.input(layer, 0)?, w.input(layer, 1)?);
    let border = match layer.attrs.text("padding_mode") {
        "zeros" => "FILL",
        "border" => "CLAMP",
        _ => "REFLECT",
    };
    let spec = Spec::new("GridSample").input(x).input(grid).word("border", border);
    let spec = spec.word("mode", interpolation(layer.attrs.text("mode")));
    w.one(spec.int("align_corners", layer.attrs.flag("align_corners")))
}
