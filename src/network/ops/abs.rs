//! Abs.

use crate::network::least::Least;
use crate::network::op::{Lowering, OpDef, Pointwise, Uint64};
use crate::network::ops::pointwise;

/// `|x|`; integers wrap (ONNX Abs).
pub static DEF: OpDef = OpDef {
    name: "Abs",
    doc: "|x|; integers wrap (ONNX Abs)",
    inputs: &["x"],
    attrs: &[],
    infer: pointwise::infer_same,
    evaluate,
    pointwise: Some(Pointwise {
        float: |_, v| v[0].abs(),
        int: Some(|_, v| v[0].wrapping_abs()),
    }),
    lowering: Lowering::COMPUTES,
    uint64: Uint64::Rule(|_, v| v[0]),
    least: Least::At(0.0),
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();
