//! Neg.

use crate::error::Result;
use crate::network::op::{Infer, Lowering, OpDef, Pointwise, TensorType};
use crate::network::ops::pointwise;

/// `-x`; integers wrap (ONNX Neg).
pub static DEF: OpDef = OpDef {
    name: "Neg",
    doc: "-x; integers wrap (ONNX Neg)",
    inputs: &["x"],
    attrs: &[],
    infer,
    evaluate,
    pointwise: Some(Pointwise {
        float: |_, v| -v[0],
        int: Some(|_, v| v[0].wrapping_neg()),
    }),
    lowering: Lowering::COMPUTES,
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let outputs = pointwise::infer_signed(infer)?;
    Ok(pointwise::combine_values(infer, outputs, |v| Some(-v[0].clone())))
}
