//! What follows a product and is done with it: any pointwise layers whose other operands are rows, numbers, or as large as
//! the result.

use crate::network::{LayerId, Network, TensorId};
use crate::providers::common::group;
use crate::providers::common::quantized::{Dequantized, is_added_to_product};
use crate::providers::common::scope::Scope;
use crate::providers::cuda::kernels::pointwise::code::{self, is_pointwise};
use crate::providers::cuda::kernels::rows::of_8_bits;

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
    indexing_along(network, operand, result, network[result].ty.rank().checked_sub(1)?)
}

/// As [`indexing`], of a result whose columns lie along an axis.
pub fn indexing_along(network: &Network, operand: TensorId, result: TensorId, axis: usize) -> Option<Indexing> {
    let (ty, whole) = (&network[operand].ty, &network[result].ty);
    let columns = whole.shape.get(axis)?;
    let own = (axis + ty.rank()).checked_sub(whole.rank());
    if ty.shape == whole.shape {
        Some(Indexing::Element)
    } else if ty.elements().is(1) {
        Some(Indexing::Scalar)
    } else if own.and_then(|own| ty.shape.get(own)) == Some(columns) && ty.elements() == *columns {
        Some(Indexing::Column)
    } else {
        None
    }
}

/// The layers behind the scope's product that one kernel can run with it, in every number that leaves one result; the
/// most first, none last. Each list is in an order of execution.
pub fn groups(scope: &Scope) -> Vec<Vec<LayerId>> {
    let network = scope.network;
    let matrices = scope.layer().inputs.iter().flatten().all(|&t| network[t].ty.rank() > 1);
    if !matrices {
        return vec![vec![]];
    }
    grown(scope, scope.output_type(0).rank() - 1, |_| vec![])
}

/// The same behind a result whose columns lie along an axis. Of 8 bits come other operands where a Dequantize layer stands in front of
/// one of these layers alone: it is one of them. None ends with such a layer: who reads what it gives had better read 8 bits.
pub fn groups_of_8_bits(scope: &Scope, axis: usize) -> Vec<Vec<LayerId>> {
    let network = scope.network;
    let in_front = |layer: LayerId| {
        let inputs = network[layer].inputs.iter().flatten();
        let dequantized = inputs.filter_map(|&input| Dequantized::of(network, input));
        dequantized.map(|found| found.layer).collect()
    };
    let mut found = grown(scope, axis, in_front);
    found.retain(|layers| {
        layers
            .last()
            .is_none_or(|&last| network[last].op.name != "DequantizeLinear")
    });
    found
}

/// `in_front` gives the layers in front of one that come with it.
fn grown(scope: &Scope, axis: usize, in_front: impl Fn(LayerId) -> Vec<LayerId>) -> Vec<Vec<LayerId>> {
    let network = scope.network;
    let product = scope.layer().outputs[0];
    let mut layers = vec![scope.layer];
    let mut found = vec![vec![]];
    while layers.len() <= MOST_LAYERS {
        let Some(next) = next(scope, &layers, product, axis) else {
            break;
        };
        let before: Vec<LayerId> = in_front(next).into_iter().filter(|id| !layers.contains(id)).collect();
        layers.extend(before);
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
fn next(scope: &Scope, layers: &[LayerId], product: TensorId, axis: usize) -> Option<LayerId> {
    let network = scope.network;
    let given = |t: TensorId| network.producer(t).is_some_and(|(layer, _)| layers.contains(&layer));
    let fits = |id: &LayerId| {
        let layer = &network[*id];
        let added = layer.op.name == "DequantizeLinear" && is_added_to_product(network, *id);
        let elsewhere = added || of_8_bits::claims(network, layer);
        is_pointwise(network, layer)
            && !elsewhere
            && network[layer.outputs[0]].ty.shape == network[product].ty.shape
            && layer
                .inputs
                .iter()
                .flatten()
                .all(|&t| given(t) || indexing_along(network, t, product, axis).is_some())
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
