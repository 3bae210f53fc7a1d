//! ReduceMin.

use crate::network::least::Least;
use crate::network::op::{Lowering, OpDef, Uint64};
use crate::network::ops::{pointwise, reduce, values};

/// The least element over axes, NaN if one is (ONNX ReduceMin).
pub static DEF: OpDef = OpDef {
    name: "ReduceMin",
    doc: "The least element over axes, NaN if one is; of no elements, the greatest value of the dtype (ONNX ReduceMin)",
    inputs: &["x"],
    attrs: reduce::ATTRS,
    infer: |infer| reduce::infer_extreme(infer, |a, b| values::least(&a, b)),
    evaluate: |e| {
        let float = |v: &[f64]| v.iter().copied().fold(f64::INFINITY, pointwise::lesser);
        reduce::evaluate_extreme(e, float, |v| v.iter().copied().min(), values::highest)
    },
    lowering: Lowering::COMPUTES,
    uint64: Uint64::Exact,
    least: Least::First,
    ..OpDef::PLAIN
};
