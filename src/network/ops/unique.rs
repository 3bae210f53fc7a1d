//! Unique.

use crate::error::Result;
use crate::network::array::{Array, require};
use crate::network::attr::{Preset, Read, attr};
use crate::network::dtype::DType;
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType, Uint64};
use crate::network::ops::indexing;
use crate::network::unsigned;
use std::cmp::Ordering;

/// The different slices of a tensor (ONNX Unique).
pub static DEF: OpDef = OpDef {
    name: "Unique",
    doc: "The different slices along an axis, or elements of the flattened tensor without one; then, all int64: the first \
          index of each, for each slice of x which one it is, and how often each occurs (ONNX Unique)",
    inputs: &["x"],
    attrs: &[
        attr("axis", Preset::Int(0), "the axis of the slices"),
        attr("flat", Preset::Int(0), "there is no axis: elements are compared"),
        attr(
            "sorted",
            Preset::Int(1),
            "in ascending order instead of that of first occurrence",
        ),
    ],
    infer,
    evaluate,
    lowering: Lowering::WIDE,
    uint64: Uint64::Exact,
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (x, count) = (infer.input(0)?, infer.counted(0));
    let (mut shape, all) = if infer.attrs.flag("flat") {
        (vec![count.clone()], x.elements())
    } else {
        let axis = x.axis(infer.attrs.int("axis"))?;
        (x.shape.clone(), x.shape[axis].clone())
    };
    if !infer.attrs.flag("flat") {
        shape[x.axis(infer.attrs.int("axis"))?] = count.clone();
    }
    let ints = |size| TensorType::new(DType::Int64, vec![size]);
    let values = TensorType::new(x.dtype, shape);
    Ok(vec![values, ints(count.clone()), ints(all), ints(count)])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (x, flat) = (e.input(0)?, e.attrs.flag("flat"));
    let mut shape = if flat { vec![x.len()] } else { x.shape().to_vec() };
    let axis = match flat {
        true => 0,
        false => crate::network::constant_type(x).axis(e.attrs.int("axis"))?,
    };
    // What lists of so many slices take besides their places.
    require(shape[axis].saturating_mul(3 * size_of::<Vec<usize>>()))?;
    let slices: Vec<Vec<usize>> = (0..shape[axis])
        .map(|i| indexing::along_axis(&shape, axis, vec![i]))
        .collect();
    let (floats, ints) = (x.to_f64(), unsigned::ranks(x));
    let element = |a: usize, b: usize| match x.dtype().is_float() {
        true => order(floats[a], floats[b]),
        false => ints[a].cmp(&ints[b]),
    };
    let compare = |a: usize, b: usize| {
        let pairs = slices[a].iter().zip(&slices[b]);
        pairs
            .map(|(&a, &b)| element(a, b))
            .find(|o| o.is_ne())
            .unwrap_or(Ordering::Equal)
    };
    let mut sorted: Vec<usize> = (0..slices.len()).collect();
    sorted.sort_by(|&a, &b| compare(a, b));
    // Runs of equal slices; a stable sort has the first occurrence in front.
    let mut groups: Vec<Vec<usize>> = sorted
        .chunk_by(|&a, &b| compare(a, b).is_eq())
        .map(<[_]>::to_vec)
        .collect();
    if !e.attrs.flag("sorted") {
        groups.sort_by_key(|group| group[0]);
    }
    let mut inverse = vec![0i64; slices.len()];
    for (number, group) in groups.iter().enumerate() {
        group.iter().for_each(|&slice| inverse[slice] = number as i64);
    }
    let firsts: Vec<usize> = groups.iter().map(|group| group[0]).collect();
    let places = indexing::along_axis(&shape, axis, firsts.clone());
    shape[axis] = groups.len();
    let vector = |values: Vec<i64>| Array::from_i64(DType::Int64, vec![values.len()], &values);
    Ok(vec![
        indexing::pick(x, shape, &places)?,
        vector(firsts.iter().map(|&i| i as i64).collect())?,
        vector(inverse)?,
        vector(groups.iter().map(|group| group.len() as i64).collect())?,
    ])
}

/// As numpy sorts: NaN last, and equal to itself.
fn order(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}
