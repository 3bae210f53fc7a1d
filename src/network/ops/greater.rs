//! Greater.

use crate::error::Result;
use crate::network::op::{Infer, Lowering, OpDef, Pointwise, TensorType, Uint64};
use crate::network::ops::pointwise;
use crate::network::unsigned::bits;

/// `a > b` with broadcasting, as bool (ONNX Greater).
pub static DEF: OpDef = OpDef {
    name: "Greater",
    doc: "a > b with broadcasting, as bool (ONNX Greater)",
    inputs: &["a", "b"],
    attrs: &[],
    infer,
    evaluate,
    pointwise: Some(Pointwise {
        float: |_, v| f64::from(v[0] > v[1]),
        int: Some(|_, v| i64::from(v[0] > v[1])),
    }),
    lowering: Lowering::WIDE.exact(&[0, 1]),
    uint64: Uint64::Rule(|_, v| (bits(v)[0] > bits(v)[1]).into()),
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let outputs = pointwise::infer_comparison(infer)?;
    Ok(pointwise::combine_values(infer, outputs, |v| {
        pointwise::compared(v, |low, high| {
            if low > 0 {
                Some(true)
            } else if high <= 0 {
                Some(false)
            } else {
                None
            }
        })
    }))
}
