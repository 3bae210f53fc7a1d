//! IsNaN.

use crate::network::op::{Lowering, OpDef, Pointwise};
use crate::network::ops::pointwise;

/// Whether elements are no numbers (ONNX IsNaN).
pub static DEF: OpDef = OpDef {
    name: "IsNaN",
    doc: "Whether elements are no numbers, as bool (ONNX IsNaN)",
    inputs: &["x"],
    attrs: &[],
    infer: pointwise::infer_test,
    evaluate,
    pointwise: Some(Pointwise {
        float: |_, v| f64::from(v[0].is_nan()),
        int: None,
    }),
    lowering: Lowering::WIDE,
    narrow: true,
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();
