//! The parts of a network's results that are judged one by one: what Concat joined. Scores beside the coordinates of boxes are
//! of another magnitude, and would be lost among them.

use crate::engine::slices::Channels;
use crate::error::Result;
use crate::network::attr::Read;
use crate::network::dim::{Binding, Dim};
use crate::network::ops::transpose;
use crate::network::{Network, TensorId};
use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

/// An output that is joined of more parts is judged as a whole.
const MOST: usize = 64;

/// Part of a tensor.
pub struct Part {
    /// Which elements, along each axis.
    pub extents: Vec<Range<usize>>,
    /// What gives them.
    pub source: TensorId,
    /// The axis along which it was joined to others.
    joined: Option<usize>,
}

impl Part {
    /// Its elements, out of those of the whole tensor.
    pub fn of<'v>(&self, shape: &[usize], values: &'v [f64]) -> Cow<'v, [f64]> {
        let mut axes = self.extents.iter().zip(shape);
        if axes.all(|(extent, &size)| *extent == (0..size)) {
            return values.into();
        }
        let mut places = vec![0];
        for (extent, &size) in self.extents.iter().zip(shape) {
            let along = |&before: &usize| extent.clone().map(move |at| before * size + at);
            places = places.iter().flat_map(along).collect();
        }
        places.into_iter().map(|at| values[at]).collect()
    }

    /// Where its channels lie: the second axis of images, the last of what has fewer, or that along which it was joined where
    /// that has fewer of them.
    pub fn channels(&self) -> Channels {
        let shape: Vec<usize> = self.extents.iter().map(Range::len).collect();
        let usual = match shape.len() {
            0..4 => shape.len().saturating_sub(1),
            _ => 1,
        };
        let all = [Some(usual), self.joined].into_iter().flatten();
        let all = all.map(|axis| Channels::of(&shape, axis));
        all.min_by_key(|channels| channels.count).unwrap_or_default()
    }
}

/// The parts of a tensor at these sizes; one, the whole, where nothing joined it.
///
/// # Errors
/// If an extent has no value.
pub fn parts(network: &Network, tensor: TensorId, binding: &Binding) -> Result<Vec<Part>> {
    let found = split(network, tensor, binding)?;
    match found.len() > MOST {
        true => Ok(vec![whole(network, tensor, binding)?]),
        false => Ok(found),
    }
}

fn split(network: &Network, tensor: TensorId, binding: &Binding) -> Result<Vec<Part>> {
    let Some((_, layer)) = network.producer(tensor) else {
        return Ok(vec![whole(network, tensor, binding)?]);
    };
    match (layer.op.name, layer.inputs.first().copied().flatten()) {
        ("Cast" | "Identity", Some(x)) if network[x].ty.dtype.is_float() => split(network, x, binding),
        ("Transpose", Some(x)) => {
            let order = transpose::permutation(&layer.attrs, network[x].ty.rank())?;
            let mut found = split(network, x, binding)?;
            for part in &mut found {
                part.extents = order.iter().map(|&axis| part.extents[axis].clone()).collect();
                let moved = |joined| order.iter().position(|&axis| axis == joined);
                part.joined = part.joined.and_then(moved);
            }
            Ok(found)
        }
        ("Concat", _) => {
            let axis = network[tensor].ty.axis(layer.attrs.int("axis"))?;
            let (mut found, mut start) = (vec![], 0);
            for &x in layer.inputs.iter().flatten() {
                let joined = split(network, x, binding)?;
                found.extend(joined.into_iter().map(|mut part| {
                    let extent = &mut part.extents[axis];
                    *extent = extent.start + start..extent.end + start;
                    part.joined = Some(axis);
                    part
                }));
                start += extent(&network[x].ty.shape[axis], binding)?;
            }
            Ok(found)
        }
        _ => Ok(vec![whole(network, tensor, binding)?]),
    }
}

fn whole(network: &Network, tensor: TensorId, binding: &Binding) -> Result<Part> {
    let dims = network[tensor].ty.shape.iter();
    let extents = dims.map(|dim| Ok(0..extent(dim, binding)?));
    Ok(Part {
        extents: extents.collect::<Result<_>>()?,
        source: tensor,
        joined: None,
    })
}

fn extent(dim: &Dim, binding: &Binding) -> Result<usize> {
    Ok(dim.eval(binding)?.max(0) as usize)
}

/// The floats that decide what integers and truth values a network gives. Of two that are nearly equal either may be the
/// greater one in a lower precision, so the integers themselves say nothing of it.
pub fn decisive(network: &Network) -> Vec<TensorId> {
    let mut waiting: Vec<TensorId> = network.outputs().iter().map(|output| output.tensor).collect();
    waiting.retain(|&tensor| !network[tensor].ty.dtype.is_float());
    let (mut seen, mut found) = (HashSet::<TensorId>::from_iter(waiting.clone()), vec![]);
    while let Some(tensor) = waiting.pop() {
        let Some((_, layer)) = network.producer(tensor) else {
            continue;
        };
        for &x in layer.inputs.iter().flatten() {
            if !seen.insert(x) {
                continue;
            }
            match network[x].ty.dtype.is_float() {
                true if network.producer(x).is_some() => found.push(x),
                true => {}
                false => waiting.push(x),
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::network::dtype::DType;
    use crate::passes::testing::Graph;

    #[test]
    fn what_is_joined_comes_apart_through_transposes() {
        let mut g = Graph::new();
        let (x, y) = (g.input("x", "2 3"), g.input("y", "2 1"));
        let (x, y) = (g.op("Relu", &[x]), g.op("Sigmoid", &[y]));
        let both = g.op_with("Concat", attrs([("axis", Attr::Int(1))]), &[x, y]);
        let turned = g.op_with("Transpose", attrs([("perm", Attr::Ints(vec![1, 0]))]), &[both]);
        let found = parts(&g.network, turned, &Binding::new()).unwrap();
        let values: Vec<f64> = (0..8).map(f64::from).collect();
        let found: Vec<_> = found
            .iter()
            .map(|part| (part.source, part.of(&[4, 2], &values).into_owned()))
            .collect();
        assert_eq!(found, [(x, vec![0., 1., 2., 3., 4., 5.]), (y, vec![6., 7.])]);
    }

    #[test]
    fn channels_lie_where_few_were_joined() {
        let mut g = Graph::new();
        let (boxes, scores, image) = (g.input("b", "1 4 90"), g.input("s", "1 3 90"), g.input("i", "1 8 5 6"));
        let both = g.op_with("Concat", attrs([("axis", Attr::Int(1))]), &[boxes, scores]);
        let counts = |tensor| {
            let parts = parts(&g.network, tensor, &Binding::new()).unwrap();
            parts
                .iter()
                .map(|part| (part.channels().count, part.channels().stride))
                .collect::<Vec<_>>()
        };
        assert_eq!(counts(both), [(4, 90), (3, 90)]);
        assert_eq!(counts(boxes), [(90, 1)]);
        assert_eq!(counts(image), [(8, 30)]);
    }

    #[test]
    fn what_decides_stands_before_integers() {
        let mut g = Graph::new();
        let (x, ids) = (g.input("x", "2 3"), g.input_of("ids", DType::Int64, "2 3"));
        let scores = g.op("Softmax", &[x]);
        let best = g.op_with("ArgMax", attrs([("axis", Attr::Int(1))]), &[scores]);
        let moved = g.op("Add", &[best, ids]);
        g.output(moved);
        assert_eq!(decisive(&g.network), [scores]);
    }
}
