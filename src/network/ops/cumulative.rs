//! What CumSum and CumProd share: the rule, and the reference.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{AttrDef, Preset, Read, attr};
use crate::network::dtype::DType;
use crate::network::op::{Evaluate, Infer, TensorType};
use crate::network::ops::reduce::Groups;

/// The attributes.
pub const ATTRS: &[AttrDef] = &[
    attr("exclusive", Preset::Int(0), "leave the element itself out"),
    attr("reverse", Preset::Int(0), "start from the back"),
];

/// The rule: the shape stays. The axis may depend on data; where it is known it is checked.
pub fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (x, axis) = (infer.input(0)?, infer.input(1)?);
    if !axis.dtype.is_int() || axis.elements().as_const().is_some_and(|n| n != 1) {
        return Err(Error::shape("the axis must be one integer").got(axis.describe()));
    }
    if let Ok(numbers) = infer.numbers(1) {
        x.axis(numbers[0])?;
    }
    if x.dtype == DType::Bool {
        return Err(Error::dtype("the op computes with numbers").got(x.dtype.name()));
    }
    Ok(vec![TensorType::new(x.dtype, x.shape.clone())])
}

/// How two numbers are combined, and what the first one is combined with.
pub struct Fold {
    /// For floating-point numbers.
    pub float: (f64, fn(f64, f64) -> f64),
    /// For integers.
    pub int: (i64, fn(i64, i64) -> i64),
}

/// The reference.
pub fn evaluate(e: &Evaluate, fold: &Fold) -> Result<Vec<Array>> {
    let (x, (dtype, shape)) = (e.input(0)?, &e.outputs[0]);
    if x.dtype().is_float() {
        return e.output(&running(e, &x.to_f64(), fold.float)?);
    }
    let results = running(e, &x.to_i64(), fold.int)?;
    Ok(vec![Array::from_i64(*dtype, shape.clone(), &results)?])
}

fn running<T: Copy>(e: &Evaluate, data: &[T], (start, combine): (T, fn(T, T) -> T)) -> Result<Vec<T>> {
    let x = crate::network::constant_type(e.input(0)?);
    let groups = Groups::new(e.input(0)?.shape(), &[x.axis(e.input(1)?.to_i64()[0])?]);
    let (reverse, exclusive) = (e.attrs.flag("reverse"), e.attrs.flag("exclusive"));
    let mut out = data.to_vec();
    for mut places in groups.iter() {
        if reverse {
            places.reverse();
        }
        let mut before = start;
        for at in places {
            let next = combine(before, data[at]);
            out[at] = if exclusive { before } else { next };
            before = next;
        }
    }
    Ok(out)
}
