//! Max.

use crate::error::Result;
use crate::network::op::{Infer, Lowering, OpDef, Pointwise, TensorType, Uint64};
use crate::network::ops::{pointwise, values};
use crate::network::unsigned::bits;

/// The greater of two, NaN if either is, with broadcasting (ONNX Max).
pub static DEF: OpDef = OpDef {
    name: "Max",
    doc: "The greater of two, NaN if either is, with broadcasting (ONNX Max)",
    inputs: &["a", "b"],
    attrs: &[],
    infer,
    evaluate,
    pointwise: Some(Pointwise {
        float: |_, v| pointwise::greater(v[0], v[1]),
        int: Some(|_, v| v[0].max(v[1])),
    }),
    lowering: Lowering::COMPUTES,
    uint64: Uint64::Rule(|_, v| bits(v)[0].max(bits(v)[1]) as i64),
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let outputs = pointwise::infer_same(infer)?;
    Ok(pointwise::combine_values(infer, outputs, |v| {
        Some(values::greatest(&v[0], &v[1]))
    }))
}
