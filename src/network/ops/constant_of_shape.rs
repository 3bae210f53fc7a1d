//! ConstantOfShape.

use crate::error::Result;
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::dim::Dim;
use crate::network::op::{Decomposition, Evaluate, Infer, Lowering, OpDef, TensorType, Uint64};
use crate::network::ops::rewrite::Rewrite;
use crate::network::ops::{expand, values};
use crate::network::patch::Patch;
use crate::network::{LONGEST_VALUE, LayerId, Network};

/// One number everywhere (ONNX ConstantOfShape).
pub static DEF: OpDef = OpDef {
    name: "ConstantOfShape",
    doc: "One number everywhere in a tensor of the given shape (ONNX ConstantOfShape, whose value is two attributes here)",
    inputs: &["shape"],
    attrs: &[
        attr("value", Preset::Float(0.0), "the number"),
        attr("dtype", Preset::RequiredType, "the dtype of the output"),
    ],
    infer,
    evaluate,
    lowering: Lowering::WIDE,
    uint64: Uint64::Exact,
    narrow: true,
    decomposition: Decomposition::Always(decompose),
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (dtype, value) = (infer.attrs.dtype("dtype"), infer.attrs.float("value"));
    let mut output = TensorType::new(dtype, values::target(infer, 0)?);
    let count = output
        .elements()
        .as_const()
        .filter(|n| (0..=LONGEST_VALUE as i64).contains(n));
    output.value = count
        .filter(|_| values::carried(dtype))
        .map(|count| vec![Dim::from(value as i64); count as usize]);
    Ok(vec![output])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (dtype, shape) = &e.outputs[0];
    Ok(vec![Array::full(*dtype, shape.clone(), e.attrs.float("value"))?])
}

/// ConstantOfShape => Expand of a scalar.
fn decompose(network: &Network, id: LayerId) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let attrs = rewrite.attrs();
    let number = rewrite.constant(Array::scalar(attrs.dtype("dtype"), attrs.float("value")));
    let result = rewrite.apply(&expand::DEF, &[number, rewrite.input(0)?])?;
    rewrite.finish(result)
}
