//! A Cast in front of a kernel that takes what it casts.

use crate::network::dtype::DType;
use crate::network::{LayerId, Network, TensorId};

/// The Cast from one of these dtypes that gives a tensor to one layer alone, and what it casts.
pub fn cast_before(network: &Network, x: TensorId, from: &[DType]) -> Option<(LayerId, TensorId)> {
    network.sole_user(x)?;
    let (cast, layer) = network.producer(x).filter(|(_, layer)| layer.op.name == "Cast")?;
    let source = layer.inputs.first().copied().flatten()?;
    from.contains(&network[source].ty.dtype).then_some((cast, source))
}
