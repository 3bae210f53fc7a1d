//! And.

use crate::error::Result;
use crate::network::op::{Infer, Lowering, OpDef, Pointwise, TensorType};
use crate::network::ops::pointwise;

/// `a and b` of bool tensors, with broadcasting (ONNX And).
pub static DEF: OpDef = OpDef {
    name: "And",
    doc: "a and b of bool tensors, with broadcasting (ONNX And)",
    inputs: &["a", "b"],
    attrs: &[],
    infer,
    evaluate,
    pointwise: Some(Pointwise {
        float: |_, v| f64::from((v[0] != 0.0) & (v[1] != 0.0)),
        int: Some(|_, v| v[0] & v[1]),
    }),
    lowering: Lowering::WIDE,
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let outputs = pointwise::infer_logical(infer)?;
    Ok(pointwise::combine_values(infer, outputs, |v| {
        Some((v[0].as_const()? & v[1].as_const()?).into())
    }))
}
