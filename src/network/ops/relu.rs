//! Relu.

use crate::network::least::Least;
use crate::network::op::{Lowering, OpDef, Pointwise};
use crate::network::ops::pointwise;

/// `max(x, 0)` (ONNX Relu).
pub static DEF: OpDef = OpDef {
    name: "Relu",
    doc: "max(x, 0) (ONNX Relu)",
    inputs: &["x"],
    attrs: &[],
    infer: pointwise::infer_same,
    evaluate,
    // Written so that NaN stays NaN.
    pointwise: Some(Pointwise {
        float: |_, v| if v[0] < 0.0 { 0.0 } else { v[0] },
        int: Some(|_, v| v[0].max(0)),
    }),
    lowering: Lowering::COMPUTES,
    least: Least::At(0.0),
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();
