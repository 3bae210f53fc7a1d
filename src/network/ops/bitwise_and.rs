//! BitwiseAnd.

use crate::network::op::{Lowering, OpDef, Pointwise, Uint64};
use crate::network::ops::pointwise;

/// The bits of two integers combined by and, with broadcasting (ONNX BitwiseAnd).
pub static DEF: OpDef = OpDef {
    name: "BitwiseAnd",
    doc: "The bits of two integers combined by and, with broadcasting (ONNX BitwiseAnd)",
    inputs: &["a", "b"],
    attrs: &[],
    infer: pointwise::infer_integer,
    evaluate,
    pointwise: Some(Pointwise {
        float: |_, v| (v[0] as i64 & v[1] as i64) as f64,
        int: Some(|_, v| v[0] & v[1]),
    }),
    lowering: Lowering::WIDE,
    uint64: Uint64::Exact,
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();
