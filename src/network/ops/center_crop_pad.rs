//! CenterCropPad.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attrs, Preset, Read, attr};
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType, Uint64};
use crate::network::ops::{gather, indexing, reduce, values};

/// The middle of the input, or the input in the middle of zeros (ONNX CenterCropPad).
pub static DEF: OpDef = OpDef {
    name: "CenterCropPad",
    doc: "The input cut to, or padded with zeros to, a shape along axes, evenly at both ends; the odd element at the end \
          (ONNX CenterCropPad)",
    inputs: &["x", "shape"],
    attrs: &[attr(
        "axes",
        Preset::Ints(&[]),
        "the axes that the shape names; empty: all",
    )],
    infer,
    evaluate,
    lowering: Lowering::WIDE,
    uint64: Uint64::Exact,
    ..OpDef::PLAIN
};

fn axes(attrs: &Attrs, x: &TensorType) -> Result<Vec<usize>> {
    let axes = attrs.ints("axes");
    if axes.is_empty() {
        return Ok((0..x.rank()).collect());
    }
    reduce::distinct(axes, x)?;
    axes.iter().map(|&a| x.axis(a)).collect()
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (x, wanted) = (infer.input(0)?, gather::index_tensor(infer, 1)?);
    let axes = axes(infer.attrs, x)?;
    if wanted.rank() != 1 || !wanted.elements().is(axes.len() as i64) {
        return Err(Error::shape("the shape does not fit")
            .expected(format!("{} integers, one per axis", axes.len()))
            .got(wanted.describe()));
    }
    let mut shape = x.shape.clone();
    for (axis, size) in axes.into_iter().zip(values::target(infer, 1)?) {
        if size.as_const().is_some_and(|size| size < 0) {
            return Err(Error::shape("an extent is negative").got(size.to_string()));
        }
        shape[axis] = size;
    }
    Ok(vec![TensorType::new(x.dtype, shape)])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (x, shape) = (e.input(0)?, &e.outputs[0].1);
    let (mut from, mut to) = (vec![], vec![]);
    for (&had, &wanted) in x.shape().iter().zip(shape) {
        let kept = had.min(wanted);
        let middle = |size: usize| (size - kept) / 2;
        from.push((middle(had)..middle(had) + kept).collect::<Vec<_>>());
        to.push((middle(wanted)..middle(wanted) + kept).collect::<Vec<_>>());
    }
    let (from, to) = (indexing::grid(x.shape(), &from), indexing::grid(shape, &to));
    let kept = indexing::pick(x, vec![from.len()], &from)?;
    let zeros = Array::full(x.dtype(), shape.clone(), 0.0)?;
    Ok(vec![indexing::put(&zeros, &to, &kept)?])
}
