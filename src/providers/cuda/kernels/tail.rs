//! What follows a convolution or a matrix product and is done with it: a bias, a residual, an activation, in this order.

use crate::network::op::TensorType;
use crate::network::{Layer, LayerId, Network, TensorId};
use crate::plan::{Candidate, Kernel};
use crate::providers::common::scope::Scope;
use std::sync::Arc;

/// The layers behind one, as far as it takes them along.
#[derive(Clone)]
pub struct Tail<A> {
    /// The layer itself, and those behind it.
    pub layers: Vec<LayerId>,
    /// What the last of them gives.
    pub output: TensorId,
    /// What is added to each channel.
    pub bias: Option<TensorId>,
    /// What of the result's shape is added.
    pub residual: Option<TensorId>,
    /// What is done in the end.
    pub activation: Option<A>,
}

/// What a library can do behind its own work.
pub struct Takes<A> {
    /// Whether a tensor of the first type, added to a result of the second, is a bias.
    pub bias: fn(&TensorType, &TensorType) -> bool,
    /// The activation that a layer is.
    pub activation: fn(&Network, &Layer) -> Option<A>,
}

impl<A: Copy> Tail<A> {
    /// A candidate for every length of the tail of the scope's layer, the longest first. `operands` come before bias and
    /// residual; `bias` is one that the layer itself has.
    pub fn candidates<K: Kernel + 'static>(
        scope: &Scope,
        operands: [TensorId; 2],
        bias: Option<TensorId>,
        takes: &Takes<A>,
        make: impl Fn(String, &Tail<A>) -> K,
    ) -> Vec<Candidate> {
        let network = scope.network;
        let tails = Self::all(network, vec![scope.layer], bias, takes);
        let one = |tail: Tail<A>| {
            let names: Vec<_> = tail.layers.iter().map(|&l| network[l].op.name).collect();
            Candidate {
                kernel: Arc::new(make(names.join("+"), &tail)),
                inputs: operands.into_iter().chain(tail.bias).chain(tail.residual).collect(),
                outputs: vec![tail.output],
                layers: tail.layers,
            }
        };
        let mut found: Vec<_> = tails.into_iter().map(one).collect();
        found.reverse();
        found
    }

    /// The tail of every length behind these layers, the shortest first.
    pub fn all(network: &Network, layers: Vec<LayerId>, bias: Option<TensorId>, takes: &Takes<A>) -> Vec<Self> {
        let last = layers.last().and_then(|&last| network[last].outputs.first());
        let first = last.map(|&output| Tail {
            layers,
            output,
            bias,
            residual: None,
            activation: None,
        });
        std::iter::successors(first, |tail| tail.grown(network, takes)).collect()
    }

    /// With one more layer.
    fn grown(&self, network: &Network, takes: &Takes<A>) -> Option<Self> {
        // Nothing follows an activation.
        if self.activation.is_some() {
            return None;
        }
        let user = network.sole_user(self.output)?;
        let layer = &network[user];
        let (from, to) = (&network[self.output].ty, &network[*layer.outputs.first()?].ty);
        if from.dtype != to.dtype || from.shape != to.shape {
            return None;
        }
        let mut longer = self.clone();
        longer.layers.push(user);
        longer.output = layer.outputs[0];
        longer.activation = (takes.activation)(network, layer);
        if longer.activation.is_some() {
            return Some(longer);
        }
        if layer.op.name != "Add" || self.residual.is_some() {
            return None;
        }
        let other = layer.inputs.iter().flatten().copied().find(|&t| t != self.output)?;
        let ty = &network[other].ty;
        if self.bias.is_none() && (takes.bias)(ty, from) {
            longer.bias = Some(other);
        } else if ty.shape == from.shape {
            longer.residual = Some(other);
        } else {
            return None;
        }
        Some(longer)
    }
}
