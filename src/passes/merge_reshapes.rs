//! Lets reshapes meet and cancel.

use super::build::Build;
use super::matching::{chain_up_to, input, inverse, is_pointwise, only_given_by, permutation};
use super::{Found, Pass, rewrite, rule_if, rule_if_some};
use crate::network::dim::Dim;
use crate::network::patch::Patch;
use crate::network::{Layer, LayerId, Network, TensorId};
use std::ops::Range;

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "merge_reshapes",
    doc: "Reshape -> Reshape => one or none; Reshape -> pointwise with single numbers -> Reshape back => pointwise; \
          Transpose that keeps the first axes -> Reshape of those alone => Reshape -> Transpose; Reshape -> Transpose -> \
          Reshape that splits axes or drops ones => Reshape -> Transpose",
    apply: |network, _| rewrite(network, rule),
};

fn rule(network: &Network, id: LayerId) -> Found<'_> {
    let layer = &network[id];
    rule_if!(layer.op.name == "Reshape");
    rule_if_some!((x, target) = input(layer, 0).zip(input(layer, 1)));
    match network.producer(x) {
        Some((_, inner)) if inner.op.name == "Reshape" => merge(network, layer, inner, target),
        Some((_, inner)) if inner.op.name == "Transpose" => before_transpose(network, layer, inner),
        _ => cancel(network, layer, x),
    }
}

/// Transpose that keeps the first axes -> Reshape of those => Reshape -> Transpose. Where another Reshape stands in front, which the
/// new one joins, the other axes may be split as well.
fn before_transpose<'n>(network: &'n Network, outer: &Layer, inner: &Layer) -> Found<'n> {
    rule_if_some!((x, perm) = input(inner, 0).zip(permutation(network, inner)));
    rule_if!(network.sole_user(inner.outputs[0]).is_some());
    let (from, to) = (&network[inner.outputs[0]].ty.shape, &network[outer.outputs[0]].ty.shape);
    let kept = perm.iter().enumerate().take_while(|(i, axis)| i == *axis).count();
    // Where ones were all that moved, other rules know better.
    rule_if!(kept < from.len());
    let rest = from.len() - kept;
    let only_first = kept > 0 && to.len() > rest && to[to.len() - rest..] == from[kept..];
    rule_if!(only_first || only_given_by(network, x, "Reshape").is_some());
    rule_if_some!(parts = parts(from, to, kept));
    // The axes of the result in the order of the source.
    let order: Vec<usize> = inverse(&perm)
        .into_iter()
        .flat_map(|axis| parts[axis].clone())
        .collect();
    let shape: Vec<Dim> = order.iter().map(|&axis| to[axis].clone()).collect();
    let mut patch = Patch::new(network);
    let new = patch.reshape(x, &shape)?;
    let new = patch.transpose(new, &inverse(&order))?;
    patch.shunt(outer.outputs[0], new)?;
    Ok(Some(patch))
}

/// For each axis of a shape the axes of another one that it becomes, none for a one that is dropped; the first `kept` axes become
/// some together, all of which stand with the first of them. `None` where another axis is joined with its neighbour.
fn parts(from: &[Dim], to: &[Dim], kept: usize) -> Option<Vec<Range<usize>>> {
    let mut start = to.len();
    let mut found = vec![0..0; from.len()];
    for axis in (kept..from.len()).rev() {
        let (end, dim) = (start, &from[axis]);
        let mut product = Dim::from(1i64);
        while product != *dim || (start == end && start > 0 && to[start - 1] == *dim) {
            start = start.checked_sub(1)?;
            product = product * to[start].clone();
        }
        found[axis] = start..end;
    }
    match kept {
        0 if to[..start].iter().all(|dim| dim.is(1)) => found[0].start = 0,
        0 => return None,
        _ => found[0] = 0..start,
    }
    Some(found)
}

/// Reshape -> Reshape => one or none.
fn merge<'n>(network: &'n Network, outer: &Layer, inner: &Layer, target: TensorId) -> Found<'n> {
    rule_if_some!(source = input(inner, 0));
    let shape = &network[outer.outputs[0]].ty.shape;
    let mut patch = Patch::new(network);
    let new = if network[source].ty.shape == *shape {
        source
    } else {
        // What the target leaves open (-1) stays open: it needs no proof that the number of elements is the same.
        rule_if_some!(target = &network[target].ty.value);
        let wanted = target.iter().zip(shape);
        let wanted: Vec<_> = wanted
            .map(|(target, dim)| if target.is(-1) { target } else { dim })
            .cloned()
            .collect();
        patch.reshape(source, &wanted)?
    };
    rule_if!(patch.ty(new).shape == *shape);
    patch.shunt(outer.outputs[0], new)?;
    Ok(Some(patch))
}

/// Reshape -> pointwise ... -> Reshape back => pointwise ....
fn cancel<'n>(network: &'n Network, outer: &Layer, x: TensorId) -> Found<'n> {
    rule_if_some!((between, inner) = chain_up_to(network, x, "Reshape", main_input));
    rule_if_some!(source = input(inner, 0));
    rule_if!(network[source].ty.shape == network[outer.outputs[0]].ty.shape);
    let mut patch = Patch::new(network);
    let new = patch.again(&between, source)?;
    patch.shunt(outer.outputs[0], new)?;
    Ok(Some(patch))
}

/// The only input of a pointwise layer that is not a single number.
fn main_input(network: &Network, layer: &Layer) -> Option<usize> {
    let is_number = |t: TensorId| network[t].ty.rank() <= 1 && network[t].ty.shape.iter().all(|d: &Dim| d.is(1));
    let wide = |i: &usize| layer.inputs[*i].is_some_and(|t| !is_number(t));
    let mut inputs = (0..layer.inputs.len()).filter(wide);
    let main = inputs.next()?;
    (is_pointwise(layer) && inputs.next().is_none()).then_some(main)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::passes::testing::Graph;

    #[test]
    fn two_reshapes_become_one() {
        let mut g = Graph::new();
        let x = g.input("x", "n 2 h 3");
        let (a, b) = (g.ints(&[0, 2, -1]), g.ints(&[0, -1]));
        let y = g.op("Reshape", &[x, a]);
        let y = g.op("Reshape", &[y, b]);
        g.output(y);
        g.becomes(&PASS, "%Reshape: float32[n, 6*h] = Reshape(%x, [n, -1]) {allowzero=1}");
        assert!(g.network.guards.is_empty());
    }

    #[test]
    fn a_reshape_there_and_back_vanishes() {
        let mut g = Graph::new();
        let x = g.input("x", "n 6 h");
        let (there, back) = (g.ints(&[0, 2, 3, -1]), g.ints(&[0, 6, -1]));
        let y = g.op("Reshape", &[x, there]);
        let y = g.op("Relu", &[y]);
        let two = g.scalar(2.0);
        let y = g.op("Mul", &[two, y]);
        let y = g.op("Reshape", &[y, back]);
        g.output(y);
        g.becomes(
            &PASS,
            "
            %Reshape: float32[n, 6, h] = Relu(%x)
            %Reshape~1: float32[n, 6, h] = Mul(float32[](2), %Reshape)",
        );
    }

    #[test]
    fn what_is_read_between_stays() {
        let mut g = Graph::new();
        let x = g.input("x", "6");
        let (there, back) = (g.ints(&[2, 3]), g.ints(&[6]));
        let y = g.op("Reshape", &[x, there]);
        let y = g.op("Relu", &[y]);
        let z = g.op("Reshape", &[y, back]);
        g.output(y);
        g.output(z);
        assert_eq!((PASS.apply)(&mut g.network, &Default::default()).unwrap(), 0);
    }

    #[test]
    fn a_transpose_lets_its_first_axes_be_reshaped_before() {
        let mut g = Graph::new();
        let x = g.input("x", "1 2 3 s 4");
        let shape = g.ints(&[6, -1, 4]);
        let y = g.op("Reshape", &[x, shape]);
        let y = g.op_with("Transpose", attrs([("perm", Attr::Ints(vec![0, 2, 1]))]), &[y]);
        let shape = g.ints(&[1, 6, 4, -1]);
        let y = g.op("Reshape", &[y, shape]);
        g.output(y);
        g.becomes(
            &PASS,
            "%Reshape: float32[1, 6, s, 4] = Reshape(%x, [1, 6, s, 4]) {allowzero=1}
             %Reshape~1: float32[1, 6, 4, s] = Transpose(%Reshape) {perm=[0, 1, 3, 2]}",
        );
    }

    /// x -> Reshape -> Transpose -> Reshape.
    fn around_transpose(x: &str, first: &[i64], perm: &[i64], last: &[i64]) -> Graph {
        let mut g = Graph::new();
        let x = g.input("x", x);
        let (first, last) = (g.ints(first), g.ints(last));
        let y = g.op("Reshape", &[x, first]);
        let y = g.op_with("Transpose", attrs([("perm", Attr::Ints(perm.into()))]), &[y]);
        let y = g.op("Reshape", &[y, last]);
        g.output(y);
        g
    }

    #[test]
    fn axes_are_split_before_they_move() {
        around_transpose("s 2 12", &[0, 8, 3], &[1, 0, 2], &[2, 4, -1, 3]).becomes(
            &PASS,
            "%Reshape: float32[s, 2, 4, 3] = Reshape(%x, [s, 2, 4, 3]) {allowzero=1}
             %Reshape~1: float32[2, 4, s, 3] = Transpose(%Reshape) {perm=[1, 2, 0, 3]}",
        );
    }

    #[test]
    fn ones_are_dropped_before_axes_move() {
        around_transpose("s 2 12", &[1, -1, 2, 3, 4], &[3, 1, 2, 0, 4], &[3, -1, 2, 4]).becomes(
            &PASS,
            "%Reshape: float32[s, 2, 3, 4] = Reshape(%x, [s, 2, 3, 4]) {allowzero=1}
             %Reshape~1: float32[3, s, 2, 4] = Transpose(%Reshape) {perm=[2, 0, 1, 3]}",
        );
    }

    #[test]
    fn axes_that_moved_next_to_each_other_are_joined_behind() {
        let joined = around_transpose("n 4 6", &[0, 2, 2, 6], &[0, 2, 3, 1], &[0, -1, 2]);
        let across = around_transpose("n 4 6", &[0, 2, 12], &[2, 1, 0], &[4, 6, -1]);
        for mut g in [joined, across] {
            assert_eq!((PASS.apply)(&mut g.network, &Default::default()).unwrap(), 0);
        }
    }
}
