//! Lets transposes around products meet: a matrix multiplies rows in any order.

use super::build::Build;
use super::matching::{input, inverse, is_pointwise, moves_only_ones, permutation, sliced_axes};
use super::merge_transposes::sinks_below_slices;
use super::{Found, Pass, rewrite, rule_if, rule_if_some};
use crate::network::attr::{Attr, Read};
use crate::network::dim::Dim;
use crate::network::patch::Patch;
use crate::network::{Layer, LayerId, Network, TensorId};
use std::collections::HashMap;

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "sink_transposes",
    doc: "Transpose -> MatMul by a matrix, pointwise, Reshape, Slice, Split that leave the first axes alone -> Transposes => the same with \
          the first axes in another order, in which fewer Transposes move more than ones: MultiheadAttention of PyTorch with batch_first",
    apply: |network, _| rewrite(network, rule),
};

fn rule(network: &Network, id: LayerId) -> Found<'_> {
    let upper = &network[id];
    rule_if_some!((source, perm) = input(upper, 0).zip(permutation(network, upper)));
    rule_if_some!(tree = Tree::below(network, source, perm, upper.outputs[0]));
    let before = tree.transposes(&[]);
    let mut orders = tree.orders();
    rule_if_some!(order = orders.find(|order| tree.transposes(order) < before));
    tree.in_order(&order)
}

/// What reads the result of a Transpose, down to the next Transposes. Along the first axes all of it does the same at each place, so
/// that it may be computed with these in any order.
struct Tree<'n> {
    network: &'n Network,
    /// What the upper Transpose reads, and its permutation.
    source: TensorId,
    perm: Vec<usize>,
    /// Its result.
    top: TensorId,
    /// The layers between the Transposes, each behind those that it reads.
    layers: Vec<LayerId>,
    /// The Transposes at the ends.
    lower: Vec<Lower<'n>>,
    /// How many of the first axes all layers leave alone.
    free: usize,
}

/// A Transpose at an end.
struct Lower<'n> {
    from: TensorId,
    to: TensorId,
    shape: &'n [Dim],
    perm: Vec<usize>,
}

impl<'n> Tree<'n> {
    /// The tree below a Transpose with at least one product in it, where nothing else reads a tensor in it and the first two axes
    /// or more stay.
    fn below(network: &'n Network, source: TensorId, perm: Vec<usize>, top: TensorId) -> Option<Self> {
        let mut tree = Self {
            network,
            source,
            free: perm.len(),
            perm,
            top,
            layers: vec![],
            lower: vec![],
        };
        let mut pending = vec![top];
        while let Some(tensor) = pending.pop() {
            if network.is_output(tensor) {
                return None;
            }
            for &user in &network[tensor].users {
                pending.extend(tree.add(user, tensor)?);
            }
        }
        let multiplies = |id: &LayerId| network[*id].op.name == "MatMul";
        tree.layers.iter().any(multiplies).then_some(tree)
    }

    /// Takes in a layer that reads a tensor of the tree; gives its results, unless it is an end.
    fn add(&mut self, user: LayerId, tensor: TensorId) -> Option<&'n [TensorId]> {
        let (network, layer) = (self.network, &self.network[user]);
        if let Some(perm) = permutation(network, layer) {
            // In another order it may no longer.
            if sinks_below_slices(network, layer) {
                return None;
            }
            self.lower.push(Lower {
                from: tensor,
                to: layer.outputs[0],
                shape: &network[tensor].ty.shape,
                perm,
            });
            return Some(&[]);
        }
        let (main, free) = leaves_alone(network, layer)?;
        self.free = self.free.min(free);
        // A size has the layer's name: under another one it would be another size.
        let fits = self.free > 1 && network.new_sizes(user).is_empty() && !self.layers.contains(&user);
        self.layers.push(user);
        (fits && input(layer, main) == Some(tensor)).then_some(&layer.outputs)
    }

    /// The orders of first axes in which a Transpose moves nothing: each says for an axis which one it was.
    fn orders(&self) -> impl Iterator<Item = Vec<usize>> {
        let first = |perm: &[usize]| {
            let moved = perm.iter().enumerate().rposition(|(to, &from)| to != from)?;
            (moved < self.free).then(|| perm[..=moved].to_vec())
        };
        let upper = first(&self.perm).map(|perm| inverse(&perm));
        let lower = self.lower.iter().filter_map(move |lower| first(&lower.perm));
        upper.into_iter().chain(lower)
    }

    /// How many Transposes move more than ones, where the first axes are in another order.
    fn transposes(&self, order: &[usize]) -> usize {
        let upper = !moves_only_ones(&self.network[self.source].ty.shape, &reordered(&self.perm, order));
        let moves = |lower: &&Lower| !moves_only_ones(&reordered(lower.shape, order), &lower.perm_after(order));
        usize::from(upper) + self.lower.iter().filter(moves).count()
    }

    /// The patch that writes the tree with its first axes in another order.
    fn in_order(&self, order: &[usize]) -> Found<'n> {
        let network = self.network;
        let mut patch = Patch::new(network);
        let top = patch.transpose(self.source, &reordered(&self.perm, order))?;
        let mut new = HashMap::from([(self.top, top)]);
        for &id in &self.layers {
            let layer = &network[id];
            let other = |slot: &Option<TensorId>| slot.map(|tensor| *new.get(&tensor).unwrap_or(&tensor));
            let mut inputs: Vec<_> = layer.inputs.iter().map(other).collect();
            let mut attrs = layer.attrs.clone();
            if layer.op.name == "Reshape" {
                rule_if_some!(target = target(network, layer));
                inputs[1] = Some(patch.dims(&reordered(&target, order)));
                attrs.insert("allowzero".into(), Attr::Int(1));
            }
            let outputs = patch.copy(id, attrs, &inputs)?;
            for (&old, output) in layer.outputs.iter().zip(outputs) {
                rule_if!(patch.ty(output).shape == reordered(&network[old].ty.shape, order));
                new.insert(old, output);
            }
        }
        for lower in &self.lower {
            let result = patch.transpose(new[&lower.from], &lower.perm_after(order))?;
            patch.shunt(lower.to, result)?;
        }
        Ok(Some(patch))
    }
}

impl Lower<'_> {
    /// The permutation that gives the same where the first axes come in another order.
    fn perm_after(&self, order: &[usize]) -> Vec<usize> {
        let places = inverse(order);
        let place = |&axis: &usize| places.get(axis).copied().unwrap_or(axis);
        self.perm.iter().map(place).collect()
    }
}

/// The items with the first ones in another order.
fn reordered<T: Clone>(items: &[T], order: &[usize]) -> Vec<T> {
    let first = order.iter().map(|&at| items[at].clone());
    first.chain(items[order.len()..].iter().cloned()).collect()
}

/// The input whose first axes a layer leaves alone, and how many: it does the same at each place along them.
fn leaves_alone(network: &Network, layer: &Layer) -> Option<(usize, usize)> {
    let shape = |slot: usize| Some(network[input(layer, slot)?].ty.shape.as_slice());
    let axes = match layer.op.name {
        "MatMul" => {
            let by_matrix = shape(1)?.len() == 2 && !layer.attrs.flag("transA");
            shape(0)?.len().checked_sub(1).filter(|_| by_matrix)?
        }
        "Reshape" => {
            let both = shape(0)?.iter().zip(&network[layer.outputs[0]].ty.shape);
            both.take_while(|(from, to)| from == to).count()
        }
        "Slice" => sliced_axes(network, layer)?.into_iter().min()?,
        "Split" => network[input(layer, 0)?].ty.axis(layer.attrs.int("axis")).ok()?,
        _ => return pointwise_along(network, layer),
    };
    Some((0, axes))
}

/// The input of a pointwise layer that has the shape of its result, and along how many of the first axes all others are the same.
fn pointwise_along(network: &Network, layer: &Layer) -> Option<(usize, usize)> {
    let shape = |tensor: TensorId| network[tensor].ty.shape.as_slice();
    let result = shape(*layer.outputs.first()?);
    let has_all = |slot: &Option<TensorId>| slot.is_some_and(|tensor| shape(tensor) == result);
    let main = layer.inputs.iter().position(has_all)?;
    let others = layer.inputs.iter().enumerate().filter(|(at, _)| *at != main);
    let own_axes = |(_, slot): (usize, &Option<TensorId>)| {
        slot.map_or(0, |tensor| shape(tensor).iter().skip_while(|dim| dim.is(1)).count())
    };
    let most = others.map(own_axes).max().unwrap_or(0);
    is_pointwise(layer).then_some((main, result.len() - most))
}

/// The shape that a Reshape is given; what it leaves open (-1) stays open.
fn target(network: &Network, layer: &Layer) -> Option<Vec<Dim>> {
    let given = network[input(layer, 1)?].ty.value.as_ref()?.iter();
    let both = given.zip(&network[layer.outputs[0]].ty.shape);
    let target = both.map(|(given, dim)| if given.is(-1) { given } else { dim });
    Some(target.cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Source;
    use crate::network::array::Array;
    use crate::network::attr::attrs;
    use crate::network::dtype::DType;
    use crate::network::op::TensorType;
    use crate::passes::testing::{Graph, assert_same};
    use crate::passes::{CLEAN, Settings, run_steps};

    fn transpose(g: &mut Graph, x: TensorId, perm: &[i64]) -> TensorId {
        g.op_with("Transpose", attrs([("perm", Attr::Ints(perm.into()))]), &[x])
    }

    fn reshape(g: &mut Graph, x: TensorId, shape: &str) -> TensorId {
        let shape: Vec<Dim> = shape.split_whitespace().map(|dim| dim.parse().unwrap()).collect();
        let ty = TensorType {
            value: Some(shape.clone()),
            ..TensorType::new(DType::Int64, vec![shape.len().into()])
        };
        let shape = g.network.push_tensor("shape", ty, Source::Symbolic);
        g.op("Reshape", &[x, shape])
    }

    /// x -> MatMul by a matrix -> Add of a vector.
    fn dense(g: &mut Graph, x: TensorId, [from, to]: [usize; 2]) -> TensorId {
        let (w, b) = (g.weights(&[from, to]), g.weights(&[to]));
        let y = g.op("MatMul", &[x, w]);
        g.op("Add", &[b, y])
    }

    /// x -> Quantize -> Dequantize.
    fn rounded(g: &mut Graph, x: TensorId) -> TensorId {
        let scale = g.scalar(0.0625);
        let q = g.op_with("QuantizeLinear", attrs([("to", Attr::Type(DType::Int8))]), &[x, scale]);
        g.op("DequantizeLinear", &[q, scale])
    }

    /// Tokens [s, b, 6] as two heads [b, 2, s, 3], as PyTorch writes them.
    fn heads(g: &mut Graph, x: TensorId) -> TensorId {
        let y = reshape(g, x, "s 2*b 3");
        let y = transpose(g, y, &[1, 0, 2]);
        reshape(g, y, "b 2 s 3")
    }

    /// What PyTorch writes for MultiheadAttention with batch_first from queries, keys and values [s, b, 6] on, and a residual.
    fn attend(g: &mut Graph, x: TensorId, parts: [TensorId; 3], round: fn(&mut Graph, TensorId) -> TensorId) {
        let parts = parts.map(|part| heads(g, part));
        let y = g.op("Attention", &parts);
        let y = transpose(g, y, &[2, 0, 1, 3]);
        let y = reshape(g, y, "s*b 6");
        let y = round(g, y);
        let y = dense(g, y, [6, 6]);
        let y = reshape(g, y, "s b 6");
        let y = transpose(g, y, &[1, 0, 2]);
        let y = g.op("Add", &[y, x]);
        g.output(y);
    }

    /// MultiheadAttention whose queries, keys and values are one product; `round` stands in front of products.
    fn packed(round: fn(&mut Graph, TensorId) -> TensorId) -> Graph {
        let mut g = Graph::new();
        let x = g.input("x", "b s 6");
        let y = transpose(&mut g, x, &[1, 0, 2]);
        let y = round(&mut g, y);
        let y = dense(&mut g, y, [6, 18]);
        let y = reshape(&mut g, y, "1 s b 3 6");
        let y = transpose(&mut g, y, &[3, 1, 2, 0, 4]);
        let y = reshape(&mut g, y, "3 s b 6");
        let parts = [0.0, 1.0, 2.0].map(|at| {
            let at = g.network.add_constant("at", Array::scalar(DType::Int64, at));
            g.op_with("Gather", attrs([("axis", Attr::Int(0))]), &[y, at])
        });
        attend(&mut g, x, parts, round);
        g
    }

    /// The permutations that are left when passes have settled, and the same results.
    fn left(mut g: Graph) -> Vec<Vec<i64>> {
        let before = g.network.clone();
        run_steps(
            &mut g.network,
            &Settings::default(),
            &[super::super::UntilStable(CLEAN)],
        )
        .unwrap();
        assert_same(&before, &g.network);
        let transposes = g.network.layers().filter(|(_, layer)| layer.op.name == "Transpose");
        transposes.map(|(_, layer)| layer.attrs.ints("perm").to_vec()).collect()
    }

    #[test]
    fn attention_alone_keeps_transposes() {
        let mut separate = Graph::new();
        let x = separate.input("x", "b s 6");
        let y = transpose(&mut separate, x, &[1, 0, 2]);
        let parts = [0; 3].map(|_| dense(&mut separate, y, [6, 6]));
        attend(&mut separate, x, parts, |_, x| x);
        for g in [packed(|_, x| x), packed(rounded), separate] {
            assert_eq!(left(g), [[0, 2, 1, 3]; 4]);
        }
    }

    #[test]
    fn a_transpose_sinks_to_those_below() {
        let mut g = Graph::new();
        let x = g.input("x", "b s 6");
        let y = transpose(&mut g, x, &[1, 0, 2]);
        let y = dense(&mut g, y, [6, 8]);
        let y = reshape(&mut g, y, "s b 2 4");
        let split = attrs([("axis", Attr::Int(-1)), ("split", Attr::Ints(vec![2, 2]))]);
        let parts = g.op_full("Split", split, &[Some(y)]);
        let (a, b) = (
            transpose(&mut g, parts[0], &[1, 2, 0, 3]),
            transpose(&mut g, parts[1], &[1, 0, 2, 3]),
        );
        g.output(a);
        g.output(b);
        g.becomes(
            &PASS,
            "
            %MatMul: float32[b, s, 8] = MatMul(%x, float32[6, 8](...)) {transA=0, transB=0}
            %Add: float32[b, s, 8] = Add(float32[8](...), %MatMul)
            %Reshape: float32[b, s, 2, 4] = Reshape(%Add, [b, s, 2, 4]) {allowzero=1}
            %Split0: float32[b, s, 2, 2], %Split1: float32[b, s, 2, 2] = Split(%Reshape) {axis=-1, split=[2, 2]}
            %Transpose: float32[b, 2, s, 2] = Transpose(%Split0) {perm=[0, 2, 1, 3]}",
        );
        let mul = g
            .network
            .layers()
            .find(|(_, layer)| layer.op.name == "MatMul")
            .unwrap()
            .1;
        assert_eq!(
            (mul.name.as_str(), &mul.sources[..]),
            ("MatMul", &["MatMul".to_string()][..])
        );
    }

    #[test]
    fn a_transpose_rises_to_the_one_above() {
        let mut g = Graph::new();
        let x = g.input("x", "b 2 s 3");
        let y = transpose(&mut g, x, &[2, 0, 1, 3]);
        let y = reshape(&mut g, y, "s b 6");
        let y = dense(&mut g, y, [6, 8]);
        let y = transpose(&mut g, y, &[1, 0, 2]);
        g.output(y);
        g.becomes(
            &PASS,
            "
            %Transpose: float32[b, s, 2, 3] = Transpose(%x) {perm=[0, 2, 1, 3]}
            %Reshape: float32[b, s, 6] = Reshape(%Transpose, [b, s, 6]) {allowzero=1}
            %MatMul: float32[b, s, 8] = MatMul(%Reshape, float32[6, 8](...)) {transA=0, transB=0}
            %Add: float32[b, s, 8] = Add(float32[8](...), %MatMul)",
        );
    }

    /// x -> Transpose -> what is between -> Transpose.
    fn around(between: impl Fn(&mut Graph, TensorId) -> TensorId) -> Graph {
        let mut g = Graph::new();
        let x = g.input("x", "b s 6");
        let y = transpose(&mut g, x, &[1, 0, 2]);
        let y = between(&mut g, y);
        let y = transpose(&mut g, y, &[1, 0, 2]);
        g.output(y);
        g
    }

    #[test]
    fn what_reads_another_order_stays() {
        let residual = around(|g, x| {
            let z = g.input("z", "s b 6");
            let y = dense(g, x, [6, 6]);
            g.op("Add", &[y, z])
        });
        let read_between = around(|g, x| {
            let y = dense(g, x, [6, 6]);
            let z = g.op("Tanh", &[y]);
            g.output(z);
            y
        });
        let result = around(|g, x| {
            let y = dense(g, x, [6, 6]);
            g.output(y);
            y
        });
        let along_the_axes = around(|g, x| {
            let row = g.input("row", "b 1");
            let y = dense(g, x, [6, 6]);
            g.op("Mul", &[y, row])
        });
        let batched = around(|g, x| {
            let w = g.input("w", "s 6 6");
            g.op("MatMul", &[x, w])
        });
        let joined = around(|g, x| {
            let y = dense(g, x, [6, 6]);
            reshape(g, y, "s 2*b 3")
        });
        let no_product = around(|g, x| g.op("Tanh", &[x]));
        for mut g in [
            residual,
            read_between,
            result,
            along_the_axes,
            batched,
            joined,
            no_product,
        ] {
            assert_eq!(
                (PASS.apply)(&mut g.network, &Settings::default()).unwrap(),
                0,
                "{}",
                g.network
            );
        }
    }

    #[test]
    fn an_end_may_get_more_to_move() {
        let mut g = around(|g, x| dense(g, x, [6, 6]));
        let y = g.network.layers().last().unwrap().1.inputs[0].unwrap();
        let turned = transpose(&mut g, y, &[0, 2, 1]);
        g.output(turned);
        assert_eq!(left(g), [[1, 2, 0]]);
    }
}
