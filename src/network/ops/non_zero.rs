//! NonZero.

use crate::error::Result;
use crate::network::array::Array;
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType, Uint64};

/// Where the elements are that are not zero (ONNX NonZero).
pub static DEF: OpDef = OpDef {
    name: "NonZero",
    doc: "The indices of the elements that are not zero, row-major, one column each: int64 [rank of x, count] (ONNX \
          NonZero)",
    inputs: &["x"],
    attrs: &[],
    infer,
    evaluate,
    lowering: Lowering::WIDE,
    uint64: Uint64::Exact,
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let rank = infer.input(0)?.rank();
    let count = match infer.constant(0) {
        Some(x) => (marked(x).len() as i64).into(),
        None => infer.counted(0),
    };
    Ok(vec![TensorType::new(DType::Int64, vec![Dim::from(rank as i64), count])])
}

/// The places of the elements that are not zero.
fn marked(x: &Array) -> Vec<usize> {
    let bytes = x.bytes().chunks_exact(x.dtype().size());
    match x.dtype().is_float() {
        true => x
            .to_f64()
            .iter()
            .enumerate()
            .filter(|(_, v)| **v != 0.0)
            .map(|(i, _)| i)
            .collect(),
        false => bytes
            .enumerate()
            .filter(|(_, b)| b.iter().any(|&v| v != 0))
            .map(|(i, _)| i)
            .collect(),
    }
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let x = e.input(0)?;
    let places = marked(x);
    let steps = crate::network::ops::strides(x.shape());
    let axes = x.shape().iter().zip(&steps);
    let index: Vec<i64> = axes
        .flat_map(|(&extent, &step)| places.iter().map(move |place| (place / step % extent) as i64))
        .collect();
    Ok(vec![Array::from_i64(
        DType::Int64,
        vec![x.shape().len(), places.len()],
        &index,
    )?])
}
