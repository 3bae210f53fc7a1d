//! Pad.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attrs, Preset, Read, attr};
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::op::{Evaluate, Infer, Lowering, Movement, OpDef, TensorType};
use crate::network::ops::{pointwise, reduce, strides, values};

/// The input with elements added before and after along axes (ONNX Pad).
pub static DEF: OpDef = OpDef {
    name: "Pad",
    doc: "The input with elements added (or, where negative, cut off) before and after along axes; pads has all counts \
          before, then all after (ONNX Pad)",
    inputs: &["x", "pads", "constant_value?", "axes?"],
    attrs: &[attr(
        "mode",
        Preset::Text("constant"),
        "constant, reflect (the edge not repeated), edge or wrap",
    )],
    infer,
    evaluate,
    lowering: Lowering::COMPUTES,
    movement: Movement::Fill,
    narrow: true,
    ..OpDef::PLAIN
};

fn axes(given: Option<Vec<i64>>, x: &TensorType) -> Result<Vec<usize>> {
    match given {
        None => Ok((0..x.rank()).collect()),
        Some(axes) => {
            reduce::distinct(&axes, x)?;
            axes.iter().map(|&a| x.axis(a)).collect()
        }
    }
}

/// For an index outside of an axis of `size` the one that it repeats, if any.
fn source(attrs: &Attrs) -> Result<fn(i64, i64) -> Option<i64>> {
    Ok(match attrs.text("mode") {
        "constant" => |_, _| None,
        "edge" => |i, size| Some(i.clamp(0, size - 1)),
        "wrap" => |i, size| Some(i.rem_euclid(size)),
        "reflect" => |i, size| {
            let period = (2 * (size - 1)).max(1);
            let i = i.rem_euclid(period);
            Some(i.min(period - i).min(size - 1))
        },
        other => {
            return Err(Error::invalid("attribute \"mode\" is unknown")
                .expected("constant, reflect, edge or wrap")
                .got(other));
        }
    })
}

/// Refuses to repeat the elements of an empty input.
///
/// # Errors
/// If `from` has no elements and `to` has some.
pub fn check_repeats(from: &[usize], to: &[usize]) -> Result<()> {
    if from.contains(&0) && !to.contains(&0) {
        return Err(Error::shape("there is no element that the padding could repeat")
            .got(format!("input {from:?}, output {to:?}"))
            .hint("pad with mode \"constant\", or give a larger input"));
    }
    Ok(())
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let x = infer.input(0)?;
    source(infer.attrs)?;
    let given = infer.optional(3).map(|_| infer.numbers(3));
    if given.as_ref().is_some_and(Result::is_err) {
        let shape: Vec<Dim> = (0..x.rank()).map(|axis| infer.fresh(axis)).collect();
        return Ok(vec![TensorType::new(x.dtype, shape)]);
    }
    let axes = axes(given.transpose()?, x)?;
    let lacks_zero = x.dtype == DType::Float8E8M0 && infer.attrs.text("mode") == "constant";
    if lacks_zero && infer.optional(2).is_none() {
        return Err(Error::dtype("this dtype has no 0 to pad with")
            .got(x.dtype.name())
            .hint("give constant_value"));
    }
    if let Some(value) = infer.optional(2) {
        pointwise::same_dtype(&[x, value])?;
        if !value.elements().is(1) {
            return Err(Error::shape("constant_value must be a scalar").got(value.describe()));
        }
    }
    if !infer.input(1)?.elements().is(2 * axes.len() as i64) {
        return Err(Error::shape("pads does not fit")
            .expected(format!("{} integers", 2 * axes.len()))
            .got(infer.input(1)?.describe()));
    }
    let mut shape = x.shape.clone();
    for (i, &axis) in axes.iter().enumerate() {
        shape[axis] = match infer.value(1) {
            Some(pads) => shape[axis].clone() + pads[i].clone() + pads[axes.len() + i].clone(),
            None => infer.fresh(axis),
        };
        if shape[axis].as_const().is_some_and(|v| v < 0) {
            return Err(Error::shape("negative pads cut off more than there is").got(x.describe()));
        }
        if infer.attrs.text("mode") != "constant" && x.shape[axis].is(0) && !shape[axis].is(0) {
            return Err(Error::shape("an empty dimension has no elements to repeat").got(x.describe()));
        }
    }
    let outputs = vec![TensorType::new(x.dtype, shape)];
    Ok(values::moved(infer, &[0, 2], outputs, evaluate))
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (x, source) = (e.input(0)?, source(e.attrs)?);
    let (pads, dtype) = (e.input(1)?.to_i64(), x.dtype());
    let axes = axes(e.optional(3).map(Array::to_i64), &crate::network::constant_type(x))?;
    let mut before = vec![0; x.shape().len()];
    axes.iter().zip(&pads).for_each(|(&axis, &count)| before[axis] = count);
    let mut shape = x.shape().to_vec();
    for (i, &axis) in axes.iter().enumerate() {
        shape[axis] = usize::try_from(shape[axis] as i64 + pads[i] + pads[axes.len() + i]).unwrap_or(0);
    }
    if e.attrs.text("mode") != "constant" {
        check_repeats(x.shape(), &shape)?;
    }
    let mut places = vec![Some(0)];
    for (axis, stride) in strides(x.shape()).into_iter().enumerate() {
        let size = x.shape()[axis] as i64;
        let along = (0..shape[axis] as i64).map(|i| {
            let i = i - before[axis];
            if (0..size).contains(&i) {
                Some(i)
            } else {
                source(i, size)
            }
        });
        let along: Vec<_> = along.map(|i| i.map(|i| i as usize * stride)).collect();
        let step = |base: &Option<usize>| {
            let base = *base;
            along.iter().map(move |offset| Some(base? + (*offset)?))
        };
        places = places.iter().flat_map(step).collect();
    }
    let zero = Array::scalar(dtype, 0.0);
    let (bytes, fill) = (x.bytes(), e.optional(2).unwrap_or(&zero).bytes());
    let element = |place: Option<usize>| place.map_or(fill, |at| &bytes[at * dtype.size()..(at + 1) * dtype.size()]);
    let padded: Vec<u8> = places.into_iter().flat_map(element).copied().collect();
    Ok(vec![Array::from_bytes(dtype, shape, &padded)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::network::reference::evaluate_op;

    #[test]
    fn every_mode_by_hand() {
        let pad = |mode: &str, pads: &[i64]| {
            let attrs = attrs([("mode", Attr::Text(mode.into()))]);
            let inputs = [Some(Array::ints(&[1, 2, 3])), Some(Array::ints(pads))];
            evaluate_op(&DEF, &attrs, &inputs).map(|out| out[0].to_i64())
        };
        assert_eq!(pad("constant", &[1, 2]).unwrap(), [0, 1, 2, 3, 0, 0]);
        assert_eq!(pad("constant", &[-1, 1]).unwrap(), [2, 3, 0]);
        assert_eq!(pad("edge", &[2, 1]).unwrap(), [1, 1, 1, 2, 3, 3]);
        assert_eq!(pad("reflect", &[3, 1]).unwrap(), [2, 3, 2, 1, 2, 3, 2]);
        assert_eq!(pad("wrap", &[1, 4]).unwrap(), [3, 1, 2, 3, 1, 2, 3, 1]);
        assert!(pad("mirror", &[1, 1]).is_err());
    }
}
