//! Replaces integers that the shapes determine by what they are, so that shape arithmetic dies.

use super::matching::input;
use super::{Found, Pass, rewrite, rule_if, rule_if_some};
use crate::error::Result;
use crate::network::op::TensorType;
use crate::network::patch::Patch;
use crate::network::{Layer, LayerId, Network};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "fold_shapes",
    doc: "Shape -> Gather -> Concat and other layers whose outputs the shapes determine => their symbolic value",
    apply: |network, _| rewrite(network, rule),
};

fn rule(network: &Network, id: LayerId) -> Found<'_> {
    let layer = &network[id];
    rule_if!(layer.outputs.iter().all(|&t| !network[t].ty.dtype.is_float()));
    rule_if_some!(types = known_types(network, layer)?);
    let mut patch = Patch::new(network);
    for (ty, &output) in types.into_iter().zip(&layer.outputs) {
        rule_if_some!(value = ty.value);
        let folded = patch.symbolic(&network[output].name, ty.dtype, ty.shape, value);
        patch.shunt(output, folded)?;
    }
    Ok(Some(patch))
}

/// The types of the outputs, all with values. Values may have become known since the layer was added.
fn known_types(network: &Network, layer: &Layer) -> Result<Option<Vec<TensorType>>> {
    let all_known = |types: Vec<TensorType>| types.iter().all(|ty| ty.value.is_some()).then_some(types);
    let known = all_known(layer.outputs.iter().map(|&t| network[t].ty.clone()).collect());
    let may_be_known = (0..layer.inputs.len()).any(|i| input(layer, i).is_some_and(|t| network[t].ty.value.is_some()));
    if known.is_some() || !may_be_known {
        return Ok(known);
    }
    let inputs: Vec<_> = layer.inputs.iter().map(|t| t.map(|t| &network[t])).collect();
    let (types, _) = network.infer(&layer.name, layer.op, &layer.attrs, &inputs)?;
    Ok(all_known(types))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::passes::testing::Graph;

    #[test]
    fn a_chain_from_shape_to_reshape_dies() {
        let mut g = Graph::new();
        let x = g.input("x", "n 3 h 4");
        let shape = g.op("Shape", &[x]);
        let (zero, rest) = (g.ints(&[0]), g.ints(&[-1]));
        let batch = g.op("Gather", &[shape, zero]);
        let target = g.op_with("Concat", attrs([("axis", Attr::Int(0))]), &[batch, rest]);
        let y = g.op("Reshape", &[x, target]);
        g.output(y);
        g.becomes(&PASS, "%Reshape: float32[n, 12*h] = Reshape(%x, [n, -1]) {allowzero=0}");
    }

    #[test]
    fn numbers_become_constants() {
        let mut g = Graph::new();
        let x = g.input("x", "n 3");
        let shape = g.op("Shape", &[x]);
        let one = g.ints(&[1]);
        let channels = g.op("Gather", &[shape, one]);
        g.output(channels);
        g.becomes(&PASS, "");
        assert_eq!(
            g.network[g.network.outputs()[0].tensor].constant().unwrap().to_i64(),
            [3]
        );
    }
}
