//! ArgMax.

use crate::network::op::{Lowering, OpDef, Uint64};
use crate::network::ops::arg;

/// The index of the greatest element along an axis (ONNX ArgMax).
pub static DEF: OpDef = OpDef {
    name: "ArgMax",
    doc: "The index of the greatest element along an axis, or of the first NaN, as int64 (ONNX ArgMax)",
    inputs: &["x"],
    attrs: arg::ATTRS,
    infer: arg::infer,
    evaluate: |e| arg::evaluate(e, true),
    lowering: Lowering::WIDE,
    uint64: Uint64::Exact,
    ..OpDef::PLAIN
};
