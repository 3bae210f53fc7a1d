//! IsInf.

use crate::network::attr::{Preset, Read, attr};
use crate::network::op::{Lowering, OpDef, Pointwise};
use crate::network::ops::pointwise;

/// Whether elements are infinite (ONNX IsInf).
pub static DEF: OpDef = OpDef {
    name: "IsInf",
    doc: "Whether elements are infinite, as bool (ONNX IsInf)",
    inputs: &["x"],
    attrs: &[
        attr("detect_negative", Preset::Int(1), "below 0 counts"),
        attr("detect_positive", Preset::Int(1), "above 0 counts"),
    ],
    infer: pointwise::infer_test,
    evaluate,
    pointwise: Some(Pointwise {
        float: |attrs, v| {
            let sign = if v[0] < 0.0 {
                "detect_negative"
            } else {
                "detect_positive"
            };
            f64::from(v[0].is_infinite() && attrs.flag(sign))
        },
        int: None,
    }),
    lowering: Lowering::WIDE,
    narrow: true,
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();
