//! Networks that layers hold, written where the layer stands.

use super::write;
use crate::error::{Error, Result};
use crate::network::Layer;
use crate::network::attr::Read;
use crate::network::dim::Dim;
use crate::providers::tensorrt::convert::refusal;
use crate::providers::tensorrt::handle::Tensor;
use crate::providers::tensorrt::writer::Writer;

/// Writes the layers of the network that a layer holds under this attribute; gives its results. It reads these tensors, and
/// input `sizes` of the layer has what its symbols are.
///
/// # Errors
/// If TensorRT does not take one of its layers; says which.
pub fn body(w: &mut Writer, layer: &Layer, attr: &str, inputs: &[Tensor], sizes: usize) -> Result<Vec<Tensor>> {
    let held = layer.attrs.body(attr);
    let network = &*held.0;
    let numbers = |w: &Writer| -> Option<Vec<Dim>> {
        let constant = || {
            Some(
                w.constant_of(layer, sizes)?
                    .to_i64()
                    .into_iter()
                    .map(Dim::from)
                    .collect(),
            )
        };
        w.value(layer, sizes).map(<[Dim]>::to_vec).or_else(constant)
    };
    let values = numbers(w).ok_or_else(|| Error::internal(format!("{attr} has no sizes")))?;
    let symbols = held.symbols().into_iter().zip(values);
    let known = symbols.map(|(symbol, size)| Ok((Dim::symbol(symbol), w.dim(&size)?)));
    let known = known.collect::<Result<_>>()?;
    let mut inside = w.inside(network, attr, known);
    for (&ours, &theirs) in network.inputs().iter().zip(inputs) {
        inside.put(ours, theirs);
    }
    for id in network.order()? {
        write(&mut inside, id).map_err(|error| {
            let why = refusal(&network[id], &error);
            let error = Error::unsupported(format!("its {attr} has layer {:?}, {}", why.layer, why.reason));
            match why.hint.is_empty() {
                true => error,
                false => error.hint(why.hint),
            }
        })?;
    }
    network
        .outputs()
        .iter()
        .map(|output| inside.tensor(output.tensor))
        .collect()
}

/// Inputs of a layer, from one on.
///
/// # Errors
/// If one is missing, or TensorRT can't have it.
pub fn inputs(w: &mut Writer, layer: &Layer, first: usize, count: usize) -> Result<Vec<Tensor>> {
    (first..first + count).map(|at| w.input(layer, at)).collect()
}
