//! ReduceProd.

use crate::network::op::{Lowering, OpDef, Uint64};
use crate::network::ops::reduce;

/// The product over axes; integers wrap (ONNX ReduceProd).
pub static DEF: OpDef = OpDef {
    name: "ReduceProd",
    doc: "The product over axes; integers wrap (ONNX ReduceProd)",
    inputs: &["x"],
    attrs: reduce::ATTRS,
    infer: |infer| reduce::infer_numbers(infer, |product, v| product * v.clone(), 1),
    evaluate: |e| {
        reduce::evaluate(
            e,
            |v| v.iter().product(),
            Some(|v| v.iter().fold(1, |product, &v| product.wrapping_mul(v))),
        )
    },
    lowering: Lowering::WIDE,
    uint64: Uint64::Exact,
    ..OpDef::PLAIN
};
