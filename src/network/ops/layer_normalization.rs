//! LayerNormalization.

use crate::network::attr::{Preset, attr};
use crate::network::op::{Decomposition, Lowering, OpDef};
use crate::network::ops::normalization;

/// The trailing dimensions brought to mean 0 and variance 1, then scaled and shifted (ONNX LayerNormalization).
pub static DEF: OpDef = OpDef {
    name: "LayerNormalization",
    doc: "scale * (x - mean) / sqrt(variance + epsilon) + bias, over the dimensions from axis on (ONNX \
          LayerNormalization, without its outputs Mean and InvStdDev)",
    inputs: &["x", "scale", "bias?"],
    attrs: &[
        attr("axis", Preset::Int(-1), "the first axis of those that belong together"),
        normalization::EPSILON,
        normalization::STASH_TYPE,
    ],
    infer: normalization::infer_trailing,
    evaluate: |e| normalization::evaluate_trailing(e, true),
    lowering: Lowering::BEARS,
    decomposition: Decomposition::WithoutKernel(|network, id| normalization::decompose_trailing(network, id, true)),
    ..OpDef::PLAIN
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::array::Array;
    use crate::network::attr::{Attr, complete};
    use crate::network::dtype::DType;
    use crate::network::reference::evaluate_op;

    #[test]
    fn one_row_by_hand() {
        let row = |values: &[f64]| Some(Array::from_f64(DType::Float64, vec![values.len()], values).unwrap());
        let attrs = complete(DEF.attrs, [("epsilon".into(), Attr::Float(0.0))].into()).unwrap();
        let out = evaluate_op(&DEF, &attrs, &[row(&[1.0, 3.0]), row(&[2.0, 2.0]), row(&[0.0, 1.0])]).unwrap();
        assert_eq!(out[0].to_f64(), [-2.0, 3.0]);
    }
}
