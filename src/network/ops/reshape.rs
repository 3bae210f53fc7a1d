//! Reshape.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::dim::Dim;
use crate::network::op::{Decomposition, Evaluate, Infer, OpDef, TensorType};

/// The same elements under another shape (ONNX Reshape).
pub static DEF: OpDef = OpDef {
    name: "Reshape",
    doc: "The same elements, row-major, under another shape; -1 is what is left, 0 the input's dimension (ONNX Reshape)",
    inputs: &["x", "shape"],
    attrs: &[attr(
        "allowzero",
        Preset::Int(0),
        "0 in `shape` means zero elements rather than the input's dimension",
    )],
    infer,
    evaluate,
    pointwise: None,
    decomposition: Decomposition::None,
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let x = infer.input(0)?;
    let target = infer.value(1).ok_or_else(|| {
        Error::unsupported("the target shape depends on data")
            .expected("a constant, or integers that the shapes determine")
    })?;
    let mut shape = vec![];
    let mut open = None;
    for (axis, dim) in target.iter().enumerate() {
        shape.push(match dim.as_const() {
            Some(0) if !infer.attrs.flag("allowzero") => copied_dim(x, axis)?,
            Some(-1) if open.is_none() => {
                open = Some(axis);
                1i64.into()
            }
            Some(size) if size < 0 => {
                return Err(Error::shape("the target shape has a bad dimension")
                    .expected("sizes, 0, and -1 at most once")
                    .got(format!("{size} at axis {axis}")));
            }
            _ => dim.clone(),
        });
    }
    let product = shape.iter().fold(Dim::from(1i64), |p, d| p * d.clone());
    match open {
        Some(axis) => shape[axis] = remaining(x, &product)?,
        None => infer.require_equal(&x.elements(), &product, "a reshape keeps the number of elements")?,
    }
    // A scalar or vector that carries a value keeps it: the elements are the same.
    let value = x.value.clone().filter(|_| shape.len() <= 1);
    Ok(vec![TensorType {
        dtype: x.dtype,
        shape,
        value,
    }])
}

fn copied_dim(x: &TensorType, axis: usize) -> Result<Dim> {
    x.shape.get(axis).cloned().ok_or_else(|| {
        Error::shape("0 in the target shape copies a dimension that the input does not have")
            .expected(format!("an axis below {}", x.rank()))
            .got(axis.to_string())
    })
}

fn remaining(x: &TensorType, known: &Dim) -> Result<Dim> {
    let total = x.elements();
    match (total.as_const(), known.as_const()) {
        (Some(total), Some(known)) if known == 0 || total % known != 0 => {
            Err(Error::shape("the elements do not divide into the target shape")
                .expected(format!("a divisor of {total}"))
                .got(known.to_string()))
        }
        _ => Ok(total.floordiv(known)),
    }
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    Ok(vec![e.input(0)?.reshaped(e.outputs[0].1.clone())?])
}
