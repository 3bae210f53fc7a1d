//! ReduceSum.

use crate::network::op::{Lowering, OpDef, Uint64};
use crate::network::ops::reduce;

/// The sum over axes; integers wrap (ONNX ReduceSum).
pub static DEF: OpDef = OpDef {
    name: "ReduceSum",
    doc: "The sum over axes; integers wrap (ONNX ReduceSum)",
    inputs: &["x"],
    attrs: reduce::ATTRS,
    infer: |infer| reduce::infer_numbers(infer, |sum, v| sum + v.clone(), 0),
    evaluate: |e| {
        reduce::evaluate(
            e,
            |v| reduce::sum(v.iter().copied()),
            Some(|v| v.iter().fold(0, |sum, &v| sum.wrapping_add(v))),
        )
    },
    lowering: Lowering::WIDE,
    uint64: Uint64::Exact,
    ..OpDef::PLAIN
};
