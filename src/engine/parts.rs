//! The parts of a network's results that are judged one by one: what Concat joined. Scores beside the coordinates of boxes are
//! of another magnitude, and would be lost among them.

use crate::engine::slices::Slices;
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

    /// Its slices along each axis; of many elements along that of the channels alone: the second of four or more, the last of fewer.
    pub fn slices(&self) -> Vec<Slices> {
        /// Elements that are looked at once for each axis in next to no time.
        const MOST: usize = 1 << 18;
        let shape: Vec<usize> = self.extents.iter().map(Range::len).collect();
        let channels = match shape.len() {
            0..4 => shape.len().saturating_sub(1),
            _ => 1,
        };
        let few = shape.iter().product::<usize>() <= MOST;
        let axes = (0..shape.len()).filter(|&axis| shape[axis] > 1 && (few || axis == channels));
        axes.map(|axis| Slices::of(&shape, axis)).collect()
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
            }
            Ok(found)
        }
        ("Concat", _) => {
            let axis = network[tensor].ty.axis(layer.attrs.int("axis"))?;
            let (mut found, mut start) = (vec![], 0);
            for &x in layer.inputs.iter().flatten() {
                if found.len() > MOST {
                    break;
                }
                let joined = split(network, x, binding)?;
                found.extend(joined.into_iter().map(|mut part| {
                    let extent = &mut part.extents[axis];
                    *extent = extent.start + start..extent.end + start;
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
    fn slices_lie_along_each_axis_of_few_elements() {
        let mut g = Graph::new();
        let (scores, image) = (g.input("s", "1 3 90"), g.input("i", "2 8 500 600"));
        let axes = |tensor| {
            let part = whole(&g.network, tensor, &Binding::new()).unwrap();
            part.slices()
                .into_iter()
                .map(|slices| (slices.axis, slices.count))
                .collect::<Vec<_>>()
        };
        assert_eq!(axes(scores), [(1, 3), (2, 90)]);
        assert_eq!(axes(image), [(1, 8)]);
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
