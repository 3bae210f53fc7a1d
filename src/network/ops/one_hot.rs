//! OneHot.

use crate::error::Result;
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType, Uint64};
use crate::network::ops::indexing;

/// A new axis with one value at each index and another elsewhere (ONNX OneHot).
pub static DEF: OpDef = OpDef {
    name: "OneHot",
    doc: "A new axis of extent depth: values[1] at the index, values[0] elsewhere; an index out of range is nowhere \
          (ONNX OneHot)",
    inputs: &["indices", "depth", "values"],
    attrs: &[attr("axis", Preset::Int(-1), "the axis of the output that is new")],
    infer,
    evaluate,
    lowering: Lowering::BOUNDED,
    uint64: Uint64::Exact,
    ..OpDef::PLAIN
};

fn axis(indices: usize, axis: i64) -> Result<usize> {
    let grown = vec![Dim::default(); indices + 1];
    TensorType::new(DType::Int64, grown).axis(axis)
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (indices, values) = (infer.input(0)?, infer.input(2)?);
    infer.require_equal(&1i64.into(), &infer.input(1)?.elements(), "depth is one number")?;
    infer.require_equal(&2i64.into(), &values.elements(), "values are two numbers")?;
    let constant = || infer.constant(1).map(|c| Dim::from(c.to_i64()[0]));
    let depth = infer.value(1).map(|v| v[0].clone()).or_else(constant);
    let mut shape = indices.shape.clone();
    let axis = axis(shape.len(), infer.attrs.int("axis"))?;
    shape.insert(axis, depth.unwrap_or_else(|| infer.fresh(0)));
    Ok(vec![TensorType::new(values.dtype, shape)])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (indices, values, shape) = (e.input(0)?, e.input(2)?, &e.outputs[0].1);
    let axis = axis(indices.shape().len(), e.attrs.int("axis"))?;
    let numbers = indices.to_i64();
    let inner: usize = shape[axis + 1..].iter().product();
    let depth = shape[axis] as i64;
    let chosen = |at: usize| {
        let (outer, here) = (at / inner / shape[axis], (at / inner % shape[axis]) as i64);
        let index = numbers[outer * inner + at % inner];
        (here == if index < 0 { index + depth } else { index }) as usize
    };
    let places: Vec<_> = (0..shape.iter().product()).map(chosen).collect();
    Ok(vec![indexing::pick(values, shape.clone(), &places)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::network::reference::evaluate_op;

    #[test]
    fn indices_may_be_negative_or_nowhere() {
        let inputs = [[1, -1, 7].as_slice(), &[2], &[0, 9]].map(|v| Some(Array::ints(v)));
        let out = evaluate_op(&DEF, &attrs([("axis", Attr::Int(0))]), &inputs).unwrap();
        assert_eq!((out[0].shape(), out[0].to_i64()), (&[2, 3][..], vec![0, 0, 0, 9, 9, 0]));
    }
}
