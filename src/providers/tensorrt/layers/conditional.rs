//! One of two networks.

use super::Family;
use super::body::{body, inputs};
use super::scalar::scalar;
use crate::error::Result;
use crate::network::Layer;
use crate::network::attr::Read;
use crate::providers::tensorrt::handle::{ConditionalId, Spec, Tensor};
use crate::providers::tensorrt::writer::Writer;

/// See [`super::FAMILIES`].
pub const FAMILY: Family = Family { ops: &["If"], write };

fn write(w: &mut Writer, layer: &Layer) -> Result<Vec<Tensor>> {
    let condition = scalar(w, layer, 0)?;
    let id = w.add_conditional()?;
    w.add(Spec::new("Condition").of_conditional(id).input(condition))?;
    let (then, next) = branch(w, layer, id, "then_branch", 1)?;
    let (otherwise, _) = branch(w, layer, id, "else_branch", next)?;
    let output = |(a, b)| w.one(Spec::new("ConditionalOutput").of_conditional(id).input(a).input(b));
    then.into_iter().zip(otherwise).map(output).collect()
}

/// A branch that reads the inputs of the layer from one on; gives its results, and the number of the next input.
fn branch(w: &mut Writer, layer: &Layer, id: ConditionalId, attr: &str, first: usize) -> Result<(Vec<Tensor>, usize)> {
    let sizes = first + layer.attrs.body(attr).0.inputs().len() - 1;
    let captured = inputs(w, layer, first, sizes - first)?.into_iter();
    let captured = captured.map(|x| w.one(Spec::new("ConditionalInput").of_conditional(id).input(x)));
    let captured = captured.collect::<Result<Vec<_>>>()?;
    Ok((body(w, layer, attr, &captured, sizes)?, sizes + 1))
}
