//! Lets a Concat go on from another one of the same tensors, so that what was joined lies in what it is joined with.

use super::build::Build;
use super::matching::input;
use super::{Found, Pass, rewrite, rule_if, rule_if_some};
use crate::network::attr::Read;
use crate::network::patch::Patch;
use crate::network::{Layer, LayerId, Network, TensorId};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "nest_concats",
    doc: "Concat(a, b) and Concat(a, b, c) along one axis => the second is Concat(Concat(a, b), c): blocks of DenseNet, whose tensors \
          each have one place then",
    apply: |network, _| rewrite(network, rule),
};

/// Concat => Concat of the one that has the most of its first inputs, and the others.
fn rule(network: &Network, id: LayerId) -> Found<'_> {
    let layer = &network[id];
    rule_if!(layer.op.name == "Concat" && layer.inputs.len() > 2);
    rule_if_some!(first = input(layer, 0));
    // Vectors are shapes more often than not, which are computed ahead.
    rule_if!(network[first].ty.rank() > 1);
    let inner = network[first].users.iter().map(|&user| &network[user]);
    let inner = inner.filter(|other| begins_with(network, layer, other));
    rule_if_some!(inner = inner.max_by_key(|other| other.inputs.len()));
    let joined = Some(inner.outputs[0]);
    let inputs: Vec<Option<TensorId>> = std::iter::once(joined)
        .chain(layer.inputs[inner.inputs.len()..].iter().copied())
        .collect();
    let mut patch = Patch::new(network);
    let new = patch.op_full("Concat", layer.attrs.clone(), &inputs)?[0];
    patch.shunt(layer.outputs[0], new)?;
    Ok(Some(patch))
}

/// Whether a Concat joins what another one does, and more behind it.
fn begins_with(network: &Network, layer: &Layer, other: &Layer) -> bool {
    let axis = |of: &Layer| network[of.outputs[0]].ty.axis(of.attrs.int("axis")).ok();
    let fewer = (2..layer.inputs.len()).contains(&other.inputs.len());
    other.op.name == "Concat" && fewer && layer.inputs.starts_with(&other.inputs) && axis(layer) == axis(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::passes::testing::Graph;

    fn concat(g: &mut Graph, axis: i64, parts: &[TensorId]) -> TensorId {
        g.op_with("Concat", attrs([("axis", Attr::Int(axis))]), parts)
    }

    #[test]
    fn what_is_joined_grows() {
        let mut g = Graph::new();
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| g.input(name, "n 2 h"));
        let two = concat(&mut g, 1, &[a, b]);
        let four = concat(&mut g, 1, &[a, b, c, d]);
        let three = concat(&mut g, -2, &[a, b, c]);
        [two, three, four].into_iter().for_each(|joined| g.output(joined));
        g.becomes(
            &PASS,
            "%Concat: float32[n, 4, h] = Concat(%a, %b) {axis=1}
             %Concat~1: float32[n, 6, h] = Concat(%Concat, %c) {axis=-2}
             %Concat~2: float32[n, 8, h] = Concat(%Concat~1, %d) {axis=1}",
        );
    }

    #[test]
    fn other_axes_and_other_orders_stay() {
        let mut g = Graph::new();
        let [a, b, c] = ["a", "b", "c"].map(|name| g.input(name, "n 2 2"));
        for (axis, parts) in [(1, vec![a, b]), (2, vec![a, b, c]), (1, vec![b, a, c]), (1, vec![a, b])] {
            let joined = concat(&mut g, axis, &parts);
            g.output(joined);
        }
        assert_eq!((PASS.apply)(&mut g.network, &Default::default()).unwrap(), 0);
    }
}
