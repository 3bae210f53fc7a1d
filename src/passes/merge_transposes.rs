//! Lets transposes meet and cancel: they sink through what works on any order of elements.

use super::build::Build;
use super::matching::{
    given_by, input, inverse, is_constant, is_pointwise, moves_only_ones, only_given_by, output_type, padded,
    permutation, sliced_axes,
};
use super::{Found, Pass, rewrite, rule_if, rule_if_some};
use crate::network::attr::{Attr, Read};
use crate::network::patch::Patch;
use crate::network::{Layer, LayerId, Network, TensorId};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "merge_transposes",
    doc: "Transpose -> Transpose => one or none; Transpose that moves only dimensions of 1 => Reshape; Transpose -> \
          pointwise, Concat, reduction, Softmax => the same before the Transpose; Transpose -> Slices that leave it only \
          dimensions of 1 => Slices -> Transpose; Transpose of the last two axes -> MatMul => MatMul with transA, transB",
    apply: |network, _| rewrite(network, rule),
};

fn rule(network: &Network, id: LayerId) -> Found<'_> {
    let layer = &network[id];
    match layer.op.name {
        "Transpose" => merge(network, layer),
        "MatMul" => into_matmul(network, layer),
        "Concat" => past_concat(network, id),
        "Slice" => past_slice(network, layer),
        "Softmax" | "LogSoftmax" => past_axis(network, layer),
        name if name.starts_with("Reduce") && layer.attrs.contains_key("axes") => past_reduction(network, layer),
        _ if is_pointwise(layer) && layer.outputs.len() == 1 => past_pointwise(network, id),
        _ => Ok(None),
    }
}

/// Two Transposes => one; a Transpose that keeps the order => nothing; one that moves only ones => Reshape.
fn merge<'n>(network: &'n Network, layer: &Layer) -> Found<'n> {
    rule_if_some!((x, perm) = input(layer, 0).zip(permutation(network, layer)));
    let mut patch = Patch::new(network);
    let inner = network
        .producer(x)
        .and_then(|(_, inner)| Some((input(inner, 0)?, permutation(network, inner)?)));
    let new = if let Some((source, first)) = inner {
        let both: Vec<_> = perm.iter().map(|&axis| first[axis]).collect();
        patch.transpose(source, &both)?
    } else if moves_only_ones(&network[x].ty.shape, &perm) {
        patch.reshape(x, &network[layer.outputs[0]].ty.shape)?
    } else {
        return Ok(None);
    };
    patch.shunt(layer.outputs[0], new)?;
    Ok(Some(patch))
}

/// The Transpose that gives a tensor and would vanish with this use: what it reads, and its order.
fn transposed(network: &Network, tensor: TensorId) -> Option<(TensorId, Vec<usize>)> {
    let layer = only_given_by(network, tensor, "Transpose")?;
    Some((input(layer, 0)?, permutation(network, layer)?))
}

/// The patch that runs a layer on other inputs and transposes what it gives.
fn then_transpose<'n>(
    mut patch: Patch<'n>,
    layer: &Layer,
    inputs: &[Option<TensorId>],
    perm: &[usize],
    attrs: crate::network::attr::Attrs,
) -> Found<'n> {
    let new = patch.add_named("", layer.op, attrs, inputs)?[0];
    let new = patch.transpose(new, perm)?;
    rule_if!(patch.ty(new).shape == patch.ty(layer.outputs[0]).shape);
    patch.shunt(layer.outputs[0], new)?;
    Ok(Some(patch))
}

/// Transpose -> pointwise => pointwise -> Transpose, where all inputs are transposed alike or constant.
fn past_pointwise(network: &Network, id: LayerId) -> Found<'_> {
    let layer = &network[id];
    let shape = &output_type(network, id).shape;
    let order = layer
        .inputs
        .iter()
        .flatten()
        .find_map(|&t| transposed_like(network, layer, t));
    rule_if_some!(perm = order);
    rule_if!(perm.len() == shape.len());
    let mut patch = Patch::new(network);
    let mut inputs = vec![];
    for tensor in &layer.inputs {
        let Some(tensor) = *tensor else {
            inputs.push(None);
            continue;
        };
        inputs.push(Some(match transposed_use(network, layer, tensor) {
            Some((source, order)) if order == perm && network[tensor].ty.shape == *shape => source,
            Some(_) => return Ok(None),
            None if is_constant(network, tensor) => {
                let ty = &network[tensor].ty;
                if ty.shape.iter().all(|d| d.is(1)) && ty.rank() <= 1 {
                    tensor
                } else {
                    let full = patch.reshape(tensor, &padded(&ty.shape, perm.len()))?;
                    patch.transpose(full, &inverse(&perm))?
                }
            }
            None => return Ok(None),
        }));
    }
    then_transpose(patch, layer, &inputs, &perm, layer.attrs.clone())
}

/// As [`transposed`], where the same layer may read the tensor more than once.
fn transposed_use(network: &Network, layer: &Layer, tensor: TensorId) -> Option<(TensorId, Vec<usize>)> {
    let reads_it_alone = network[tensor]
        .users
        .iter()
        .all(|&user| network[user].outputs == layer.outputs);
    let (_, inner) = network.producer(tensor)?;
    let found = Some((input(inner, 0)?, permutation(network, inner)?));
    found.filter(|_| reads_it_alone && !network.is_output(tensor))
}

fn transposed_like(network: &Network, layer: &Layer, tensor: TensorId) -> Option<Vec<usize>> {
    transposed_use(network, layer, tensor).map(|(_, perm)| perm)
}

/// Transposes -> Concat => Concat -> Transpose.
fn past_concat(network: &Network, id: LayerId) -> Found<'_> {
    let layer = &network[id];
    let inputs = layer.inputs.iter().map(|t| transposed_use(network, layer, (*t)?));
    rule_if_some!(inputs = inputs.collect::<Option<Vec<_>>>());
    rule_if_some!((_, perm) = inputs.first().cloned());
    rule_if!(inputs.iter().all(|(_, order)| *order == perm));
    let axis = output_type(network, id).axis(layer.attrs.int("axis"))?;
    let mut attrs = layer.attrs.clone();
    attrs.insert("axis".into(), Attr::Int(perm[axis] as i64));
    let sources: Vec<_> = inputs.iter().map(|(source, _)| Some(*source)).collect();
    then_transpose(Patch::new(network), layer, &sources, &perm, attrs)
}

/// Whether Slices alone read what a Transpose gives, and each leaves it only dimensions of 1 to move.
pub(super) fn sinks_below_slices(network: &Network, layer: &Layer) -> bool {
    let (Some(perm), result) = (permutation(network, layer), layer.outputs[0]) else {
        return false;
    };
    let back = inverse(&perm);
    let leaves_ones = |user: &LayerId| {
        let shape = &output_type(network, *user).shape;
        let before = || -> Vec<_> { back.iter().map(|&axis| shape[axis].clone()).collect() };
        network[*user].op.name == "Slice" && moves_only_ones(&before(), &perm)
    };
    !network.is_output(result) && network[result].users.iter().all(leaves_ones)
}

/// Transpose -> Slice => Slice -> Transpose, where nothing but Slices reads the Transpose, and each leaves it only dimensions of 1.
fn past_slice<'n>(network: &'n Network, layer: &Layer) -> Found<'n> {
    rule_if_some!(x = input(layer, 0));
    rule_if_some!(inner = given_by(network, x, "Transpose"));
    rule_if_some!((source, perm) = input(inner, 0).zip(permutation(network, inner)));
    rule_if!(sinks_below_slices(network, inner));
    rule_if_some!(axes = sliced_axes(network, layer));
    let axes: Vec<_> = axes.into_iter().map(|axis| perm[axis].into()).collect();
    let mut patch = Patch::new(network);
    let mut inputs = layer.inputs.clone();
    inputs.resize(inputs.len().max(4), None);
    inputs[0] = Some(source);
    inputs[3] = Some(patch.dims(&axes));
    then_transpose(patch, layer, &inputs, &perm, layer.attrs.clone())
}

/// Transpose -> Softmax => Softmax -> Transpose.
fn past_axis<'n>(network: &'n Network, layer: &Layer) -> Found<'n> {
    rule_if_some!((source, perm) = input(layer, 0).and_then(|t| transposed(network, t)));
    let axis = network[source].ty.axis(layer.attrs.int("axis"))?;
    // Softmax along the last axis is what kernels are made for.
    rule_if!(perm[axis] == axis || perm[axis] + 1 == perm.len());
    let mut attrs = layer.attrs.clone();
    attrs.insert("axis".into(), Attr::Int(perm[axis] as i64));
    then_transpose(Patch::new(network), layer, &[Some(source)], &perm, attrs)
}

/// Transpose -> reduction => reduction -> Transpose.
fn past_reduction<'n>(network: &'n Network, layer: &Layer) -> Found<'n> {
    rule_if!(layer.inputs.len() == 1 && !layer.attrs.ints("axes").is_empty());
    rule_if_some!((source, perm) = input(layer, 0).and_then(|t| transposed(network, t)));
    let ty = &network[source].ty;
    let axes = layer.attrs.ints("axes").iter().map(|&a| ty.axis(a).map(|a| perm[a]));
    let mut axes = axes.collect::<crate::error::Result<Vec<_>>>()?;
    axes.sort_unstable();
    let rest = if layer.attrs.flag("keepdims") {
        perm
    } else {
        // The order of the axes that are left.
        let kept: Vec<_> = perm.iter().copied().filter(|a| !axes.contains(a)).collect();
        kept.iter().map(|a| kept.iter().filter(|b| *b < a).count()).collect()
    };
    let mut attrs = layer.attrs.clone();
    attrs.insert("axes".into(), Attr::Ints(axes.into_iter().map(|a| a as i64).collect()));
    then_transpose(Patch::new(network), layer, &[Some(source)], &rest, attrs)
}

/// Transpose of the last two axes -> MatMul => MatMul with transA or transB.
fn into_matmul<'n>(network: &'n Network, layer: &Layer) -> Found<'n> {
    let mut inputs = layer.inputs.clone();
    let mut attrs = layer.attrs.clone();
    for (slot, flag) in inputs.iter_mut().zip(["transA", "transB"]) {
        let found = slot.and_then(|t| network.producer(t)).and_then(|(_, inner)| {
            let perm = permutation(network, inner)?;
            let mut last_two: Vec<_> = (0..perm.len()).collect();
            last_two.swap(perm.len().checked_sub(2)?, perm.len() - 1);
            input(inner, 0).filter(|_| perm == last_two)
        });
        if let Some(source) = found {
            *slot = Some(source);
            attrs.insert(flag.into(), Attr::Int(!layer.attrs.flag(flag) as i64));
        }
    }
    rule_if!(inputs != layer.inputs);
    let mut patch = Patch::new(network);
    let new = patch.add_named("", layer.op, attrs, &inputs)?[0];
    patch.shunt(layer.outputs[0], new)?;
    Ok(Some(patch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::attrs;
    use crate::passes::testing::Graph;
    use crate::passes::{Settings, fold_constants};

    fn transpose(g: &mut Graph, x: TensorId, perm: &[i64]) -> TensorId {
        g.op_with("Transpose", attrs([("perm", Attr::Ints(perm.into()))]), &[x])
    }

    #[test]
    fn two_transposes_become_one_or_none() {
        let mut g = Graph::new();
        let x = g.input("x", "n 2 3");
        let y = transpose(&mut g, x, &[1, 2, 0]);
        let z = transpose(&mut g, y, &[1, 2, 0]);
        let back = transpose(&mut g, y, &[2, 0, 1]);
        let back = g.op("Relu", &[back]);
        g.output(z);
        g.output(back);
        g.becomes(
            &PASS,
            "
            %Relu: float32[n, 2, 3] = Relu(%x)
            %Transpose: float32[3, n, 2] = Transpose(%x) {perm=[2, 0, 1]}",
        );
    }

    #[test]
    fn ones_are_moved_by_reshape() {
        let mut g = Graph::new();
        let x = g.input("x", "n 1 3");
        let y = transpose(&mut g, x, &[0, 2, 1]);
        g.output(y);
        g.becomes(
            &PASS,
            "%Transpose: float32[n, 3, 1] = Reshape(%x, [n, 3, 1]) {allowzero=1}",
        );
    }

    #[test]
    fn transposes_cancel_across_what_they_can_pass() {
        let mut g = Graph::new();
        let (x, z) = (g.input("x", "n 2 3"), g.input("z", "n 2 3"));
        let (p, q) = (transpose(&mut g, x, &[0, 2, 1]), transpose(&mut g, z, &[0, 2, 1]));
        let w = g.weights(&[2]);
        let p = g.op("Mul", &[p, w]);
        let y = g.op("Add", &[p, q]);
        let y = g.op_with("Concat", attrs([("axis", Attr::Int(2))]), &[y, y]);
        let y = g.op_with("Softmax", attrs([("axis", Attr::Int(1))]), &[y]);
        let y = transpose(&mut g, y, &[0, 2, 1]);
        g.output(y);
        g.becomes_by(
            &[&PASS, &fold_constants::PASS],
            &Settings::default(),
            "
            %Mul: float32[n, 2, 3] = Mul(%x, float32[1, 2, 1](...))
            %Add: float32[n, 2, 3] = Add(%Mul, %z)
            %Concat: float32[n, 4, 3] = Concat(%Add, %Add) {axis=1}
            %Softmax: float32[n, 4, 3] = Softmax(%Concat) {axis=2}",
        );
    }

    /// x -> Transpose with the axis of 2 in front -> its entries.
    fn entries(g: &mut Graph) -> (TensorId, [TensorId; 2]) {
        let x = g.input("x", "n 2 h 4");
        let t = transpose(g, x, &[1, 0, 2, 3]);
        let entries = [0, 1].map(|at| {
            let [start, end, axis] = [at, at + 1, -4].map(|number| g.ints(&[number]));
            g.op("Slice", &[t, start, end, axis])
        });
        (t, entries)
    }

    #[test]
    fn entries_are_taken_before_their_axis_moves() {
        let mut g = Graph::new();
        let (_, entries) = entries(&mut g);
        entries.into_iter().for_each(|entry| g.output(entry));
        g.becomes(
            &PASS,
            "
            %Slice: float32[n, 1, h, 4] = Slice(%x, int64[1](0), int64[1](1), int64[1](1))
            %Slice~1: float32[n, 1, h, 4] = Slice(%x, int64[1](1), int64[1](2), int64[1](1))
            %Slice~2: float32[1, n, h, 4] = Reshape(%Slice, [1, n, h, 4]) {allowzero=1}
            %Slice~3: float32[1, n, h, 4] = Reshape(%Slice~1, [1, n, h, 4]) {allowzero=1}",
        );
    }

    #[test]
    fn a_transpose_that_not_only_entries_read_stays_above_them() {
        let mut g = Graph::new();
        let (t, [first, _]) = entries(&mut g);
        let other = g.op("Tanh", &[t]);
        g.output(first);
        g.output(other);
        assert_eq!((PASS.apply)(&mut g.network, &Settings::default()).unwrap(), 0);
    }

    #[test]
    fn reductions_read_the_other_order() {
        for keep in [0, 1] {
            let mut g = Graph::new();
            let x = g.input("x", "n 2 3 4");
            let y = transpose(&mut g, x, &[0, 2, 3, 1]);
            let means = attrs([("axes", Attr::Ints(vec![1, -2])), ("keepdims", Attr::Int(keep))]);
            let y = g.op_with("ReduceMean", means, &[y]);
            g.output(y);
            let before = g.network.clone();
            (PASS.apply)(&mut g.network, &Settings::default()).unwrap();
            assert!(g.network.layers().all(|(_, l)| l.op.name != "Transpose"));
            crate::passes::testing::assert_same(&before, &g.network);
        }
    }

    #[test]
    fn matmul_takes_a_swap_of_the_last_two_axes() {
        let mut g = Graph::new();
        let (a, b) = (g.input("a", "n 2 3"), g.input("b", "n 4 3"));
        let b = transpose(&mut g, b, &[0, 2, 1]);
        let y = g.op("MatMul", &[a, b]);
        g.output(y);
        g.becomes(&PASS, "%MatMul: float32[n, 2, 4] = MatMul(%a, %b) {transA=0, transB=1}");
    }

    #[test]
    fn a_transpose_that_others_read_stays_above() {
        let mut g = Graph::new();
        let x = g.input("x", "n 2");
        let t = transpose(&mut g, x, &[1, 0]);
        let y = g.op("Relu", &[t]);
        g.output(t);
        g.output(y);
        assert_eq!((PASS.apply)(&mut g.network, &Settings::default()).unwrap(), 0);
    }
}
