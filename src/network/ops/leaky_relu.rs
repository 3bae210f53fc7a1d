//! LeakyRelu.

use crate::network::attr::{Preset, Read, attr};
use crate::network::op::{Lowering, OpDef, Pointwise};
use crate::network::ops::pointwise;

/// `x` above 0, `alpha * x` below (ONNX LeakyRelu).
pub static DEF: OpDef = OpDef {
    name: "LeakyRelu",
    doc: "x above 0, alpha * x below (ONNX LeakyRelu)",
    inputs: &["x"],
    attrs: &[attr("alpha", Preset::Float(0.01), "slope below 0")],
    infer: pointwise::infer_float,
    evaluate,
    pointwise: Some(Pointwise {
        float: |a, v| if v[0] < 0.0 { a.float("alpha") * v[0] } else { v[0] },
        int: None,
    }),
    lowering: Lowering::COMPUTES,
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();
