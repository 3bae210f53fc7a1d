//! BitwiseNot.

use crate::network::op::{Lowering, OpDef, Pointwise, Uint64};
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
    uint64: Uint64::Exact,
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();
