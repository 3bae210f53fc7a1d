//! How far roundings of what the last products read would move each element of a result. Where large terms cancel, what is left is
//! off by a share of the terms: that such an element is small says nothing of how right it should be.

use crate::engine::samples::Random;
use crate::engine::verify;
use crate::error::Result;
use crate::network::array::{Array, require};
use crate::network::body;
use crate::network::dim::Binding;
use crate::network::part::Part;
use crate::network::{LayerId, Network, Source, TensorId};
use crate::plan::program::Program;
use crate::runtime::executable::Executable;
use std::collections::HashSet;
use std::sync::Arc;

/// What the terms are off by, each for itself: little enough that what comes of it grows with it, and more than bfloat16 rounds.
const SHARE: f64 = 1.0 / 64.0;

/// Plans a network.
pub(super) type Planner<'p> = &'p dyn Fn(Network) -> Result<Program>;

/// The end of a network, from what its last products read to a result.
pub(super) struct PlannedEnd {
    tapped: Arc<Executable>,
    end: Arc<Executable>,
    /// Of what goes into the end, whether it is a term.
    is_term: Vec<bool>,
    sizes: Array,
}

impl PlannedEnd {
    /// Plans the end in front of a result; `None` where nothing was computed.
    ///
    /// # Errors
    /// Those of planning it.
    pub fn of(network: &Network, result: TensorId, binding: &Binding, plan: Planner<'_>) -> Result<Option<Self>> {
        let end = End::of(network, result);
        if end.terms.is_empty() {
            return Ok(None);
        }
        let symbols = network.symbols.keys();
        let sizes: Vec<i64> = symbols
            .map(|symbol| binding.get(symbol).copied().unwrap_or(0))
            .collect();
        let planned = |part| plan(part).map(|program| Arc::new(Executable::new(program)));
        Ok(Some(Self {
            tapped: planned(end.tapped(network)?)?,
            end: planned(end.network(network, result)?)?,
            is_term: end.feeds.iter().map(|feed| end.terms.contains(feed)).collect(),
            sizes: body::sizes(&sizes)?,
        }))
    }

    /// For each element of the result, by how much it moves (root mean square) where the terms are off by themselves at random, as
    /// a share of that: the size of what is summed. Each batch is moved in other ways.
    ///
    /// # Errors
    /// Those of running the network.
    pub fn moves(&self, batch: usize, inputs: &[Array], binding: &Binding) -> Result<Vec<f64>> {
        /// One may be small by chance.
        const DRAWS: usize = 4;
        let mut feeds = verify::run_once(&self.tapped, inputs, binding)?;
        feeds.push(self.sizes.clone());
        let exact = verify::run_once(&self.end, &feeds, binding)?[0].to_f64();
        let mut squares = vec![0.0; exact.len()];
        for draw in 0..DRAWS {
            let mut random = Random::of(batch * DRAWS + draw);
            let moved = feeds.iter().zip(self.is_term.iter().chain([&false]));
            let moved = moved.map(|(feed, is_term)| {
                if *is_term {
                    moved_by(feed, &mut random)
                } else {
                    Ok(feed.clone())
                }
            });
            let other = verify::run_once(&self.end, &moved.collect::<Result<Vec<_>>>()?, binding)?;
            for ((square, other), exact) in squares.iter_mut().zip(other[0].f64s()).zip(&exact) {
                let by = (other - exact) / SHARE;
                *square += if by.is_finite() { by * by } else { 0.0 };
            }
        }
        Ok(squares
            .into_iter()
            .map(|square| (square / DRAWS as f64).sqrt())
            .collect())
    }
}

/// The elements, each a little larger or smaller.
fn moved_by(array: &Array, random: &mut Random) -> Result<Array> {
    require(array.len().saturating_mul(size_of::<f64>()))?;
    let mut factor = || 1.0 + SHARE.copysign(random.share() - 0.5);
    let values: Vec<f64> = array.f64s().map(|value| value * factor()).collect();
    Array::from_f64(array.dtype(), array.shape().to_vec(), &values)
}

/// The layers behind the last products in front of a result, and these.
#[derive(Default)]
struct End {
    layers: HashSet<LayerId>,
    /// What they read from in front of them.
    feeds: Vec<TensorId>,
    /// The feeds that are summed, or are given.
    terms: HashSet<TensorId>,
}

impl End {
    fn of(network: &Network, result: TensorId) -> Self {
        let mut end = Self::default();
        let mut waiting = vec![result];
        while let Some(tensor) = waiting.pop() {
            let Some((id, layer)) = network.producer(tensor) else {
                end.term(network, tensor);
                continue;
            };
            if !end.layers.insert(id) {
                continue;
            }
            for &read in layer.inputs.iter().flatten() {
                // What is quantized stands for a float.
                let counts = network[read].ty.dtype.is_float() || layer.op.name == "DequantizeLinear";
                match (counts, layer.op.multiplications.is_some()) {
                    (true, false) => waiting.push(read),
                    (true, true) => end.term(network, read),
                    (false, _) => end.feed(network, read),
                }
            }
        }
        // A result that nothing computes.
        end.feeds.retain(|&feed| feed != result);
        end.terms.remove(&result);
        end
    }

    fn term(&mut self, network: &Network, tensor: TensorId) {
        self.feed(network, tensor);
        if self.feeds.contains(&tensor) && network[tensor].ty.dtype.is_float() {
            self.terms.insert(tensor);
        }
    }

    fn feed(&mut self, network: &Network, tensor: TensorId) {
        let comes = matches!(network[tensor].source, Source::Layer(..) | Source::Input);
        if comes && !self.feeds.contains(&tensor) {
            self.feeds.push(tensor);
        }
    }

    /// The network that gives the feeds.
    fn tapped(&self, network: &Network) -> Result<Network> {
        let mut tapped = network.without_outputs();
        for (number, &tensor) in self.feeds.iter().enumerate() {
            tapped.mark_output(tensor, &format!("tapped: {number}"))?;
        }
        Ok(tapped)
    }

    /// The network that makes a result of the feeds. What is computed in it and read by a product comes in for that one alone.
    fn network(&self, network: &Network, result: TensorId) -> Result<Network> {
        let (mut made, mut feeds, mut reads) = (network.clone(), self.feeds.clone(), vec![]);
        for (number, feed) in feeds.iter_mut().enumerate() {
            let computed = network.producer(*feed).filter(|(id, _)| self.layers.contains(id));
            if computed.is_none() {
                continue;
            }
            let ty = &network[*feed].ty;
            let alone = made.add_input(&format!("term: {number}"), ty.dtype, ty.shape.clone())?;
            let products = self.layers.iter().map(|&id| &network[id]);
            for layer in products.filter(|layer| layer.op.multiplications.is_some()) {
                let places = layer.inputs.iter().enumerate();
                let places = places.filter(|(_, read)| **read == Some(*feed));
                reads.extend(places.map(|(at, _)| (layer.name.clone(), at, alone)));
            }
            *feed = alone;
        }
        made.rewire(&reads, &[])?;
        made.part(Part {
            layers: &self.layers,
            feeds: &feeds,
            gives: &[result],
            symbols: network.symbols.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::passes::testing::Graph;

    #[test]
    fn an_end_begins_at_the_last_products() {
        let mut g = Graph::new();
        let (x, w) = (g.input("x", "4 3"), g.weights(&[3, 3]));
        let early = g.op("Relu", &[x]);
        let first = g.op("MatMul", &[early, w]);
        let gate = g.op("Sigmoid", &[first]);
        let second = g.op("MatMul", &[gate, w]);
        let gated = g.op("Mul", &[second, gate]);
        let joined = g.op_with("Concat", attrs([("axis", Attr::Int(1))]), &[gated, x]);
        let end = End::of(&g.network, joined);
        assert_eq!(end.layers.len(), 5);
        assert_eq!(end.terms, HashSet::from([early, gate, x]));
    }
}
