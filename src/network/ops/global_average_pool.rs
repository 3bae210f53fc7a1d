//! GlobalAveragePool.

use crate::network::least::Least;
use crate::network::op::{Decomposition, Lowering, OpDef};
use crate::network::ops::{pool, reduce_mean};

/// The average over all spatial axes of each channel, kept as 1 (ONNX GlobalAveragePool).
pub static DEF: OpDef = OpDef {
    name: "GlobalAveragePool",
    doc: "The average over all spatial axes of each channel, kept as 1 (ONNX GlobalAveragePool)",
    inputs: &["x"],
    attrs: &[],
    infer: pool::infer_global,
    evaluate: |e| pool::evaluate_global(&reduce_mean::DEF, e),
    lowering: Lowering::BEARS,
    spatial: true,
    decomposition: Decomposition::Always(|network, id| pool::decompose_global(&reduce_mean::DEF, network, id)),
    least: Least::First,
    ..OpDef::PLAIN
};
