//! Sign.

use crate::network::op::{Lowering, OpDef, Pointwise, Uint64};
use crate::network::ops::pointwise;

/// -1, 0 or 1 as x is below, at or above 0; NaN stays (ONNX Sign).
pub static DEF: OpDef = OpDef {
    name: "Sign",
    doc: "-1, 0 or 1 as x is below, at or above 0; NaN stays (ONNX Sign)",
    inputs: &["x"],
    attrs: &[],
    infer: pointwise::infer_same,
    evaluate,
    pointwise: Some(Pointwise {
        float: |_, v| if v[0] == 0.0 { 0.0 } else { v[0].signum() },
        int: Some(|_, v| v[0].signum()),
    }),
    lowering: Lowering::BEARS,
    uint64: Uint64::Rule(|_, v| (v[0] != 0).into()),
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();
