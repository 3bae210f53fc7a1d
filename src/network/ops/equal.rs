//! Equal.

use crate::error::Result;
use crate::network::op::{Infer, Lowering, OpDef, Pointwise, TensorType, Uint64};
use crate::network::ops::pointwise;

/// `a == b` with broadcasting, as bool (ONNX Equal).
pub static DEF: OpDef = OpDef {
    name: "Equal",
    doc: "a == b with broadcasting, as bool (ONNX Equal)",
    inputs: &["a", "b"],
    attrs: &[],
    infer,
    evaluate,
    pointwise: Some(Pointwise {
        float: |_, v| f64::from(v[0] == v[1]),
        int: Some(|_, v| i64::from(v[0] == v[1])),
    }),
    lowering: Lowering::WIDE.exact(&[0, 1]),
    uint64: Uint64::Exact,
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let outputs = pointwise::infer_comparison(infer)?;
    Ok(pointwise::combine_values(infer, outputs, |v| {
        pointwise::compared(v, |low, high| {
            if low > 0 || high < 0 {
                Some(false)
            } else if low == 0 && high == 0 {
                Some(true)
            } else {
                None
            }
        })
    }))
}
