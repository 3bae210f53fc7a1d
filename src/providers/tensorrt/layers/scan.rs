//! A network on one slice after another.

use super::Family;
use super::body::{body, inputs};
use super::steps::Steps;
use crate::error::{Error, Result};
use crate::network::Layer;
use crate::network::attr::Read;
use crate::network::op::axis_of;
use crate::providers::tensorrt::handle::Tensor;
use crate::providers::tensorrt::writer::Writer;

/// See [`super::FAMILIES`].
pub const FAMILY: Family = Family { ops: &["Scan"], write };

fn write(w: &mut Writer, layer: &Layer) -> Result<Vec<Tensor>> {
    let attrs = &layer.attrs;
    let (states, axes) = (attrs.int("states") as usize, attrs.ints("input_axes"));
    let Some(&first) = axes.first() else {
        return Err(Error::unsupported("a Scan of nothing has no steps"));
    };
    let ty = w.ty(layer, states)?;
    let count = w.dim(&ty.shape[ty.axis(first)?])?;
    let count = w.reshape(count, &[])?;
    let initial = inputs(w, layer, 0, states)?;
    let scanned = inputs(w, layer, states, axes.len())?;
    let sizes = layer.inputs.len() - 1;
    let captured = inputs(w, layer, states + axes.len(), sizes - states - axes.len())?;
    let steps = Steps::new(w)?;
    steps.limit(w, "COUNT", count)?;
    let carried = initial
        .into_iter()
        .map(|x| steps.carry(w, x))
        .collect::<Result<Vec<_>>>()?;
    let mut given = carried.clone();
    for (at, x) in scanned.into_iter().enumerate() {
        let axis = w.ty(layer, states + at)?.axis(axes[at])?;
        given.push(steps.slice(w, x, axis, attrs.ints("input_directions")[at] != 0)?);
    }
    given.extend(captured);
    let results = body(w, layer, "body", &given, sizes)?;
    for (&before, &after) in carried.iter().zip(&results) {
        steps.next(w, before, after)?;
    }
    let mut outputs = carried
        .into_iter()
        .map(|x| steps.last(w, x))
        .collect::<Result<Vec<_>>>()?;
    for (at, &x) in results[states..].iter().enumerate() {
        let rank = w.network[layer.outputs[states + at]].ty.rank();
        let axis = axis_of(attrs.ints("output_axes")[at], rank)?;
        outputs.push(steps.stack(w, x, count, axis, attrs.ints("output_directions")[at] != 0)?);
    }
    Ok(outputs)
}
