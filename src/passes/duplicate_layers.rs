//! Merges equal constants, and layers that compute the same.

use super::{Pass, Settings, rewrite_with, rule_if};
use crate::error::Result;
use crate::network::patch::{Change, Patch};
use crate::network::{Constant, Layer, LayerId, Network, Source, TensorId};
use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "duplicate_layers",
    doc: "two constants of equal content, two layers of one op with equal attributes and inputs => one of them",
    apply: |network, settings| Ok(merge_constants(network, settings)? + merge_layers(network)?),
};

fn merge_constants(network: &mut Network, settings: &Settings) -> Result<usize> {
    let mut first: HashMap<u64, TensorId> = HashMap::new();
    let mut merges = vec![];
    for (id, tensor) in network.tensors().filter(|(_, t)| !t.users.is_empty()) {
        let Source::Constant(constant) = &tensor.source else {
            continue;
        };
        match first.entry(fingerprint(constant)) {
            Entry::Vacant(slot) => _ = slot.insert(id),
            Entry::Occupied(slot) => {
                let Source::Constant(other) = &network[*slot.get()].source else {
                    continue;
                };
                if may_merge(constant, other, settings.refittable) && constant.array == other.array {
                    merges.push((id, *slot.get()));
                }
            }
        }
    }
    for &(old, new) in &merges {
        let mut patch = Patch::new(network);
        patch.shunt(old, new)?;
        patch.finish().apply(network);
    }
    Ok(merges.len())
}

/// Equal for equal constants, and cheap: of a long one only the ends count.
fn fingerprint(constant: &Constant) -> u64 {
    const END: usize = 4096;
    let bytes = constant.array.bytes();
    let ends = [
        &bytes[..bytes.len().min(END)],
        &bytes[bytes.len() - bytes.len().min(END)..],
    ];
    let kind = format!("{:?}", constant.array);
    ends.iter()
        .fold(xxh3_64(kind.as_bytes()), |hash, end| hash.rotate_left(1) ^ xxh3_64(end))
}

/// Single numbers are part of the structure; weights of different names may differ after a refit.
fn may_merge(a: &Constant, b: &Constant, refittable: bool) -> bool {
    !refittable || a.array.len() <= 1 || same_origin(a, b)
}

fn same_origin(a: &Constant, b: &Constant) -> bool {
    match (&a.recipe, &b.recipe) {
        (None, None) => a.name == b.name,
        (Some(x), Some(y)) => {
            let same = |(a, b): (&Option<Arc<Constant>>, &Option<Arc<Constant>>)| match (a, b) {
                (Some(a), Some(b)) => Arc::ptr_eq(a, b) || (same_origin(a, b) && a.array == b.array),
                (a, b) => a.is_none() && b.is_none(),
            };
            x.op == y.op
                && x.attrs == y.attrs
                && x.output == y.output
                && x.inputs.len() == y.inputs.len()
                && x.inputs.iter().zip(&y.inputs).all(same)
        }
        _ => false,
    }
}

fn merge_layers(network: &mut Network) -> Result<usize> {
    let first = RefCell::new(HashMap::new());
    rewrite_with(network, |network, id| rule(network, id, &mut first.borrow_mut()))
}

fn rule(network: &Network, id: LayerId, first: &mut HashMap<u64, LayerId>) -> Result<Option<Change>> {
    let layer = &network[id];
    rule_if!(layer.op.purity.merges());
    let key = format!("{} {:?} {:?}", layer.op.name, layer.inputs, layer.attrs);
    let slot = first.entry(xxh3_64(key.as_bytes())).or_insert(id);
    let Some(other) = network
        .get_layer(*slot)
        .filter(|other| *slot != id && same_layer(other, layer))
    else {
        *slot = id;
        return Ok(None);
    };
    let types = |layer: &Layer| {
        layer
            .outputs
            .iter()
            .map(|&t| network[t].ty.shape.clone())
            .collect::<Vec<_>>()
    };
    // Sizes that depend on data have a symbol each.
    rule_if!(types(other) == types(layer));
    let mut patch = Patch::new(network);
    for (&old, &new) in layer.outputs.iter().zip(&other.outputs) {
        patch.shunt(old, new)?;
    }
    Ok(Some(patch.finish()))
}

fn same_layer(a: &Layer, b: &Layer) -> bool {
    a.op == b.op && a.inputs == b.inputs && a.attrs == b.attrs && a.outputs.len() == b.outputs.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::testing::Graph;

    #[test]
    fn equal_layers_become_one() {
        let mut g = Graph::new();
        let x = g.input("x", "n 2");
        let (a, b) = (g.scalar(3.0), g.scalar(3.0));
        let (p, q) = (g.op("Add", &[x, a]), g.op("Add", &[x, b]));
        let (p, q) = (g.op("Relu", &[p]), g.op("Relu", &[q]));
        let y = g.op("Mul", &[p, q]);
        g.output(y);
        g.becomes(
            &PASS,
            "
            %Add: float32[n, 2] = Add(%x, float32[](3))
            %Relu: float32[n, 2] = Relu(%Add)
            %Mul: float32[n, 2] = Mul(%Relu, %Relu)",
        );
    }

    #[test]
    fn weights_of_two_names_stay_two_as_long_as_they_can_be_refitted() {
        let mut g = Graph::new();
        let x = g.input("x", "n 2");
        let w = crate::network::array::Array::from_f64(crate::network::dtype::DType::Float32, vec![2], &[1.0, 2.0]);
        let (a, b) = (w.clone().unwrap(), w.unwrap());
        let (a, b) = (g.network.add_constant("a", a), g.network.add_constant("b", b));
        let (p, q) = (g.op("Mul", &[x, a]), g.op("Mul", &[x, b]));
        let y = g.op("Add", &[p, q]);
        g.output(y);
        assert_eq!((PASS.apply)(&mut g.network.clone(), &Settings::default()).unwrap(), 0);
        let fixed = Settings {
            refittable: false,
            ..Settings::default()
        };
        assert_eq!((PASS.apply)(&mut g.network, &fixed).unwrap(), 2);
    }
}
