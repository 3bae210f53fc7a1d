//! Cast.

use crate::error::Result;
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::op::{Decomposition, Evaluate, Infer, OpDef, TensorType};
use crate::network::ops::values;

/// The same values as another dtype (ONNX Cast).
pub static DEF: OpDef = OpDef {
    name: "Cast",
    doc: "The same values as another dtype: floats round to nearest even, to integers they truncate (ONNX Cast)",
    inputs: &["x"],
    attrs: &[attr("to", Preset::RequiredType, "the dtype of the output")],
    infer,
    evaluate,
    pointwise: None,
    decomposition: Decomposition::None,
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (x, to) = (infer.input(0)?, infer.attrs.dtype("to"));
    // Symbolic dimensions fit 32 bits; numbers may not.
    let fits = |d: &Dim| to != DType::Int32 || d.as_const().is_none_or(|v| i32::try_from(v).is_ok());
    let keeps = values::carried(x.dtype) && values::carried(to) && (to != DType::Bool || x.dtype == to);
    Ok(vec![TensorType {
        dtype: to,
        shape: x.shape.clone(),
        value: x.value.clone().filter(|value| keeps && value.iter().all(fits)),
    }])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    Ok(vec![e.input(0)?.cast(e.attrs.dtype("to"))])
}
