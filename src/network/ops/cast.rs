//! Cast.

use crate::error::Result;
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::op::{Decomposition, Evaluate, Infer, OpDef, TensorType};

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
    // Dimensions fit 32 bits; a cast to a narrower integer or a float may not keep the value.
    let keeps = to.is_int() && to.size() >= 4;
    Ok(vec![TensorType {
        dtype: to,
        shape: x.shape.clone(),
        value: x.value.clone().filter(|_| keeps),
    }])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    Ok(vec![e.input(0)?.cast(e.attrs.dtype("to"))])
}
