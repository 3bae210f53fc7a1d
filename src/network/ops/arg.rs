//! What ops share that look for the greatest or least elements.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{AttrDef, Preset, Read, attr};
use crate::network::dtype::DType;
use crate::network::op::{Evaluate, Infer, TensorType};
use crate::network::ops::reduce::{self, Groups};
use crate::network::unsigned;
use std::cmp::Ordering;

/// The attributes of ArgMax and ArgMin.
pub const ATTRS: &[AttrDef] = &[
    attr("axis", Preset::Int(0), "the axis along which to look"),
    attr("keepdims", Preset::Int(1), "keep the dimension as 1"),
    attr(
        "select_last_index",
        Preset::Int(0),
        "of equal elements take the last instead of the first",
    ),
];

/// The places of elements from the best on; of equal ones the first comes first, and NaN is better than any number.
pub fn ranked<T: PartialOrd>(values: &[T], greatest: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| compare(&values[a], &values[b], greatest));
    order
}

/// How two elements rank, the better one first.
pub fn compare<T: PartialOrd>(a: &T, b: &T, greatest: bool) -> Ordering {
    let number = |v: &T| v.partial_cmp(v).is_some();
    match a.partial_cmp(b) {
        Some(order) if greatest => order.reverse(),
        Some(order) => order,
        None => number(a).cmp(&number(b)),
    }
}

fn best<T: PartialOrd + Copy>(data: &[T], groups: &Groups, greatest: bool, last: bool) -> Vec<i64> {
    let group = |places: Vec<usize>| {
        let values: Vec<_> = places.iter().map(|&at| data[at]).collect();
        let order = |&a: &usize, &b: &usize| {
            let tie = if last { b.cmp(&a) } else { a.cmp(&b) };
            compare(&values[a], &values[b], greatest).then(tie)
        };
        (0..values.len()).min_by(order).unwrap_or(0) as i64
    };
    groups.iter().map(group).collect()
}

/// The rule of ArgMax and ArgMin.
pub fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let x = infer.input(0)?;
    let axis = x.axis(infer.attrs.int("axis"))?;
    if x.shape[axis].is(0) {
        return Err(Error::shape("an empty dimension has no greatest or least element").got(x.describe()));
    }
    let shape = reduce::reduced(&x.shape, &[axis], infer.attrs.flag("keepdims"));
    Ok(vec![TensorType::new(DType::Int64, shape)])
}

/// The reference of ArgMax and ArgMin.
pub fn evaluate(e: &Evaluate, greatest: bool) -> Result<Vec<Array>> {
    let x = e.input(0)?;
    let axis = crate::network::constant_type(x).axis(e.attrs.int("axis"))?;
    let (groups, last) = (Groups::new(x.shape(), &[axis]), e.attrs.flag("select_last_index"));
    let indices = if x.dtype().is_float() {
        best(&x.to_f64(), &groups, greatest, last)
    } else {
        best(&unsigned::ranks(x), &groups, greatest, last)
    };
    let (dtype, shape) = &e.outputs[0];
    Ok(vec![Array::from_i64(*dtype, shape.clone(), &indices)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_put_nan_first_and_keep_ties_in_order() {
        assert_eq!(ranked(&[1.0, f64::NAN, 3.0, 3.0], true), [1, 2, 3, 0]);
        assert_eq!(ranked(&[2, 1, 2], false), [1, 0, 2]);
    }
}
