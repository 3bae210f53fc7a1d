//! ThresholdedRelu.

use crate::network::attr::{Preset, Read, attr};
use crate::network::op::{Lowering, OpDef, Pointwise};
use crate::network::ops::pointwise;

/// `x` above alpha, else 0 (ONNX ThresholdedRelu).
pub static DEF: OpDef = OpDef {
    name: "ThresholdedRelu",
    doc: "x above alpha, else 0 (ONNX ThresholdedRelu)",
    inputs: &["x"],
    attrs: &[attr("alpha", Preset::Float(1.0), "threshold")],
    infer: pointwise::infer_float,
    evaluate,
    pointwise: Some(Pointwise {
        float: |a, v| if v[0] > a.float("alpha") { v[0] } else { 0.0 },
        int: None,
    }),
    lowering: Lowering::COMPUTES,
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();
