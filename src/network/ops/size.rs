//! Size.

use crate::error::Result;
use crate::network::array::Array;
use crate::network::dtype::DType;
use crate::network::op::{Decomposition, Infer, Lowering, OpDef, TensorType, Uint64};
use crate::network::ops::shape;

/// The number of elements, as an int64 scalar (ONNX Size).
pub static DEF: OpDef = OpDef {
    name: "Size",
    doc: "The number of elements, as an int64 scalar (ONNX Size)",
    inputs: &["x"],
    attrs: &[],
    infer,
    evaluate: |e| Ok(vec![Array::ints(&[e.input(0)?.len() as i64]).reshaped(vec![])?]),
    lowering: Lowering::WIDE,
    uint64: Uint64::Exact,
    narrow: true,
    decomposition: Decomposition::Always(shape::decompose),
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    Ok(vec![TensorType {
        dtype: DType::Int64,
        shape: vec![],
        value: Some(vec![infer.input(0)?.elements()]),
    }])
}
