//! Means of what 8 bits stand for, which are the means of the integers: their sums are exact.

use super::cast::cast_before;
use super::quantized::Dequantized;
use crate::network::dtype::DType;
use crate::network::ops::cast;
use crate::network::{Layer, LayerId, Network, TensorId};

/// The Dequantize layer in front of a mean that nobody else reads, and the Cast between them that the precision brought.
pub struct MeanOf8Bits {
    /// What is dequantized.
    pub read: Dequantized,
    cast: Option<LayerId>,
}

impl MeanOf8Bits {
    /// What stands in front of a mean.
    pub fn of(network: &Network, mean: &Layer) -> Option<Self> {
        let x = mean.inputs.first().copied().flatten()?;
        let cast = cast_before(network, x, &[DType::Float32]);
        let cast = cast.filter(|&(cast, _)| !cast::rounds(&network[cast].attrs));
        let dequantized = cast.map_or(x, |(_, source)| source);
        let read = Dequantized::integers(network, dequantized).filter(|_| mean.op.name == "ReduceMean")?;
        let cast = cast.map(|(cast, _)| cast);
        Some(Self { read, cast })
    }

    /// The layers in front of the mean.
    pub fn layers(&self) -> Vec<LayerId> {
        [self.read.layer].into_iter().chain(self.cast).collect()
    }
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
    let found = mean.and_then(|mean| MeanOf8Bits::of(network, mean));
    found.is_some_and(|found| network[found.read.layer].outputs == layer.outputs)
}
