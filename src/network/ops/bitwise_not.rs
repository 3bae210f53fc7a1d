//! BitwiseNot.

use crate::network::op::{Decomposition, Lowering, OpDef, Pointwise};
use crate::network::ops::pointwise;

/// The other bits of an integer (ONNX BitwiseNot).
pub static DEF: OpDef = OpDef {
    name: "BitwiseNot",
    doc: "The other bits of an integer (ONNX BitwiseNot)",
    inputs: &["x"],
    attrs: &[],
    infer: pointwise::infer_integer,
    evaluate,
    pointwise: Some(Pointwise {
        float: |_, v| !(v[0] as i64) as f64,
        int: Some(|_, v| !v[0]),
    }),
    lowering: Lowering::WIDE,
    decomposition: Decomposition::None,
};
pointwise::pointwise_evaluate!();
