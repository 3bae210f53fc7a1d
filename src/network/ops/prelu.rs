//! PRelu.

use crate::network::op::{Lowering, OpDef, Pointwise, Uint64};
use crate::network::ops::pointwise;

/// `x` above 0, `slope * x` below (ONNX PRelu).
pub static DEF: OpDef = OpDef {
    name: "PRelu",
    doc: "x above 0, slope * x below; slope is broadcast to x (ONNX PRelu)",
    inputs: &["x", "slope"],
    attrs: &[],
    infer: |infer| pointwise::one_way(infer, pointwise::common_number(infer)?),
    evaluate,
    pointwise: Some(Pointwise {
        float: |_, v| if v[0] < 0.0 { v[1] * v[0] } else { v[0] },
        int: Some(|_, v| if v[0] < 0 { v[1].wrapping_mul(v[0]) } else { v[0] }),
    }),
    lowering: Lowering::COMPUTES,
    uint64: Uint64::Rule(|_, v| v[0]),
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();
