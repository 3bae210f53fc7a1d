//! GlobalMaxPool.

use crate::network::least::Least;
use crate::network::op::{Decomposition, Lowering, OpDef};
use crate::network::ops::{pool, reduce_max};

/// The max over all spatial axes of each channel, kept as 1 (ONNX GlobalMaxPool).
pub static DEF: OpDef = OpDef {
    name: "GlobalMaxPool",
    doc: "The max over all spatial axes of each channel, kept as 1 (ONNX GlobalMaxPool)",
    inputs: &["x"],
    attrs: &[],
    infer: pool::infer_global,
    evaluate: |e| pool::evaluate_global(&reduce_max::DEF, e),
    lowering: Lowering::COMPUTES,
    spatial: true,
    decomposition: Decomposition::Always(|network, id| pool::decompose_global(&reduce_max::DEF, network, id)),
    least: Least::First,
    ..OpDef::PLAIN
};
