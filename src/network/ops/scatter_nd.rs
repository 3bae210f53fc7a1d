//! ScatterND.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::op::{Evaluate, Infer, Lowering, Movement, OpDef, TensorType, Uint64};
use crate::network::ops::{gather, gather_nd, scatter};

/// The input with updates at the slices that index vectors name (ONNX ScatterND).
pub static DEF: OpDef = OpDef {
    name: "ScatterND",
    doc: "The input with updates at the slices that the vectors in the last dimension of the indices name (ONNX ScatterND)",
    inputs: &["x", "indices", "updates"],
    attrs: &[scatter::REDUCTION],
    infer,
    evaluate,
    lowering: Lowering::COMPUTES,
    movement: Movement::Fill,
    uint64: Uint64::Exact,
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (x, indices, updates) = (infer.input(0)?, gather::index_tensor(infer, 1)?, infer.input(2)?);
    scatter::check(infer)?;
    let length = gather_nd::vector_length(x, indices, 0)?;
    let lead = &indices.shape[..indices.rank() - 1];
    let wanted = TensorType::new(x.dtype, [lead, &x.shape[length..]].concat());
    if wanted.rank() != updates.rank() {
        return Err(Error::shape("the updates do not fit")
            .expected(wanted.describe())
            .got(updates.describe()));
    }
    for (a, b) in wanted.shape.iter().zip(&updates.shape) {
        infer.require_equal(a, b, "there is one update per slice")?;
    }
    Ok(vec![TensorType::new(x.dtype, x.shape.clone())])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let x = e.input(0)?;
    let (starts, length) = gather_nd::slice_starts(x, e.input(1)?, 0)?;
    let places: Vec<_> = starts.iter().flat_map(|&start| start..start + length).collect();
    Ok(vec![scatter::scatter(e.attrs, x, &places, e.input(2)?)?])
}
