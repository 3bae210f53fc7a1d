//! A network again and again.

use super::Family;
use super::body::{body, inputs};
use super::scalar::{MOST, count, known_count, scalar};
use super::steps::Steps;
use crate::error::{Error, Result};
use crate::network::Layer;
use crate::network::array::Array;
use crate::network::attr::Read;
use crate::network::dtype::DType;
use crate::providers::tensorrt::handle::Tensor;
use crate::providers::tensorrt::writer::Writer;

/// See [`super::FAMILIES`].
pub const FAMILY: Family = Family { ops: &["Loop"], write };

fn write(w: &mut Writer, layer: &Layer) -> Result<Vec<Tensor>> {
    let network = &*layer.attrs.body("body").0;
    let carried = layer.attrs.int("carried") as usize;
    let sizes = layer.inputs.len() - 1;
    let initial = inputs(w, layer, 2, carried)?;
    let captured = inputs(w, layer, 2 + carried, sizes - 2 - carried)?;
    let Limited { steps, goes_on, count } = limited(w, layer, network.outputs().len() > 1 + carried)?;
    let number = number(w, steps)?;
    let carry = initial.into_iter().map(|x| steps.carry(w, x));
    let carry = carry.collect::<Result<Vec<_>>>()?;
    let shape_of = |at: usize| &network[network.inputs()[at]].ty.shape;
    let mut given = vec![w.reshape(number, shape_of(0))?, w.reshape(goes_on, shape_of(1))?];
    given.extend(carry.iter().chain(&captured));
    let results = body(w, layer, "body", &given, sizes)?;
    let after = w.reshape(results[0], &[])?;
    steps.next(w, goes_on, after)?;
    for (&before, &after) in carry.iter().zip(&results[1..]) {
        steps.next(w, before, after)?;
    }
    let last = carry.into_iter().map(|x| steps.last(w, x));
    let mut outputs = last.collect::<Result<Vec<_>>>()?;
    for (&x, count) in results[1 + carried..].iter().zip(count.into_iter().cycle()) {
        outputs.push(steps.stack(w, x, count, 0, false)?);
    }
    Ok(outputs)
}

/// A loop with its limits.
struct Limited {
    steps: Steps,
    /// The condition, which is carried.
    goes_on: Tensor,
    /// The greatest number of steps, if there is one.
    count: Option<Tensor>,
}

fn limited(w: &mut Writer, layer: &Layer, stacks: bool) -> Result<Limited> {
    let ends = ends_early(w, layer);
    let known = known_count(w, layer, 0);
    // So many steps as nobody means to run are no limit.
    let count = if known == Some(MOST) { None } else { count(w, layer, 0)? };
    if !ends && count.is_none() {
        return Err(Error::unsupported("nothing ends it"));
    }
    if stacks {
        stackable(ends, known.is_some() || w.value(layer, 0).is_some())?;
    }
    let start = match layer.inputs[1] {
        None => w.number(DType::Bool, 1.0, 0)?,
        Some(_) => scalar(w, layer, 1)?,
    };
    let steps = Steps::new(w)?;
    if let Some(count) = count {
        steps.limit(w, "COUNT", count)?;
    }
    let goes_on = steps.carry(w, start)?;
    if ends {
        steps.limit(w, "WHILE", goes_on)?;
    }
    Ok(Limited { steps, goes_on, count })
}

/// The number of the step, from 0 on.
fn number(w: &mut Writer, steps: Steps) -> Result<Tensor> {
    let mut scalar = |value| w.constant(&Array::from_i64(DType::Int32, vec![], &[value])?);
    let (zero, one) = (scalar(0)?, scalar(1)?);
    let number = steps.carry(w, zero)?;
    let next = w.elementwise("SUM", number, one)?;
    steps.next(w, number, next)?;
    w.cast(number, DType::Int32, DType::Int64)
}

/// TensorRT wants to know how many results are stacked before the first of them.
fn stackable(ends: bool, known: bool) -> Result<()> {
    let why = match (ends, known) {
        (true, _) => "a condition ends it, and tells the number of results that are stacked too late",
        (_, false) => "the number of results that are stacked comes with a call",
        _ => return Ok(()),
    };
    Err(Error::unsupported(why))
}

/// Whether a condition may end it.
fn ends_early(w: &Writer, layer: &Layer) -> bool {
    let network = &*layer.attrs.body("body").0;
    let holds = |array: Option<&Array>| array.is_some_and(|array| array.bytes().iter().all(|&byte| byte != 0));
    let starts = layer.inputs[1].is_none() || holds(w.constant_of(layer, 1));
    let after = network.outputs()[0].tensor;
    !(starts && (after == network.inputs()[1] || holds(network[after].constant())))
}
