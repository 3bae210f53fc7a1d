//! RMSNormalization.

use crate::network::attr::{Preset, attr};
use crate::network::op::{Decomposition, Lowering, OpDef};
use crate::network::ops::normalization;

/// The trailing dimensions divided by their root mean square, then scaled (ONNX RMSNormalization).
pub static DEF: OpDef = OpDef {
    name: "RMSNormalization",
    doc: "scale * x / sqrt(mean(x^2) + epsilon), over the dimensions from axis on (ONNX RMSNormalization)",
    inputs: &["x", "scale"],
    attrs: &[
        attr("axis", Preset::Int(-1), "the first axis of those that belong together"),
        normalization::EPSILON,
        normalization::STASH_TYPE,
    ],
    infer: normalization::infer_trailing,
    evaluate: |e| normalization::evaluate_trailing(e, false),
    lowering: Lowering::BEARS,
    decomposition: Decomposition::WithoutKernel(|network, id| normalization::decompose_trailing(network, id, false)),
    ..OpDef::PLAIN
};
