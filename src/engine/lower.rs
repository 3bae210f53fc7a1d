//! Composite ops that no provider here has a kernel for, written in smaller ops.

use crate::error::Result;
use crate::network::op::Decomposition;
use crate::network::{LayerId, Network};
use crate::plan::{Provider, Settings};
use std::sync::Arc;

/// Decomposes what nobody runs whole; gives the number of layers.
///
/// # Errors
/// Those of a decomposition.
pub fn lower(network: &mut Network, providers: &[Arc<dyn Provider>], settings: &Settings) -> Result<usize> {
    let mut count = 0;
    let mut pending: Vec<LayerId> = network.layers().map(|(id, _)| id).collect();
    while let Some(id) = pending.pop() {
        let Some(layer) = network.get_layer(id) else { continue };
        let Decomposition::WithoutKernel(decompose) = layer.op.decomposition else {
            continue;
        };
        if providers.iter().any(|p| p.candidates(network, id, settings).is_ok()) {
            continue;
        }
        let first_new = network.layers().map(|(id, _)| id.0).max().map_or(0, |id| id + 1);
        let change = decompose(network, id)?.finish();
        change.apply(network);
        pending.extend(network.layers().map(|(id, _)| id).filter(|id| id.0 >= first_new));
        count += 1;
    }
    Ok(count)
}
