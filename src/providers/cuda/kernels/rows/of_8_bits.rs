//! Means of what 8 bits stand for, which are the means of the integers: their sums are exact.

use super::reduce::Reduction;
use crate::network::ops::cast;
use crate::network::{Layer, LayerId, Network, TensorId};
use crate::plan::Candidate;
use crate::providers::common::quantized::Dequantized;
use crate::providers::common::scope::Scope;
use crate::providers::cuda::kernels::Gpu;
use crate::providers::cuda::kernels::pointwise::code::element;
use std::sync::Arc;

/// The Dequantize layer in front of a mean that nobody else reads, and the Cast between them that the precision brought.
fn in_front(network: &Network, mean: &Layer) -> Option<(Dequantized, Option<LayerId>)> {
    let x = mean.inputs.first().copied().flatten()?;
    let cast = network.producer(x).filter(|(_, layer)| layer.op.name == "Cast");
    let cast = cast.filter(|(_, layer)| !cast::rounds(&layer.attrs) && network.sole_user(x).is_some());
    let dequantized = match cast {
        Some((_, cast)) => cast.inputs[0]?,
        None => x,
    };
    let found = Dequantized::integers(network, dequantized).filter(|_| mean.op.name == "ReduceMean")?;
    Some((found, cast.map(|(id, _)| id)))
}

/// Whether a layer is a Dequantize layer that had better be left to the mean behind it.
pub fn claims(network: &Network, layer: &Layer) -> bool {
    if layer.op.name != "DequantizeLinear" {
        return false;
    }
    let reader = |tensor: TensorId| network.sole_user(tensor).map(|id| &network[id]);
    let mean = match reader(layer.outputs[0]) {
        Some(cast) if cast.op.name == "Cast" => reader(cast.outputs[0]),
        reader => reader,
    };
    let found = mean.and_then(|mean| in_front(network, mean));
    found.is_some_and(|(found, _)| network[found.layer].outputs == layer.outputs)
}

/// A mean with the layers in front of it.
pub(super) fn offer(scope: &Scope, gpu: &Arc<Gpu>, reduction: &Reduction) -> Option<Candidate> {
    let network = scope.network;
    let (found, cast) = in_front(network, scope.layer())?;
    let x = scope.input_type(0)?;
    let (stored, given) = (element(found.scheme.dtype)?, element(x.dtype)?);
    // Words of the source, as all else that tells one rule from another.
    let (scale, zero) = (found.scheme.scale.to_bits() as i32, found.scheme.zero);
    let mean = reduction.by(format!("MeanOf8Bits<{stored}, {given}, {scale}, {zero}>"));
    let kernel = mean.kernel("int8 ReduceMean", x.rank(), gpu);
    let layers = [Some(found.layer), cast, Some(scope.layer)];
    Some(Candidate {
        kernel: Arc::new(kernel),
        layers: layers.into_iter().flatten().collect(),
        inputs: vec![found.tensor],
        outputs: scope.layer().outputs.clone(),
    })
}
