//! ReduceMax.

use crate::network::least::Least;
use crate::network::op::{Lowering, OpDef, Uint64};
use crate::network::ops::{pointwise, reduce, values};

/// The greatest element over axes, NaN if one is (ONNX ReduceMax).
pub static DEF: OpDef = OpDef {
    name: "ReduceMax",
    doc: "The greatest element over axes, NaN if one is; of no elements, the least value of the dtype (ONNX ReduceMax)",
    inputs: &["x"],
    attrs: reduce::ATTRS,
    infer: |infer| reduce::infer_extreme(infer, |a, b| values::greatest(&a, b)),
    evaluate: |e| {
        let float = |v: &[f64]| v.iter().copied().fold(f64::NEG_INFINITY, pointwise::greater);
        reduce::evaluate_extreme(e, float, |v| v.iter().copied().max(), values::lowest)
    },
    lowering: Lowering::COMPUTES,
    uint64: Uint64::Exact,
    least: Least::First,
    ..OpDef::PLAIN
};
