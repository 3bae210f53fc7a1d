//! Quantize and Dequantize: symmetric, with one scale or one for each entry of an axis.

use super::Family;
use crate::error::{Error, Result};
use crate::network::Layer;
use crate::network::array::Array;
use crate::network::dtype::DType;
use crate::network::op::TensorType;
use crate::providers::tensorrt::handle::{Spec, Tensor, dtype_name};
use crate::providers::tensorrt::writer::Writer;

/// See [`super::FAMILIES`].
pub const FAMILY: Family = Family {
    ops: &["QuantizeLinear", "DequantizeLinear"],
    write,
};

fn write(w: &mut Writer, layer: &Layer) -> Result<Vec<Tensor>> {
    let quantizes = layer.op.name == "QuantizeLinear";
    let y = &w.network[layer.outputs[0]].ty;
    let narrow = if quantizes { y.dtype } else { w.ty(layer, 0)?.dtype };
    if !matches!(narrow, DType::Int8 | DType::Float8E4M3FN) {
        return Err(Error::unsupported(format!(
            "TensorRT quantizes to int8 and float8_e4m3fn, not to {narrow}"
        )));
    }
    if layer.inputs.get(2).copied().flatten().is_some() {
        let zero = w.constant_of(layer, 2).and_then(Array::uniform);
        if zero != Some(0.0) {
            return Err(
                Error::unsupported("TensorRT quantizes symmetrically: the zero point must be 0")
                    .hint("quantize it symmetrically, or let another provider run it"),
            );
        }
    }
    let scale = w
        .constant_of(layer, 1)
        .ok_or_else(|| Error::unsupported("the scale must be a constant"))?;
    let axis = axis(scale, w.ty(layer, 0)?)?;
    let x = w.input(layer, 0)?;
    let shape = if axis.is_some() { vec![scale.len()] } else { vec![] };
    let scale = w.constant(&scale.reshaped(shape)?)?;
    let kind = if quantizes { "Quantize" } else { "Dequantize" };
    let spec = Spec::new(kind).input(x).input(scale).word("to", dtype_name(y.dtype)?);
    Ok(vec![w.one(match axis {
        Some(axis) => spec.int("axis", axis as i64),
        None => spec,
    })?])
}

/// The axis along which scales differ, counted in x.
fn axis(scale: &Array, x: &TensorType) -> Result<Option<usize>> {
    let long: Vec<usize> = (0..scale.shape().len())
        .filter(|&axis| scale.shape()[axis] > 1)
        .collect();
    match long[..] {
        [] => Ok(None),
        [axis] => Ok(Some(axis + x.rank() - scale.shape().len())),
        _ => Err(Error::unsupported("scales differ along several axes")),
    }
}
