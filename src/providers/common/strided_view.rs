//! Strided views: tensors whose layers only move elements, as offset and strides into the memory of another tensor.

use crate::error::Result;
use crate::network::attr::Read;
use crate::network::dim::{Binding, Dim};
use crate::network::ops::transpose::permutation;
use crate::network::{Layer, LayerId, Network, TensorId};
use crate::plan::layout::Layout;
use std::collections::HashSet;

/// Offset and strides of a tensor in the memory of another one.
#[derive(Debug, Clone)]
pub struct StridedView {
    /// The extents.
    pub shape: Vec<Dim>,
    /// The element stride of each axis; 0 where it is broadcast.
    pub strides: Vec<Dim>,
    /// The offset of the first element, in elements.
    pub offset: Dim,
}

/// A [`StridedView`] at concrete shapes.
#[derive(Debug, Clone)]
pub struct ConcreteView {
    /// The extents.
    pub shape: Vec<usize>,
    /// The element stride of each axis; 0 where it is broadcast.
    pub strides: Vec<usize>,
    /// The offset of the first element, in elements.
    pub offset: usize,
}

impl StridedView {
    /// The whole of a plain tensor.
    pub fn plain(shape: &[Dim]) -> Self {
        Self::in_order(shape, 0..shape.len())
    }

    /// The whole of a tensor in a layout; `None` where that has no strides.
    pub fn whole(shape: &[Dim], layout: Layout) -> Option<Self> {
        Some(Self::in_order(shape, layout.order(shape.len())?.into_iter()))
    }

    /// The whole of a tensor whose axes lie so in memory, the innermost last.
    fn in_order(shape: &[Dim], order: impl DoubleEndedIterator<Item = usize>) -> Self {
        let mut strides = vec![Dim::default(); shape.len()];
        let mut stride = Dim::from(1i64);
        for axis in order.rev() {
            strides[axis] = stride.clone();
            stride = stride * shape[axis].clone();
        }
        Self {
            shape: shape.to_vec(),
            strides,
            offset: Dim::default(),
        }
    }

    /// The view broadcast to these extents, whose rank may be higher; `None` if it can't be.
    pub fn broadcast(mut self, shape: &[Dim]) -> Option<Self> {
        let lead = shape.len().checked_sub(self.shape.len())?;
        self.shape.splice(0..0, vec![1i64.into(); lead]);
        self.strides.splice(0..0, vec![Dim::default(); lead]);
        for (axis, dim) in shape.iter().enumerate() {
            if self.shape[axis] != *dim {
                if !self.shape[axis].is(1) {
                    return None;
                }
                self.shape[axis] = dim.clone();
                self.strides[axis] = Dim::default();
            }
        }
        Some(self)
    }

    fn transposed(mut self, perm: &[usize]) -> Self {
        self.shape = perm.iter().map(|&axis| self.shape[axis].clone()).collect();
        self.strides = perm.iter().map(|&axis| self.strides[axis].clone()).collect();
        self
    }

    /// The view reshaped; `None` if that would need a copy.
    fn reshaped(self, shape: &[Dim]) -> Option<Self> {
        let own = self.shape.iter().zip(&self.strides).filter(|(dim, _)| !dim.is(1));
        let mut own = own.map(|(dim, stride)| (dim.clone(), stride.clone())).peekable();
        let mut strides = vec![Dim::default(); shape.len()];
        let mut axes = (0..shape.len()).filter(|&axis| !shape[axis].is(1)).peekable();
        while let Some(first) = axes.next() {
            let (mut from, mut stride) = own.next()?;
            let (mut to, mut group) = (shape[first].clone(), vec![first]);
            while from != to {
                if from.quotient(&to).is_some() {
                    let axis = axes.next()?;
                    to = to * shape[axis].clone();
                    group.push(axis);
                } else {
                    to.quotient(&from)?;
                    let (dim, inner) = own.next()?;
                    if stride != dim.clone() * inner.clone() {
                        return None;
                    }
                    from = from * dim;
                    stride = inner;
                }
            }
            for axis in group.into_iter().rev() {
                strides[axis] = stride.clone();
                stride = stride * shape[axis].clone();
            }
        }
        own.next().is_none().then(|| Self {
            shape: shape.to_vec(),
            strides,
            offset: self.offset,
        })
    }

    fn narrowed(mut self, axis: usize, start: Dim, step: i64, extent: &Dim) -> Self {
        self.offset = self.offset + start * self.strides[axis].clone();
        self.strides[axis] = self.strides[axis].clone() * step.into();
        self.shape[axis] = extent.clone();
        self
    }

    /// The view of the result `output` of a layer that reads this one; `None` if that would need a copy.
    fn through(self, network: &Network, layer: &Layer, output: TensorId) -> Option<Self> {
        let shape = &network[output].ty.shape;
        let axis = |name: &str| network[layer.inputs[0]?].ty.axis(layer.attrs.int(name)).ok();
        match layer.op.name {
            "Transpose" => Some(self.transposed(&permutation(&layer.attrs, shape.len()).ok()?)),
            "Reshape" => self.reshaped(shape),
            "Expand" => self.broadcast(shape),
            "Split" => {
                let axis = axis("axis")?;
                let before = layer.outputs.iter().take_while(|&&t| t != output);
                let start = before.fold(Dim::default(), |sum, &t| sum + network[t].ty.shape[axis].clone());
                Some(self.narrowed(axis, start, 1, &shape[axis]))
            }
            "Gather" => {
                let axis = axis("axis")?;
                let index = network[layer.inputs[1]?].constant()?;
                let &[index] = index.to_i64().as_slice() else {
                    return None;
                };
                // Of an extent that only a call tells, the layer itself says whether the place is inside.
                let inside = self.shape[axis]
                    .as_const()
                    .is_some_and(|size| (-size..size).contains(&index));
                if shape.len() + 1 != self.shape.len() || !inside {
                    return None;
                }
                let place = if index < 0 {
                    self.shape[axis].clone() + index.into()
                } else {
                    index.into()
                };
                let mut view = self.narrowed(axis, place, 1, &1i64.into());
                view.shape.remove(axis);
                view.strides.remove(axis);
                Some(view)
            }
            "Slice" => self.sliced(network, layer, shape),
            _ => None,
        }
    }

    /// The view of the result of a Slice with constant starts from the front and positive steps.
    fn sliced(mut self, network: &Network, layer: &Layer, shape: &[Dim]) -> Option<Self> {
        let numbers = |index: usize| -> Option<Option<Vec<i64>>> {
            let Some(tensor) = layer.inputs.get(index).copied().flatten() else {
                return Some(None);
            };
            let value = network[tensor].ty.value.as_ref()?;
            Some(Some(value.iter().map(Dim::as_const).collect::<Option<_>>()?))
        };
        let (starts, axes, steps) = (numbers(1)??, numbers(3)?, numbers(4)?);
        let ty = &network[layer.inputs[0]?].ty;
        for (i, start) in starts.into_iter().enumerate() {
            let axis = ty.axis(axes.as_ref().map_or(i as i64, |axes| axes[i])).ok()?;
            let step = steps.as_ref().map_or(1, |steps| steps[i]);
            let inside = self.shape[axis].as_const().is_some_and(|extent| start <= extent);
            if step < 1 || start < 0 || (start > 0 && !inside) {
                return None;
            }
            self = self.narrowed(axis, start.into(), step, &shape[axis]);
        }
        Some(self)
    }

    /// At concrete shapes.
    ///
    /// # Errors
    /// If a symbol has no value.
    pub fn at(&self, binding: &Binding) -> Result<ConcreteView> {
        let numbers = |dims: &[Dim]| {
            dims.iter()
                .map(|d| Ok(d.eval(binding)? as usize))
                .collect::<Result<Vec<_>>>()
        };
        Ok(ConcreteView {
            shape: numbers(&self.shape)?,
            strides: numbers(&self.strides)?,
            offset: self.offset.eval(binding)? as usize,
        })
    }
}

/// A tensor as a view of the memory of `root`, with the layers that the view stands for.
#[derive(Debug, Clone)]
pub struct FoldedView {
    /// The tensor that is in memory.
    pub root: TensorId,
    /// The view of it.
    pub view: StridedView,
    /// The layers that the view stands for, the one next to the tensor first.
    pub layers: Vec<LayerId>,
}

impl FoldedView {
    /// The view of `tensor`, which this is one of, where the root lies in another layout; `None` if that needs a copy.
    pub fn where_root_is(&self, network: &Network, tensor: TensorId, layout: Layout) -> Option<StridedView> {
        let (mut steps, mut at) = (vec![], tensor);
        for &layer in &self.layers {
            steps.push((layer, at));
            at = network[layer].inputs[0]?;
        }
        let whole = StridedView::whole(&network[self.root].ty.shape, layout)?;
        followed(network, whole, &steps)
    }
}

/// A view through layers, each with the result of it that is meant, the last one first.
fn followed(network: &Network, whole: StridedView, steps: &[(LayerId, TensorId)]) -> Option<StridedView> {
    let mut steps = steps.iter().rev();
    steps.try_fold(whole, |view, (id, output)| {
        view.through(network, &network[*id], *output)
    })
}

/// The most layers that a view stands for.
const LONGEST: usize = 12;

/// The view of a tensor through as many as possible of the `allowed` layers that produce it.
pub fn through_producers(network: &Network, tensor: TensorId, allowed: &HashSet<LayerId>) -> FoldedView {
    let mut steps = vec![];
    let mut at = tensor;
    while let Some((id, layer)) = network.producer(at).filter(|(id, _)| allowed.contains(id)) {
        steps.push((id, at));
        let Some(Some(input)) = layer.inputs.first() else { break };
        at = *input;
    }
    for skip in (0..=steps.len()).rev() {
        let steps = &steps[..skip];
        let root = steps.last().map_or(Some(tensor), |(id, _)| network[*id].inputs[0]);
        let Some(root) = root else { continue };
        let plain = StridedView::plain(&network[root].ty.shape);
        if let Some(view) = followed(network, plain, steps) {
            return FoldedView {
                root,
                view,
                layers: steps.iter().map(|(id, _)| *id).collect(),
            };
        }
    }
    FoldedView {
        root: tensor,
        view: StridedView::plain(&network[tensor].ty.shape),
        layers: vec![],
    }
}

/// The layers that produce these tensors by only moving elements, and whose results `reader` alone reads.
pub fn movement_producers(network: &Network, reader: LayerId, tensors: &[TensorId]) -> HashSet<LayerId> {
    let mut found = HashSet::new();
    for &tensor in tensors {
        let mut at = tensor;
        for _ in 0..LONGEST {
            let Some((id, layer)) = network.producer(at).filter(|(_, layer)| moves(layer)) else {
                break;
            };
            found.insert(id);
            let Some(Some(input)) = layer.inputs.first() else { break };
            at = *input;
        }
    }
    loop {
        let private = |id: &LayerId| {
            network[*id].outputs.iter().all(|&t| {
                let users = &network[t].users;
                !network.is_output(t) && users.iter().all(|user| *user == reader || found.contains(user))
            })
        };
        let kept: HashSet<LayerId> = found.iter().copied().filter(private).collect();
        if kept.len() == found.len() {
            return kept;
        }
        found = kept;
    }
}

fn moves(layer: &Layer) -> bool {
    matches!(
        layer.op.name,
        "Transpose" | "Reshape" | "Expand" | "Split" | "Gather" | "Slice"
    )
}

/// The view of a tensor in the result of the Transposes and Reshapes that consume it.
pub fn through_consumers(network: &Network, tensor: TensorId) -> FoldedView {
    let mut folded = FoldedView {
        root: tensor,
        view: StridedView::plain(&network[tensor].ty.shape),
        layers: vec![],
    };
    let mut steps: Vec<(LayerId, TensorId)> = vec![];
    while steps.len() < LONGEST {
        let at = steps.last().map_or(tensor, |(id, _)| network[*id].outputs[0]);
        let Some(user) = network.sole_user(at) else { break };
        if !matches!(network[user].op.name, "Transpose" | "Reshape") || network[user].inputs[0] != Some(at) {
            break;
        }
        steps.push((user, at));
        let root = network[user].outputs[0];
        let plain = Some(StridedView::plain(&network[root].ty.shape));
        let view = steps.iter().rev().fold(plain, |view, (id, input)| {
            let (view, input) = (view?, &network[*input].ty.shape);
            match network[*id].op.name {
                "Reshape" => view.reshaped(input),
                _ => Some(view.transposed(&inverse(&permutation(&network[*id].attrs, input.len()).ok()?))),
            }
        });
        if let Some(view) = view {
            let layers = steps.iter().map(|(id, _)| *id).collect();
            folded = FoldedView { root, view, layers };
        }
    }
    folded
}

fn inverse(perm: &[usize]) -> Vec<usize> {
    let mut inverse = vec![0; perm.len()];
    perm.iter().enumerate().for_each(|(to, &from)| inverse[from] = to);
    inverse
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dims(text: &str) -> Vec<Dim> {
        text.split_whitespace().map(|d| d.parse().unwrap()).collect()
    }

    #[test]
    fn heads_are_strides_of_what_they_were_cut_from() {
        let view = StridedView::plain(&dims("b s 48"))
            .reshaped(&dims("b s 3 4 4"))
            .unwrap();
        let heads = view.transposed(&[2, 0, 3, 1, 4]);
        assert_eq!(heads.strides, dims("16 48*s 4 48 1"));
        let keys = heads.narrowed(0, 1i64.into(), 1, &1i64.into());
        assert_eq!(keys.offset, 16i64.into());
        let keys = keys.reshaped(&dims("b 4 s 4")).unwrap();
        assert_eq!(keys.strides, dims("48*s 4 48 1"));
        assert!(keys.reshaped(&dims("b 4*s 4")).is_none());
    }

    #[test]
    fn what_was_expanded_has_no_stride() {
        let view = StridedView::plain(&dims("b 2 1 s 8"))
            .broadcast(&dims("b 2 3 s 8"))
            .unwrap();
        assert_eq!(view.strides, dims("16*s 8*s 0 8 1"));
        assert!(view.reshaped(&dims("b 6 s 8")).is_none());
    }
}
