//! What follows a product and is done with it: any pointwise layers whose other operands are rows, numbers, or as large as
//! the result.

use crate::network::{LayerId, Network, TensorId};
use crate::providers::common::group;
use crate::providers::common::scope::Scope;
use crate::providers::cuda::kernels::pointwise::code::{self, is_pointwise};

/// More layers than this are not looked at.
const MOST_LAYERS: usize = 16;
/// Nor more operands beside those of the product.
const MOST_OPERANDS: usize = 6;

/// How an operand is indexed for an element of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Indexing {
    /// Like the result: it has the same shape.
    Element,
    /// By column: it is a row that is broadcast.
    Column,
    /// Not at all: it is a single number.
    Scalar,
}

/// How an operand of layers behind a product is indexed; `None` if it broadcasts in another way.
pub fn indexing(network: &Network, operand: TensorId, result: TensorId) -> Option<Indexing> {
    let (ty, whole) = (&network[operand].ty, &network[result].ty);
    let columns = whole.shape.last()?;
    if ty.shape == whole.shape {
        Some(Indexing::Element)
    } else if ty.elements().is(1) {
        Some(Indexing::Scalar)
    } else if ty.shape.last() == Some(columns) && ty.elements() == *columns {
        Some(Indexing::Column)
    } else {
        None
    }
}

/// The layers behind the scope's product that one kernel can run with it, in every number that leaves one result; the
/// most first, none last. Each list is in an order of execution.
pub fn groups(scope: &Scope) -> Vec<Vec<LayerId>> {
    let network = scope.network;
    let product = scope.layer().outputs[0];
    let matrices = scope.layer().inputs.iter().flatten().all(|&t| network[t].ty.rank() > 1);
    let mut layers = vec![scope.layer];
    let mut found = vec![vec![]];
    while matrices && layers.len() <= MOST_LAYERS {
        let Some(next) = next(scope, &layers, product) else {
            break;
        };
        layers.push(next);
        if group::outputs(network, &layers).len() == 1
            && operands(network, &layers[1..], product).len() <= MOST_OPERANDS
        {
            found.push(layers[1..].to_vec());
        }
    }
    found.reverse();
    found
}

/// The first layer in the order of execution that reads what some layers give, and can run with them.
fn next(scope: &Scope, layers: &[LayerId], product: TensorId) -> Option<LayerId> {
    let network = scope.network;
    let given = |t: TensorId| network.producer(t).is_some_and(|(layer, _)| layers.contains(&layer));
    let fits = |id: &LayerId| {
        let layer = &network[*id];
        is_pointwise(network, layer)
            && network[layer.outputs[0]].ty.shape == network[product].ty.shape
            && layer
                .inputs
                .iter()
                .flatten()
                .all(|&t| given(t) || indexing(network, t, product).is_some())
    };
    let outputs = layers.iter().map(|&layer| network[layer].outputs[0]);
    let mut users: Vec<LayerId> = outputs.flat_map(|t| network[t].users.iter().copied()).collect();
    users.retain(|user| !layers.contains(user));
    if users.is_empty() {
        return None;
    }
    let positions = scope.positions();
    users.sort_by_key(|user| positions[user]);
    users.into_iter().find(fits)
}

/// What some layers behind a product read beside it.
fn operands(network: &Network, layers: &[LayerId], product: TensorId) -> Vec<TensorId> {
    let mut operands = code::of(network, layers).inputs;
    operands.retain(|&t| t != product);
    operands
}
