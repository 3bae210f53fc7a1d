//! CumSum.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::dtype::DType;
use crate::network::op::{Decomposition, Evaluate, Infer, OpDef, TensorType};
use crate::network::ops::reduce::Groups;

/// Sums of all elements up to each along an axis (ONNX CumSum).
pub static DEF: OpDef = OpDef {
    name: "CumSum",
    doc: "Sums of all elements up to each along an axis; integers wrap (ONNX CumSum)",
    inputs: &["x", "axis"],
    attrs: &[
        attr("exclusive", Preset::Int(0), "leave the element itself out"),
        attr("reverse", Preset::Int(0), "sum from the back"),
    ],
    infer,
    evaluate,
    pointwise: None,
    decomposition: Decomposition::None,
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (x, axis) = (infer.input(0)?, infer.numbers(1)?);
    let [axis] = axis[..] else {
        return Err(Error::shape("the axis must be one integer").got(infer.input(1)?.describe()));
    };
    x.axis(axis)?;
    if x.dtype == DType::Bool {
        return Err(Error::dtype("the op sums numbers").got(x.dtype.name()));
    }
    Ok(vec![TensorType::new(x.dtype, x.shape.clone())])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (x, (dtype, shape)) = (e.input(0)?, &e.outputs[0]);
    if x.dtype().is_float() {
        return e.output(&sums(e, &x.to_f64(), 0.0, |a, b| a + b)?);
    }
    let sums = sums(e, &x.to_i64(), 0, i64::wrapping_add)?;
    Ok(vec![Array::from_i64(*dtype, shape.clone(), &sums)?])
}

fn sums<T: Copy>(e: &Evaluate, data: &[T], zero: T, add: fn(T, T) -> T) -> Result<Vec<T>> {
    let x = crate::network::constant_type(e.input(0)?);
    let groups = Groups::new(e.input(0)?.shape(), &[x.axis(e.input(1)?.to_i64()[0])?]);
    let (reverse, exclusive) = (e.attrs.flag("reverse"), e.attrs.flag("exclusive"));
    let mut out = data.to_vec();
    for mut places in groups.iter() {
        if reverse {
            places.reverse();
        }
        let mut sum = zero;
        for at in places {
            let next = add(sum, data[at]);
            out[at] = if exclusive { sum } else { next };
            sum = next;
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::network::reference::evaluate_op;

    #[test]
    fn both_directions() {
        let run = |exclusive, reverse| {
            let flags = [("exclusive", exclusive), ("reverse", reverse)];
            let inputs = [Some(Array::ints(&[1, 2, 3])), Some(Array::ints(&[0]))];
            evaluate_op(&DEF, &attrs(flags.map(|(n, v)| (n, Attr::Int(v)))), &inputs).unwrap()[0].to_i64()
        };
        assert_eq!(
            [run(0, 0), run(1, 0), run(0, 1), run(1, 1)],
            [[1, 3, 6], [0, 1, 3], [6, 5, 3], [5, 3, 0]]
        );
    }
}
