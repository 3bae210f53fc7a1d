//! Div.

use crate::error::Result;
use crate::network::op::{Infer, Lowering, OpDef, Pointwise, TensorType, Uint64};
use crate::network::ops::{pointwise, values};
use crate::network::unsigned::bits;

/// `a / b` with broadcasting; integers truncate towards zero, and by 0 give 0 (ONNX Div).
pub static DEF: OpDef = OpDef {
    name: "Div",
    doc: "a / b with broadcasting; integers truncate towards zero, and by 0 give 0 (ONNX Div)",
    inputs: &["a", "b"],
    attrs: &[],
    infer,
    evaluate,
    pointwise: Some(Pointwise {
        float: |_, v| v[0] / v[1],
        int: Some(|_, v| if v[1] == 0 { 0 } else { v[0].wrapping_div(v[1]) }),
    }),
    lowering: Lowering::WIDE,
    uint64: Uint64::Rule(|_, v| bits(v)[0].checked_div(bits(v)[1]).unwrap_or(0) as i64),
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let outputs = pointwise::infer_same(infer)?;
    Ok(pointwise::combine_values(infer, outputs, |v| {
        values::divided(&v[0], &v[1])
    }))
}
