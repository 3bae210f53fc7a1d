//! Mul.

use crate::error::Result;
use crate::network::least::Least;
use crate::network::op::{Infer, Lowering, OpDef, Pointwise, TensorType, Uint64};
use crate::network::ops::pointwise;

/// `a * b` with broadcasting; integers wrap (ONNX Mul).
pub static DEF: OpDef = OpDef {
    name: "Mul",
    doc: "a * b with broadcasting; integers wrap (ONNX Mul)",
    inputs: &["a", "b"],
    attrs: &[],
    infer,
    evaluate,
    pointwise: Some(Pointwise {
        float: |_, v| v[0] * v[1],
        int: Some(|_, v| v[0].wrapping_mul(v[1])),
    }),
    lowering: Lowering::COMPUTES,
    uint64: Uint64::Exact,
    least: Least::Product,
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let outputs = pointwise::infer_same(infer)?;
    Ok(pointwise::combine_values(infer, outputs, |v| {
        Some(v[0].clone() * v[1].clone())
    }))
}
