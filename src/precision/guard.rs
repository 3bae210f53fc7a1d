//! Which residuals stay in floats: those that 8 bits would round by more than their sums bear.
//!
//! `n` steps of `s` round by noise of the power `s^2 / 12` (Widrow and Kollár, "Quantization Noise", 2008: the error is uniform within
//! a step), and noises that do not depend on each other add up. A residual of 8 bits so adds `s^2 / 12` to its sum. Beside that stands what
//! the sum has anyway: what the stream carries, and what the branch brings, whose products round what they read and their weights,
//! each of them by about as much as 8 bits would round their result. Ranges of all tensors are taken for the same multiple of their
//! root mean squares, so that noises are counted in roundings of the tensor that has them, `(range / 127)^2 / 12` each:
//!
//! - a product hands on what its input has, with one of its input's rounding and one of its weights';
//! - a sum of a residual (range `R`, noise `n`) and a branch (`r`, `m`) has `n R^2 + m r^2`, and `R^2` more where the residual is
//!   rounded (less where its steps have no sign), of a range of `sqrt(R^2 + r^2)`;
//! - what else there is has the mean of what it reads.
//!
//! A small branch brings little beside a step of the stream, and a stream that passes many of them is rounded again and again;
//! where branches are as large as their streams, or many products stand before, a rounding more is not noticed.

use super::place::Ranges;
use super::points::{Point, branch, channel_axis, name};
use super::shared::Extent;
use crate::error::Result;
use crate::network::{Layer, LayerId, Network, TensorId};
use std::collections::{HashMap, HashSet};

/// Residuals of 8 bits may make the noise of a sum greater by this part of it, all of them together: 0.8 dB. What follows adds noise of its
/// own, so that results lose less.
const MOST_MORE: f64 = 0.2;

/// The power of the noise of a tensor, in roundings of it to int8.
#[derive(Debug, Clone, Copy, Default)]
struct Noise {
    /// Where no residual is rounded.
    least: f64,
    /// With the residuals that are.
    here: f64,
}

/// What a layer reads in 8 bits: the number of its input, and what these hold.
type Reader = (usize, Option<Extent>);

/// The sums whose residual stays in floats, of those that read one of these points, in an order of execution. `step` gives the step of
/// an extent. A residual is rounded where the range of what is added to it is not known.
///
/// # Errors
/// If the network has a cycle.
pub fn residuals_in_floats(
    network: &Network,
    points: &[Point],
    extents: &[Option<Extent>],
    ranges: &Ranges,
    step: impl Fn(Extent) -> f64,
) -> Result<Vec<LayerId>> {
    let mut readers: HashMap<LayerId, Reader> = HashMap::new();
    for (point, extent) in points.iter().zip(extents) {
        readers.extend(point.readers.iter().map(|&(id, at)| (id, (at, *extent))));
    }
    let rounding = |extent: Extent| (127.0 * step(extent) / extent.most.max(f64::MIN_POSITIVE)).powi(2);
    let mut noises: HashMap<TensorId, Noise> = HashMap::new();
    let mut found = vec![];
    for id in network.order()? {
        let layer = &network[id];
        let reader = readers.get(&id).copied();
        let residual = reader.and_then(|(at, extent)| Some((at, extent.filter(|_| layer.op.name == "Add")?)));
        let noise = match residual.zip(residual.and_then(|(at, _)| branch(network, id, at))) {
            Some(((at, extent), other)) => {
                let known = ranges.get(&name(network, other)).map(|&most| f64::from(most));
                let powers = [extent.most, known.unwrap_or(extent.most)].map(|most| most.powi(2));
                let own = layer.inputs[at].and_then(|tensor| noises.get(&tensor));
                let added = noises.get(&other);
                let of =
                    |part: fn(&Noise) -> f64| powers[0] * own.map_or(0.0, part) + powers[1] * added.map_or(0.0, part);
                let (least, floats) = (of(|noise| noise.least), of(|noise| noise.here));
                let rounded = floats + powers[0] * rounding(extent);
                let stays = known.is_some() && rounded > (1.0 + MOST_MORE) * least;
                found.extend(stays.then_some(id));
                let power = (powers[0] + powers[1]).max(f64::MIN_POSITIVE);
                Noise {
                    least: least / power,
                    here: if stays { floats } else { rounded } / power,
                }
            }
            None => handed_on(network, layer, reader, &noises, rounding),
        };
        noises.extend(layer.outputs.iter().map(|&tensor| (tensor, noise)));
    }
    Ok(found)
}

/// The noise of what a layer gives that adds no residual.
fn handed_on(
    network: &Network,
    layer: &Layer,
    reader: Option<Reader>,
    noises: &HashMap<TensorId, Noise>,
    rounding: impl Fn(Extent) -> f64,
) -> Noise {
    let given: Vec<Noise> = layer
        .inputs
        .iter()
        .flatten()
        .filter(|&&tensor| network[tensor].constant().is_none())
        .map(|tensor| noises.get(tensor).copied().unwrap_or_default())
        .collect();
    let mean = |part: fn(&Noise) -> f64| given.iter().map(part).sum::<f64>() / given.len().max(1) as f64;
    let own = reader.map_or(0.0, |(_, extent)| {
        f64::from(channel_axis(network, layer).is_some()) + extent.map_or(0.0, rounding)
    });
    Noise {
        least: mean(|noise| noise.least) + own,
        here: mean(|noise| noise.here) + own,
    }
}

/// Lets these sums read what they did: points without them.
pub fn without(points: &mut [Point], in_floats: &[LayerId]) {
    let in_floats: HashSet<LayerId> = in_floats.iter().copied().collect();
    for point in points {
        point.readers.retain(|(id, _)| !in_floats.contains(id));
    }
}

#[cfg(test)]
mod tests {
    use super::super::points::{Role, integers, points};
    use super::*;
    use crate::passes::testing::Graph;

    /// A stream that passes blocks with these ranges beside its own, and says how many of their sums keep it in floats. `known`: whether
    /// the ranges of branches are.
    fn in_floats(branches: &[f32], products_before: usize, known: bool) -> usize {
        let mut g = Graph::new();
        let mut x = g.input("x", "n 4 6 6");
        for _ in 0..products_before {
            let w = g.weights(&[4, 4, 1, 1]);
            let y = g.op("Conv", &[x, w]);
            x = g.op("Tanh", &[y]);
        }
        let mut most = HashMap::new();
        for &range in branches {
            let w = g.weights(&[4, 4, 1, 1]);
            let y = g.op("Conv", &[x, w]);
            let y = g.op("Silu", &[y]);
            most.insert(y, range);
            x = g.op("Add", &[x, y]);
        }
        g.output(x);
        let found = points(&g.network, &HashSet::new()).unwrap();
        let of = |point: &Point| (point.name.clone(), most.get(&point.tensor).copied().unwrap_or(1.0));
        let ranges = found
            .iter()
            .filter(|p| known || p.role != Role::Branch)
            .map(of)
            .collect();
        let read: Vec<Point> = found.into_iter().filter(|p| p.role != Role::Branch).collect();
        let extent = |point: &Point| {
            Some(Extent {
                most: 1.0,
                least: point.least,
            })
        };
        let extents: Vec<_> = read.iter().map(extent).collect();
        let step = |extent: Extent| integers(extent.most, extent.least).0;
        residuals_in_floats(&g.network, &read, &extents, &ranges, step)
            .unwrap()
            .len()
    }

    #[test]
    fn small_branches_keep_the_stream_in_floats() {
        assert_eq!(in_floats(&[0.1; 6], 1, true), 6);
        assert_eq!(in_floats(&[0.0; 3], 1, true), 3);
    }

    #[test]
    fn branches_as_large_as_their_stream_do_not() {
        assert_eq!(in_floats(&[1.5; 4], 2, true), 0);
        assert_eq!(in_floats(&[0.6, 0.5], 8, true), 0);
    }

    #[test]
    fn many_roundings_count_together() {
        // Each by itself is little beside the noise of twelve products.
        assert_eq!(in_floats(&[0.1; 3], 12, true), 0);
        assert_eq!(in_floats(&[0.1; 12], 12, true), 12 - 4);
    }

    #[test]
    fn without_the_ranges_of_branches_all_are_rounded() {
        assert_eq!(in_floats(&[0.1; 6], 1, false), 0);
    }
}
