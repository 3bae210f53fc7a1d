//! LessOrEqual.

use crate::error::Result;
use crate::network::op::{Decomposition, Infer, Lowering, OpDef, Pointwise, TensorType};
use crate::network::ops::pointwise;

/// `a <= b` with broadcasting, as bool (ONNX LessOrEqual).
pub static DEF: OpDef = OpDef {
    name: "LessOrEqual",
    doc: "a <= b with broadcasting, as bool (ONNX LessOrEqual)",
    inputs: &["a", "b"],
    attrs: &[],
    infer,
    evaluate,
    pointwise: Some(Pointwise {
        float: |_, v| f64::from(v[0] <= v[1]),
        int: Some(|_, v| i64::from(v[0] <= v[1])),
    }),
    lowering: Lowering::WIDE.exact(&[0, 1]),
    decomposition: Decomposition::None,
};
pointwise::pointwise_evaluate!();

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let outputs = pointwise::infer_comparison(infer)?;
    Ok(pointwise::combine_values(infer, outputs, |v| {
        pointwise::compared(v, |low, high| {
            if high <= 0 {
                Some(true)
            } else if low > 0 {
                Some(false)
            } else {
                None
            }
        })
    }))
}
