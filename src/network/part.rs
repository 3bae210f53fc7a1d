//! A part of a network as a network of its own.

use crate::error::Result;
use crate::network::dim::Symbols;
use crate::network::{LayerId, Network, Output, Source, TensorId};
use std::collections::HashSet;

/// What to take over into a part.
pub struct Part<'a> {
    /// The layers.
    pub layers: &'a HashSet<LayerId>,
    /// The tensors that come from outside, in the order of the part's first inputs.
    pub feeds: &'a [TensorId],
    /// The part's results.
    pub gives: &'a [TensorId],
    /// The symbols that are known when the part runs.
    pub symbols: Symbols,
}

impl Network {
    /// A part of this network. Its inputs are the feeds and, last, an empty tensor whose extents are 0 and then the
    /// symbols in their order: that is how their values come in where no other input has such a dimension.
    ///
    /// # Errors
    /// If the layers form a cycle.
    pub fn part(&self, part: Part) -> Result<Self> {
        let mut made = self.clone();
        made.inputs.clear();
        made.outputs.clear();
        for &feed in part.feeds {
            let Self { inputs, tensors, .. } = &mut made;
            let tensor = &mut tensors[feed.0 as usize];
            if let Source::Layer(layer, at) = tensor.source {
                // The layer that gives it elsewhere gives something here that nobody reads.
                let (name, ty) = (tensor.name.clone(), tensor.ty.clone());
                let users = std::mem::take(&mut tensor.users);
                made.names.remove(&name);
                let nobody = made.push_tensor("elsewhere", ty, Source::Layer(layer, at));
                made.names.insert(name);
                if let Some(layer) = made.layers.get_mut(&layer) {
                    layer.outputs[at] = nobody;
                }
                made[feed].source = Source::Input;
                made[feed].users = users;
                made.inputs.push(feed);
            } else {
                inputs.push(feed);
            }
        }
        made.changed();
        let strangers = made.order()?.into_iter().filter(|id| !part.layers.contains(id));
        for id in strangers.collect::<Vec<_>>().into_iter().rev() {
            made.remove_layer(id);
        }
        for &tensor in part.gives {
            let name = made[tensor].name.clone();
            made.outputs.push(Output { name, tensor });
        }
        let known = |symbol: &str| part.symbols.contains_key(symbol);
        made.guards.retain(|guard| {
            guard
                .left
                .symbols()
                .iter()
                .chain(&guard.right.symbols())
                .all(|s| known(s))
        });
        made.add_sizes(&part.symbols.keys().cloned().collect::<Vec<_>>());
        made.symbols = part.symbols;
        made.drop_unused_constants();
        Ok(made)
    }
}
