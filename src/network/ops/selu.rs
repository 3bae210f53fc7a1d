//! Selu.

use crate::network::attr::{Preset, Read, attr};
use crate::network::op::{Lowering, OpDef, Pointwise};
use crate::network::ops::pointwise;

/// `gamma * x` above 0, `gamma * alpha * (exp(x) - 1)` below (ONNX Selu).
pub static DEF: OpDef = OpDef {
    name: "Selu",
    doc: "gamma * x above 0, gamma * alpha * (exp(x) - 1) below (ONNX Selu)",
    inputs: &["x"],
    attrs: &[
        attr("alpha", Preset::Float(1.673_263_192_176_818_8), "scale below 0"),
        attr("gamma", Preset::Float(1.050_701_022_148_132_3), "scale everywhere"),
    ],
    infer: pointwise::infer_float,
    evaluate,
    pointwise: Some(Pointwise {
        float: |a, v| {
            a.float("gamma")
                * if v[0] > 0.0 {
                    v[0]
                } else {
                    a.float("alpha") * v[0].exp_m1()
                }
        },
        int: None,
    }),
    lowering: Lowering::BEARS,
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();
