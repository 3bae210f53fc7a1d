//! ReduceMean.

use crate::network::op::{Lowering, OpDef};
use crate::network::ops::reduce;

/// The mean over axes (ONNX ReduceMean).
pub static DEF: OpDef = OpDef {
    name: "ReduceMean",
    doc: "The mean over axes (ONNX ReduceMean)",
    inputs: &["x"],
    attrs: reduce::ATTRS,
    infer: reduce::infer,
    evaluate: |e| reduce::evaluate(e, |v| reduce::sum(v.iter().copied()) / v.len() as f64, None),
    lowering: Lowering::COMPUTES,
    ..OpDef::PLAIN
};
