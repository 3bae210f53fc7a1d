//! How far roundings in front of a result's last sums would move each of its elements. Where large terms cancel, what is left is
//! off by a share of the terms: that such an element is small says nothing of how right it should be.

use crate::engine::samples::Random;
use crate::engine::verify;
use crate::error::Result;
use crate::network::array::{Array, require};
use crate::network::body;
use crate::network::dim::Binding;
use crate::network::op::Movement;
use crate::network::part::Part;
use crate::network::{Layer, LayerId, Network, Source, TensorId};
use crate::plan::program::Program;
use crate::runtime::executable::Executable;
use std::collections::HashSet;
use std::sync::Arc;

/// What the terms are off by, each for itself: little enough that what comes of it grows with it, and much beside float32.
const SHARE: f64 = 1.0 / 256.0;

/// Plans a network.
pub(super) type Planner<'p> = &'p dyn Fn(Network) -> Result<Program>;

/// For each element of a result, by how much it moves where the terms of its sums are off by themselves at random, as a share of
/// that: the size of what is summed. `None` where nothing is summed.
///
/// # Errors
/// Those of planning and running the end of the network.
pub(super) fn of(
    network: &Network,
    result: TensorId,
    binding: &Binding,
    inputs: &[Array],
    plan: Planner<'_>,
) -> Result<Option<Vec<f64>>> {
    let end = End::of(network, result);
    if end.terms.is_empty() {
        return Ok(None);
    }
    let mut feeds = run(plan(end.tapped(network)?)?, inputs, binding)?;
    let sizes: Vec<i64> = network
        .symbols
        .keys()
        .map(|symbol| binding.get(symbol).copied().unwrap_or(0))
        .collect();
    feeds.push(body::sizes(&sizes)?);
    let program = Arc::new(Executable::new(plan(end.network(network, result)?)?));
    let exact = verify::run_once(&program, &feeds, binding)?;
    let mut random = Random::default();
    for (feed, tensor) in feeds.iter_mut().zip(&end.feeds) {
        if end.terms.contains(tensor) {
            *feed = moved(feed, &mut random)?;
        }
    }
    let other = verify::run_once(&program, &feeds, binding)?;
    let pairs = other[0].to_f64().into_iter().zip(exact[0].to_f64());
    Ok(Some(pairs.map(|(other, exact)| (other - exact) / SHARE).collect()))
}

/// The elements, each a little larger or smaller.
fn moved(array: &Array, random: &mut Random) -> Result<Array> {
    require(array.len().saturating_mul(size_of::<f64>()))?;
    let mut factor = || 1.0 + SHARE.copysign(random.share() - 0.5);
    let values: Vec<f64> = array.f64s().map(|value| value * factor()).collect();
    Array::from_f64(array.dtype(), array.shape().to_vec(), &values)
}

fn run(program: Program, inputs: &[Array], binding: &Binding) -> Result<Vec<Array>> {
    verify::run_once(&Arc::new(Executable::new(program)), inputs, binding)
}

/// The layers from the last that sum, or join what was computed, to a result.
#[derive(Default)]
struct End {
    layers: HashSet<LayerId>,
    /// What they read from in front of them.
    feeds: Vec<TensorId>,
    /// The feeds that are summed.
    terms: HashSet<TensorId>,
}

impl End {
    fn of(network: &Network, result: TensorId) -> Self {
        let mut end = Self::default();
        let mut waiting = vec![result];
        while let Some(tensor) = waiting.pop() {
            let Some((id, layer)) = network.producer(tensor) else {
                end.feed(network, tensor);
                continue;
            };
            if !end.layers.insert(id) {
                continue;
            }
            let read = HashSet::<TensorId>::from_iter(layer.inputs.iter().flatten().copied());
            let computed =
                |tensor: &TensorId| network[*tensor].ty.dtype.is_float() && network[*tensor].constant().is_none();
            let floats: Vec<TensorId> = read.iter().copied().filter(computed).collect();
            match goes_on(layer, floats.len()) {
                true => waiting.extend(&floats),
                false => end.terms.extend(&floats),
            }
            let stays = |tensor: &TensorId| !floats.contains(tensor) || end.terms.contains(tensor);
            let feeds: Vec<TensorId> = read.iter().copied().filter(stays).collect();
            feeds.into_iter().for_each(|tensor| end.feed(network, tensor));
        }
        // What is read in one order by every build.
        end.feeds.sort();
        end
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

    /// The network that makes a result of the feeds.
    fn network(&self, network: &Network, result: TensorId) -> Result<Network> {
        network.part(Part {
            layers: &self.layers,
            feeds: &self.feeds,
            gives: &[result],
            symbols: network.symbols.clone(),
        })
    }
}

/// Whether each element that a layer gives comes from one element that was computed.
fn goes_on(layer: &Layer, computed: usize) -> bool {
    let op = layer.op;
    let one = op.pointwise.is_some() || op.movement != Movement::None || op.name == "Cast";
    op.movement == Movement::Concat || one && computed <= 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::passes::testing::Graph;

    #[test]
    fn an_end_begins_at_the_last_sums() {
        let mut g = Graph::new();
        let (x, w) = (g.input("x", "4 3"), g.weights(&[3, 2]));
        let early = g.op("Relu", &[x]);
        let product = g.op("MatMul", &[early, w]);
        let halved = g.op("Sigmoid", &[product]);
        let sum = g.op("Add", &[early, x]);
        let joined = g.op_with("Concat", attrs([("axis", Attr::Int(1))]), &[halved, sum]);
        let end = End::of(&g.network, joined);
        assert_eq!(end.layers.len(), 4);
        assert_eq!(end.terms, HashSet::from([early, x]));
        assert_eq!(end.feeds, [x, early]);
    }
}
