//! Min.

use crate::error::Result;
use crate::network::op::{Infer, Lowering, OpDef, Pointwise, TensorType, Uint64};
use crate::network::ops::{pointwise, values};
use crate::network::unsigned::bits;

/// The lesser of two, NaN if either is, with broadcasting (ONNX Min).
pub static DEF: OpDef = OpDef {
    name: "Min",
    doc: "The lesser of two, NaN if either is, with broadcasting (ONNX Min)",
    inputs: &["a", "b"],
    attrs: &[],
    infer,
    evaluate,
    pointwise: Some(Pointwise {
        float: |_, v| pointwise::lesser(v[0], v[1]),
        int: Some(|_, v| v[0].min(v[1])),
    }),
    lowering: Lowering::COMPUTES,
    uint64: Uint64::Rule(|_, v| bits(v)[0].min(bits(v)[1]) as i64),
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let outputs = pointwise::infer_same(infer)?;
    Ok(pointwise::combine_values(infer, outputs, |v| {
        Some(values::least(&v[0], &v[1]))
    }))
}
