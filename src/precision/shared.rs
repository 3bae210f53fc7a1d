//! Scales that tensors share: those that are joined and those joined of them, as far as both are read in 8 bits. Each is then quantized once,
//! by the kernel that gives it, as in TensorRT, where what a concatenation joins has one scale.

use super::points::Point;
use crate::network::{Network, TensorId};
use crate::passes::{moved, moves};
use std::collections::{HashMap, HashSet};

/// What the 8 bits of a tensor have to hold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Extent {
    /// The greatest magnitude.
    pub most: f64,
    /// The least number, where it is known whatever the inputs are.
    pub least: Option<f64>,
}

impl Extent {
    fn with(self, other: Self) -> Self {
        Self {
            most: self.most.max(other.most),
            least: self.least.zip(other.least).map(|(a, b)| a.min(b)),
        }
    }
}

/// A shared scale is at most so many times a tensor's own, which costs it one bit.
const COARSEST: f64 = 2.0;

/// The extent of each point: its own, or that of all points which the same tensors reach through what only moves elements, where that
/// costs little. `own` gives the extents of points by themselves, `scale` the scale of an extent.
pub fn extents(
    network: &Network,
    points: &[Point],
    own: &[Option<Extent>],
    scale: impl Fn(Extent) -> f64,
) -> Vec<Option<Extent>> {
    let groups = groups(network, points);
    let mut shared: HashMap<usize, Extent> = HashMap::new();
    for (group, own) in groups.iter().zip(own) {
        if let Some(own) = *own {
            let of_group = shared.entry(*group).or_insert(own);
            *of_group = of_group.with(own);
        }
    }
    let one = |(group, own): (&usize, &Option<Extent>)| {
        let (own, of_group) = ((*own)?, *shared.get(group)?);
        Some(if scale(of_group) <= COARSEST * scale(own) {
            of_group
        } else {
            own
        })
    };
    groups.iter().zip(own).map(one).collect()
}

/// The number of the group of each point.
fn groups(network: &Network, points: &[Point]) -> Vec<usize> {
    let mut group_of: HashMap<TensorId, usize> = HashMap::new();
    for (number, point) in points.iter().enumerate() {
        let reached = reached(network, point.tensor);
        let known: HashSet<usize> = reached
            .iter()
            .filter_map(|tensor| group_of.get(tensor).copied())
            .collect();
        for group in group_of.values_mut().filter(|group| known.contains(group)) {
            *group = number;
        }
        group_of.extend(reached.into_iter().map(|tensor| (tensor, number)));
    }
    points.iter().map(|point| group_of[&point.tensor]).collect()
}

/// A tensor with all those from which it takes its elements.
fn reached(network: &Network, tensor: TensorId) -> Vec<TensorId> {
    let (mut found, mut next) = (vec![tensor], 0);
    while let Some(&tensor) = found.get(next) {
        next += 1;
        let Some((_, layer)) = network.producer(tensor).filter(|(_, layer)| moves(layer)) else {
            continue;
        };
        for &input in moved(layer).iter().flatten() {
            if network[input].constant().is_none() && !found.contains(&input) {
                found.push(input);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::points::points;
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::passes::testing::Graph;

    /// Two tensors, joined and read by a product, the first of them read by another one as well; the scales that are found of these for
    /// own greatest magnitudes.
    fn scales(first: f64, joined: f64) -> [f64; 2] {
        let mut g = Graph::new();
        let (x, y) = (g.input("x", "n 4 6 6"), g.input("y", "n 4 6 6"));
        let (v, w) = (g.weights(&[4, 4, 1, 1]), g.weights(&[4, 8, 1, 1]));
        let x = g.op("Relu", &[x]);
        let z = g.op("Conv", &[x, v]);
        let pooled = g.op_with("MaxPool", attrs([("kernel_shape", Attr::Ints(vec![1, 1]))]), &[x]);
        let both = g.op_with("Concat", attrs([("axis", Attr::Int(1))]), &[pooled, y]);
        let both = g.op("Conv", &[both, w]);
        g.output(z);
        g.output(both);
        let points = points(&g.network, &HashSet::new()).unwrap();
        let own = [(first, Some(0.0)), (joined, None)];
        let own = own.map(|(most, least)| Some(Extent { most, least }));
        let found = extents(&g.network, &points, &own, |extent| extent.most);
        [0, 1].map(|at| found[at].unwrap().most)
    }

    #[test]
    fn what_is_joined_shares_its_scale_where_that_costs_a_bit_at_most() {
        assert_eq!(scales(2.0, 3.0), [3.0, 3.0]);
        assert_eq!(scales(3.0, 2.0), [3.0, 3.0]);
        assert_eq!(scales(1.0, 3.0), [1.0, 3.0]);
    }

    #[test]
    fn others_keep_their_own() {
        let mut g = Graph::new();
        let x = g.input("x", "n 4 6 6");
        let w = g.weights(&[4, 4, 1, 1]);
        let y = g.op("Conv", &[x, w]);
        let y = g.op("Relu", &[y]);
        let y = g.op("Conv", &[y, w]);
        g.output(y);
        let points = points(&g.network, &HashSet::new()).unwrap();
        let extent = |most| Extent { most, least: None };
        let own = [Some(extent(2.0)), None];
        assert_eq!(extents(&g.network, &points, &own, |extent| extent.most), own);
    }
}
