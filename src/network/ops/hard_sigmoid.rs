//! HardSigmoid.

use crate::network::attr::{Preset, Read, attr};
use crate::network::least::Least;
use crate::network::op::{Lowering, OpDef, Pointwise};
use crate::network::ops::pointwise;

/// `max(0, min(1, alpha * x + beta))` (ONNX HardSigmoid).
pub static DEF: OpDef = OpDef {
    name: "HardSigmoid",
    doc: "max(0, min(1, alpha * x + beta)) (ONNX HardSigmoid)",
    inputs: &["x"],
    attrs: &[
        attr("alpha", Preset::Float(0.2), "slope"),
        attr("beta", Preset::Float(0.5), "offset"),
    ],
    infer: pointwise::infer_float,
    evaluate,
    pointwise: Some(Pointwise {
        float: |a, v| (a.float("alpha") * v[0] + a.float("beta")).clamp(0.0, 1.0),
        int: None,
    }),
    lowering: Lowering::BEARS,
    least: Least::Unit,
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();
