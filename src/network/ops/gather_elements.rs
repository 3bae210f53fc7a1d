//! GatherElements.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::op::{Evaluate, Infer, Lowering, Movement, OpDef, TensorType};
use crate::network::ops::{gather, indexing, strides};

/// For each index the element at its place, but with the index along one axis (ONNX GatherElements).
pub static DEF: OpDef = OpDef {
    name: "GatherElements",
    doc: "For each index the element at its place, but with the index along one axis; negative ones count from the back \
          (ONNX GatherElements, torch.gather)",
    inputs: &["x", "indices"],
    attrs: &[attr("axis", Preset::Int(0), "the axis along which the indices count")],
    infer,
    evaluate,
    lowering: Lowering::COMPUTES,
    movement: Movement::Pick,
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (x, indices) = (infer.input(0)?, gather::index_tensor(infer, 1)?);
    check_indices(infer, x, indices)?;
    Ok(vec![TensorType::new(x.dtype, indices.shape.clone())])
}

/// Refuses indices that reach beyond `x` along another axis than theirs.
pub(super) fn check_indices(infer: &Infer, x: &TensorType, indices: &TensorType) -> Result<()> {
    let axis = x.axis(infer.attrs.int("axis"))?;
    if x.rank() != indices.rank() {
        return Err(Error::shape("input and indices differ in rank")
            .expected(x.describe())
            .got(indices.describe()));
    }
    for other in (0..x.rank()).filter(|&other| other != axis) {
        let why = format!("along axis {other} there are no more indices than elements");
        infer.require_at_most(&indices.shape[other], &x.shape[other], &why)?;
    }
    Ok(())
}

/// The places in `x` that `indices` along an axis name, one per index.
pub(super) fn element_places(x: &Array, indices: &Array, axis: i64) -> Result<Vec<usize>> {
    let axis = crate::network::constant_type(x).axis(axis)?;
    let strides = strides(x.shape());
    let positions = indexing::positions(indices.shape());
    let place = |(mut position, index): (Vec<usize>, i64)| {
        position[axis] = indexing::index(index, x.shape()[axis])?;
        Ok(position.iter().zip(&strides).map(|(i, stride)| i * stride).sum())
    };
    positions.into_iter().zip(indices.to_i64()).map(place).collect()
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (x, indices) = (e.input(0)?, e.input(1)?);
    let places = element_places(x, indices, e.attrs.int("axis"))?;
    Ok(vec![indexing::pick(x, indices.shape().to_vec(), &places)?])
}
