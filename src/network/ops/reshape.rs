//! Reshape.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::dim::Dim;
use crate::network::op::{Evaluate, Infer, Lowering, Movement, OpDef, TensorType};
use crate::network::ops::rewrite::Rewrite;
use crate::network::ops::values;
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

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
    lowering: Lowering::COMPUTES,
    movement: Movement::View,
    narrow: true,
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let x = infer.input(0)?;
    let Some(target) = infer.value(1) else {
        let ty = TensorType::new(x.dtype, values::target(infer, 1)?);
        infer.require_equal(&x.elements(), &ty.elements(), SAME)?;
        return Ok(vec![ty]);
    };
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
    let product = TensorType::new(x.dtype, shape.as_slice()).elements();
    match open {
        Some(axis) => {
            let rest = remaining(x, &product)?;
            let whole = product * rest.clone();
            infer.require_equal(&x.elements(), &whole, "the elements divide into the target shape")?;
            shape[axis] = rest;
        }
        None => infer.require_equal(&x.elements(), &product, SAME)?,
    }
    Ok(vec![same(x, shape)])
}

/// What every reshape does.
const SAME: &str = "a reshape keeps the number of elements";

/// The type of the same elements under another shape.
pub(super) fn same(x: &TensorType, shape: Vec<Dim>) -> TensorType {
    TensorType { shape, ..x.clone() }
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

/// The reference of every op that only changes the shape.
pub(super) fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    Ok(vec![e.input(0)?.reshaped(e.outputs[0].1.clone())?])
}

/// Writes a layer that only changes the shape as a Reshape.
pub(super) fn decompose(network: &Network, id: LayerId) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let x = rewrite.input(0)?;
    let result = rewrite.reshape(x, rewrite.output(0).shape.clone())?;
    rewrite.finish(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::Attrs;
    use crate::network::dtype::DType;

    #[test]
    fn what_is_left_is_computed_from_symbols() {
        let mut network = Network::new("");
        let shape = ["n", "8", "h", "w"].map(|d| d.parse().unwrap()).to_vec();
        let x = network.add_input("x", DType::Float32, shape).unwrap();
        let target = network.add_constant("target", Array::ints(&[0, 2, -1]));
        let inputs = [Some(x), Some(target)];
        let out = network.add_layer("r", &DEF, Attrs::new(), &inputs).unwrap()[0];
        assert_eq!(network[out].ty.describe(), "float32[n, 2, 4*h*w]");
    }

    #[test]
    fn a_target_that_comes_with_a_call_keeps_the_elements_too() {
        let mut network = Network::new("");
        let x = network.add_input("x", DType::Float32, vec![12i64.into()]).unwrap();
        let nothing = network.add_input("nothing", DType::Int64, vec![0i64.into()]).unwrap();
        assert!(
            network
                .add_layer("r", &DEF, Attrs::new(), &[Some(x), Some(nothing)])
                .is_err()
        );
        let two = network.add_input("two", DType::Int64, vec![2i64.into()]).unwrap();
        network
            .add_layer("s", &DEF, Attrs::new(), &[Some(x), Some(two)])
            .unwrap();
        assert_eq!(network.guards.len(), 1);
    }
}
