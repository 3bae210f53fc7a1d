//! Single numbers, which TensorRT takes as tensors without dimensions.

use crate::error::Result;
use crate::network::Layer;
use crate::network::array::Array;
use crate::network::dtype::DType;
use crate::providers::tensorrt::handle::Tensor;
use crate::providers::tensorrt::writer::Writer;

/// The greatest count. TensorRT counts boxes in int32; and TensorRT-RTX 1.7.1 the steps of a loop that a condition may end
/// besides, for it fails to build one that is given a count in int64.
pub const MOST: i64 = i32::MAX as i64;

/// An input of one element as a scalar.
///
/// # Errors
/// If it is missing, or TensorRT can't have it.
pub fn scalar(w: &mut Writer, layer: &Layer, index: usize) -> Result<Tensor> {
    let given = w.input(layer, index)?;
    w.reshape(given, &[])
}

/// The count that a constant input has, as far as TensorRT counts; none where it comes with a call or is left out.
pub fn known_count(w: &Writer, layer: &Layer, index: usize) -> Option<i64> {
    let known = w.constant_of(layer, index)?.to_i64().first().copied()?;
    Some(known.clamp(0, MOST))
}

/// An int64 input of one element as a scalar of int32, at most [`MOST`]; none where it is left out.
///
/// # Errors
/// If TensorRT refuses.
pub fn count(w: &mut Writer, layer: &Layer, index: usize) -> Result<Option<Tensor>> {
    if layer.inputs.get(index).copied().flatten().is_none() {
        return Ok(None);
    }
    if let Some(known) = known_count(w, layer, index) {
        let known = Array::from_i64(DType::Int32, vec![], &[known])?;
        return w.constant(&known).map(Some);
    }
    let given = scalar(w, layer, index)?;
    let most = w.number(DType::Int64, MOST as f64, 0)?;
    let count = w.elementwise("MIN", given, most)?;
    w.cast(count, DType::Int64, DType::Int32).map(Some)
}
