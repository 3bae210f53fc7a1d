//! What scattering ops share: writing elements to places, alone or combined with what is there.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{AttrDef, Attrs, Preset, Read, attr};
use crate::network::dtype::DType;
use crate::network::op::Infer;
use crate::network::ops::{indexing, pointwise};

/// `reduction`.
pub const REDUCTION: AttrDef = attr(
    "reduction",
    Preset::Text("none"),
    "none (the last update stays), add, mul, max or min: how an update meets what is there",
);

type Combine = (fn(f64, f64) -> f64, fn(i64, i64) -> i64);

fn combine(attrs: &Attrs, dtype: DType) -> Result<Option<Combine>> {
    let unsigned = dtype == DType::UInt64;
    Ok(Some(match attrs.text("reduction") {
        "none" => return Ok(None),
        "add" => (|a, b| a + b, i64::wrapping_add),
        "mul" => (|a, b| a * b, i64::wrapping_mul),
        "max" if unsigned => (pointwise::greater, |a, b| (a as u64).max(b as u64) as i64),
        "min" if unsigned => (pointwise::lesser, |a, b| (a as u64).min(b as u64) as i64),
        "max" => (pointwise::greater, i64::max),
        "min" => (pointwise::lesser, i64::min),
        other => {
            return Err(Error::invalid("attribute \"reduction\" is unknown")
                .expected("none, add, mul, max or min")
                .got(other));
        }
    }))
}

/// Checks the reduction, and that updates (input 2) have the dtype of the input.
pub fn check(infer: &Infer) -> Result<()> {
    combine(infer.attrs, infer.input(0)?.dtype)?;
    pointwise::same_dtype(&[infer.input(0)?, infer.input(2)?])
}

/// `x` with updates written to places.
pub fn scatter(attrs: &Attrs, x: &Array, places: &[usize], updates: &Array) -> Result<Array> {
    fn all<T: Copy>(mut data: Vec<T>, places: &[usize], updates: Vec<T>, combine: fn(T, T) -> T) -> Vec<T> {
        for (&at, update) in places.iter().zip(updates) {
            data[at] = combine(data[at], update);
        }
        data
    }
    let shape = x.shape().to_vec();
    match combine(attrs, x.dtype())? {
        None => indexing::put(x, places, updates),
        Some((float, _)) if x.dtype().is_float() => {
            Array::from_f64(x.dtype(), shape, &all(x.to_f64(), places, updates.to_f64(), float))
        }
        Some((_, int)) => Array::from_i64(x.dtype(), shape, &all(x.to_i64(), places, updates.to_i64(), int)),
    }
}
