//! Compress.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::dtype::DType;
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType, Uint64};
use crate::network::ops::indexing;

/// The slices that a condition picks (ONNX Compress).
pub static DEF: OpDef = OpDef {
    name: "Compress",
    doc: "The slices along an axis, or the elements of the flattened tensor without one, for which the condition holds; \
          those beyond its end are left out (ONNX Compress)",
    inputs: &["x", "condition"],
    attrs: &[
        attr("axis", Preset::Int(0), "the axis to pick along"),
        attr("flat", Preset::Int(0), "there is no axis: the elements are picked"),
    ],
    infer,
    evaluate,
    lowering: Lowering::WIDE,
    uint64: Uint64::Exact,
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (x, condition) = (infer.input(0)?, infer.input(1)?);
    if condition.dtype != DType::Bool || condition.rank() != 1 {
        return Err(Error::shape("the condition must be a vector of truth values").got(condition.describe()));
    }
    let mut shape = x.shape.clone();
    if infer.attrs.flag("flat") {
        shape = vec![infer.counted(0)];
    } else {
        shape[x.axis(infer.attrs.int("axis"))?] = infer.counted(0);
    }
    Ok(vec![TensorType::new(x.dtype, shape)])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (x, condition) = (e.input(0)?, e.input(1)?);
    let (flat, mut shape) = (e.attrs.flag("flat"), x.shape().to_vec());
    let axis = if flat {
        shape = vec![x.len()];
        0
    } else {
        crate::network::constant_type(x).axis(e.attrs.int("axis"))?
    };
    let holds = condition.bytes().iter().enumerate().filter(|(_, b)| **b != 0);
    let kept: Vec<usize> = holds.map(|(i, _)| i).take_while(|&i| i < shape[axis]).collect();
    let count = kept.len();
    let places = indexing::along_axis(&shape, axis, kept);
    shape[axis] = count;
    Ok(vec![indexing::pick(x, shape, &places)?])
}
