//! Celu.

use crate::network::attr::{Preset, Read, attr};
use crate::network::least::Least;
use crate::network::op::{Lowering, OpDef, Pointwise};
use crate::network::ops::pointwise;

/// `max(0, x) + min(0, alpha * (exp(x / alpha) - 1))` (ONNX Celu).
pub static DEF: OpDef = OpDef {
    name: "Celu",
    doc: "max(0, x) + min(0, alpha * (exp(x / alpha) - 1)) (ONNX Celu)",
    inputs: &["x"],
    attrs: &[attr("alpha", Preset::Float(1.0), "scale below 0")],
    infer: pointwise::infer_float,
    evaluate,
    pointwise: Some(Pointwise {
        float: |a, v| {
            if v[0] < 0.0 {
                a.float("alpha") * (v[0] / a.float("alpha")).exp_m1()
            } else {
                v[0]
            }
        },
        int: None,
    }),
    lowering: Lowering::BEARS,
    least: Least::Negative("alpha"),
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();
