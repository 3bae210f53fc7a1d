//! ArgMin.

use crate::network::op::{Lowering, OpDef, Uint64};
use crate::network::ops::arg;

/// The index of the least element along an axis (ONNX ArgMin).
pub static DEF: OpDef = OpDef {
    name: "ArgMin",
    doc: "The index of the least element along an axis, or of the first NaN, as int64 (ONNX ArgMin)",
    inputs: &["x"],
    attrs: arg::ATTRS,
    infer: arg::infer,
    evaluate: |e| arg::evaluate(e, false),
    lowering: Lowering::WIDE,
    uint64: Uint64::Exact,
    ..OpDef::PLAIN
};
