//! Lets the rows of weights begin where many of their numbers can be read at once.

use super::build::Build;
use super::matching::{input, is_constant};
use super::{Found, Pass, rewrite, rule_if, rule_if_some};
use crate::network::attr::{Attr, Read};
use crate::network::patch::Patch;
use crate::network::{LayerId, Network, TensorId};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "align_weights",
    doc: "MatMul by a constant whose rows have an uneven length, and its columns an even one => MatMul by its transpose",
    apply: |network, _| rewrite(network, rule),
};

/// What an even length is a multiple of: 16 bytes of 16-bit numbers.
const EVEN: usize = 8;

fn rule(network: &Network, id: LayerId) -> Found<'_> {
    let layer = &network[id];
    rule_if!(layer.op.name == "MatMul");
    rule_if_some!(weights = input(layer, 1));
    rule_if_some!([rows, columns] = matrix(network, weights));
    rule_if!(columns > 1 && columns % EVEN != 0 && rows % EVEN == 0);
    let mut patch = Patch::new(network);
    let mut attrs = layer.attrs.clone();
    attrs.insert("transB".into(), Attr::Int(!layer.attrs.flag("transB") as i64));
    let inputs = [layer.inputs[0], Some(patch.transpose(weights, &[1, 0])?)];
    let new = patch.add_named("", layer.op, attrs, &inputs)?[0];
    patch.shunt(layer.outputs[0], new)?;
    Ok(Some(patch))
}

/// Rows and columns of a constant matrix.
fn matrix(network: &Network, tensor: TensorId) -> Option<[usize; 2]> {
    let extents = network[tensor]
        .ty
        .shape
        .iter()
        .map(|extent| usize::try_from(extent.as_const()?).ok());
    let extents: Vec<usize> = extents.collect::<Option<_>>()?;
    extents.try_into().ok().filter(|_| is_constant(network, tensor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::attrs;
    use crate::passes::testing::Graph;
    use crate::passes::{Settings, fold_constants};

    #[test]
    fn rows_of_uneven_length_become_columns() {
        let mut g = Graph::new();
        let x = g.input("x", "n 16");
        let (uneven, even) = (g.weights(&[16, 13]), g.weights(&[16, 24]));
        let turned = g.weights(&[13, 16]);
        for (weights, transposed) in [(uneven, 0), (even, 0), (turned, 1)] {
            let y = g.op_with("MatMul", attrs([("transB", Attr::Int(transposed))]), &[x, weights]);
            g.output(y);
        }
        g.becomes_by(
            &[&PASS, &fold_constants::PASS],
            &Settings::default(),
            "
            %MatMul: float32[n, 24] = MatMul(%x, float32[16, 24](...)) {transA=0, transB=0}
            %MatMul~1: float32[n, 13] = MatMul(%x, float32[13, 16](...)) {transA=0, transB=1}
            %MatMul~2: float32[n, 13] = MatMul(%x, float32[13, 16](...)) {transA=0, transB=1}",
        );
    }
}
