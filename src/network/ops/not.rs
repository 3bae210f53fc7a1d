//! Not.

use crate::error::Result;
use crate::network::dim::Dim;
use crate::network::op::{Infer, Lowering, OpDef, Pointwise, TensorType};
use crate::network::ops::pointwise;

/// The other truth value (ONNX Not).
pub static DEF: OpDef = OpDef {
    name: "Not",
    doc: "The other truth value (ONNX Not)",
    inputs: &["x"],
    attrs: &[],
    infer,
    evaluate,
    pointwise: Some(Pointwise {
        float: |_, v| f64::from(v[0] == 0.0),
        int: Some(|_, v| 1 - v[0]),
    }),
    lowering: Lowering::WIDE,
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let outputs = pointwise::infer_logical(infer)?;
    Ok(pointwise::combine_values(infer, outputs, |v| {
        Some(Dim::from(1i64) - v[0].clone())
    }))
}
