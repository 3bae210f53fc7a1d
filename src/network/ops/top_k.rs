//! TopK.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::dtype::DType;
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType, Uint64};
use crate::network::ops::reduce::Groups;
use crate::network::ops::{arg, indexing};
use crate::network::unsigned;

/// The `k` greatest or least elements along an axis, and where they are (ONNX TopK).
pub static DEF: OpDef = OpDef {
    name: "TopK",
    doc: "The k greatest or least elements along an axis and their indices, the best first; of equal ones the first \
          (ONNX TopK)",
    inputs: &["x", "k"],
    attrs: &[
        attr("axis", Preset::Int(-1), "the axis along which to look"),
        attr("largest", Preset::Int(1), "the greatest elements instead of the least"),
        attr(
            "sorted",
            Preset::Int(1),
            "the order of the result matters (it is sorted in any case)",
        ),
    ],
    infer,
    evaluate,
    lowering: Lowering::WIDE,
    uint64: Uint64::Exact,
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (x, k) = (infer.input(0)?, infer.input(1)?);
    let axis = x.axis(infer.attrs.int("axis"))?;
    if !k.dtype.is_int() || !k.elements().is(1) {
        return Err(Error::shape("k must be one integer").got(k.describe()));
    }
    let mut shape = x.shape.clone();
    shape[axis] = infer.value(1).map_or_else(|| infer.fresh(0), |v| v[0].clone());
    if let (Some(count), Some(size)) = (shape[axis].as_const(), x.shape[axis].as_const())
        && !(0..=size).contains(&count)
    {
        return Err(Error::shape("k is out of range")
            .expected(format!("0..={size}"))
            .got(count.to_string()));
    }
    let indices = TensorType::new(DType::Int64, shape.clone());
    Ok(vec![TensorType::new(x.dtype, shape), indices])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (x, shape) = (e.input(0)?, &e.outputs[0].1);
    let axis = crate::network::constant_type(x).axis(e.attrs.int("axis"))?;
    let (largest, k) = (e.attrs.flag("largest"), shape[axis]);
    let (floats, ints) = match x.dtype().is_float() {
        true => (x.to_f64(), vec![]),
        false => (vec![], unsigned::ranks(x)),
    };
    let mut places = vec![0; shape.iter().product()];
    let mut indices = vec![0; places.len()];
    let results = Groups::new(shape, &[axis]);
    for (from, to) in Groups::new(x.shape(), &[axis]).iter().zip(results.iter()) {
        let order = if x.dtype().is_float() {
            arg::ranked(&from.iter().map(|&at| floats[at]).collect::<Vec<_>>(), largest)
        } else {
            arg::ranked(&from.iter().map(|&at| ints[at]).collect::<Vec<_>>(), largest)
        };
        for (at, i) in to.into_iter().zip(order.into_iter().take(k)) {
            (places[at], indices[at]) = (from[i], i as i64);
        }
    }
    Ok(vec![
        indexing::pick(x, shape.clone(), &places)?,
        Array::from_i64(DType::Int64, shape.clone(), &indices)?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attrs, complete};
    use crate::network::reference::evaluate_op;

    #[test]
    fn the_best_come_first_with_their_places() {
        let attrs = complete(DEF.attrs, Attrs::new()).unwrap();
        let x = Array::ints(&[3, 9, 9, 1, 5, 4]).reshaped(vec![2, 3]).unwrap();
        let run = |k| evaluate_op(&DEF, &attrs, &[Some(x.clone()), Some(Array::ints(&[k]))]);
        let out = run(2).unwrap();
        assert_eq!(
            out.iter().map(Array::to_i64).collect::<Vec<_>>(),
            [[9, 9, 5, 4], [1, 2, 1, 2]]
        );
        assert!(run(4).is_err());
    }
}
