//! Which pointwise layers run as one kernel.

use super::scope::{Positions, Scope};
use crate::network::dim::Dim;
use crate::network::{Layer, LayerId, Network, TensorId};
use std::collections::HashSet;

/// More layers than this are not looked at for one kernel.
const MOST_LAYERS: usize = 48;
/// Nor more operands: each costs a stream of memory.
const MOST_OPERANDS: usize = 12;

/// The layers that one kernel can run together with the scope's layer, that one first in their order of execution as
/// far as data flows from it; a convex set. `takes` tells which layers the kernel can run.
pub fn grow(scope: &Scope, takes: fn(&Network, &Layer) -> bool) -> Vec<LayerId> {
    let mut group = Group {
        scope,
        takes,
        shape: &scope.output_type(0).shape,
        layers: vec![scope.layer],
        positions: scope.positions(),
    };
    loop {
        let before = group.layers.len();
        group.follow();
        group.gather();
        if group.layers.len() == before {
            break;
        }
    }
    let Group {
        positions, mut layers, ..
    } = group;
    layers.sort_by_key(|layer| positions[layer]);
    layers
}

/// The tensors that layers give to others or to the caller.
pub fn outputs(network: &Network, layers: &[LayerId]) -> Vec<TensorId> {
    let all = layers.iter().flat_map(|&l| network[l].outputs.iter().copied());
    all.filter(|&t| leaves(network, layers, t)).collect()
}

/// Whether the caller or layers other than these read a tensor, or nobody does.
pub fn leaves(network: &Network, layers: &[LayerId], tensor: TensorId) -> bool {
    let users = &network[tensor].users;
    network.is_output(tensor) || users.is_empty() || users.iter().any(|user| !layers.contains(user))
}

/// Whether one of the layers outside, or one in front of it, reads what layers inside give.
pub fn depend(network: &Network, positions: &Positions, mut outside: Vec<LayerId>, inside: &[LayerId]) -> bool {
    let first = inside.iter().map(|layer| positions[layer]).min().unwrap_or(0);
    outside.retain(|layer| !inside.contains(layer));
    let mut seen: HashSet<LayerId> = outside.iter().copied().collect();
    while let Some(layer) = outside.pop() {
        // What runs before all of them can't depend on them.
        if positions[&layer] < first {
            continue;
        }
        for producer in producers(network, layer) {
            if inside.contains(&producer) {
                return true;
            }
            if seen.insert(producer) {
                outside.push(producer);
            }
        }
    }
    false
}

fn producers(network: &Network, layer: LayerId) -> impl Iterator<Item = LayerId> {
    let inputs = network[layer].inputs.iter().flatten();
    inputs.filter_map(|&t| network.producer(t)).map(|(layer, _)| layer)
}

struct Group<'a> {
    scope: &'a Scope<'a>,
    takes: fn(&Network, &Layer) -> bool,
    shape: &'a [Dim],
    layers: Vec<LayerId>,
    positions: Positions,
}

impl Group<'_> {
    fn fits(&self, id: LayerId) -> bool {
        let network = self.scope.network;
        let layer = &network[id];
        !self.layers.contains(&id)
            && self.layers.len() < MOST_LAYERS
            && (self.takes)(network, layer)
            && network[layer.outputs[0]].ty.shape == self.shape
            && self.operands(id) <= MOST_OPERANDS
    }

    /// How many streams the group would read with one more layer.
    fn operands(&self, extra: LayerId) -> usize {
        let network = self.scope.network;
        let inside = |t: TensorId| {
            network
                .producer(t)
                .is_some_and(|(l, _)| l == extra || self.layers.contains(&l))
        };
        let all = self.layers.iter().chain([&extra]);
        let read: HashSet<TensorId> = all.flat_map(|&l| network[l].inputs.iter().flatten().copied()).collect();
        read.into_iter()
            .filter(|&t| network[t].constant().is_none() && !inside(t))
            .count()
    }

    /// Takes in layers that read the group's results and nothing else that follows from them.
    fn follow(&mut self) {
        let network = self.scope.network;
        let mut at = 0;
        while at < self.layers.len() {
            let output = network[self.layers[at]].outputs[0];
            let mut users = network[output].users.clone();
            users.sort_by_key(|user| self.positions[user]);
            for user in users {
                if self.fits(user) && !self.closes_cycle(user) {
                    self.layers.push(user);
                }
            }
            at += 1;
        }
    }

    /// Takes in layers whose results only the group reads.
    fn gather(&mut self) {
        let network = self.scope.network;
        let mut at = 0;
        while at < self.layers.len() {
            for &input in network[self.layers[at]].inputs.iter().flatten() {
                let Some((producer, _)) = network.producer(input) else {
                    continue;
                };
                let only_here = network[input].users.iter().all(|user| self.layers.contains(user));
                if only_here && !network.is_output(input) && self.fits(producer) && !self.closes_cycle(producer) {
                    self.layers.push(producer);
                }
            }
            at += 1;
        }
    }

    /// Whether something outside the group lies on a path from the group to `layer`.
    fn closes_cycle(&self, layer: LayerId) -> bool {
        let network = self.scope.network;
        let positions = &self.positions;
        // Mostly nobody else reads the group's results before the layer, and no way back is to be looked for.
        let others = |id: &LayerId| *id != layer && !self.layers.contains(id) && positions[id] < positions[&layer];
        let results = self.layers.iter().flat_map(|&l| &network[l].outputs);
        if !results.flat_map(|&t| &network[t].users).any(others) {
            return false;
        }
        depend(network, positions, producers(network, layer).collect(), &self.layers)
    }
}
