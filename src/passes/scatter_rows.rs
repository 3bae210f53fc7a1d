//! Scatters whole rows as rows: an index for each element, all the same along a row, is one index a row.

use super::build::Build;
use super::matching::{given_by, input};
use super::{Found, Pass, rewrite, rule_if, rule_if_some};
use crate::network::attr::{Attr, Read, attrs};
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "scatter_rows",
    doc: "Expand of one index a row -> ScatterElements along axis 0 => ScatterND",
    apply: |network, _| rewrite(network, rule),
};

/// Expand -> ScatterElements => ScatterND.
fn rule(network: &Network, id: LayerId) -> Found<'_> {
    let scatter = &network[id];
    rule_if!(scatter.op.name == "ScatterElements" && scatter.attrs.int("axis") == 0);
    rule_if_some!(data = input(scatter, 0));
    rule_if_some!(indices = input(scatter, 1));
    rule_if_some!(updates = input(scatter, 2));
    rule_if_some!(expand = given_by(network, indices, "Expand"));
    rule_if_some!(rows = input(expand, 0));
    let (whole, one) = (&network[data].ty.shape, &network[rows].ty.shape);
    let expanded = &network[indices].ty.shape;
    // One index a row, and whole rows.
    rule_if!(one.len() == whole.len() && one[0] == expanded[0] && one[1..].iter().all(|d| d.is(1)));
    rule_if!(expanded[1..] == whole[1..] && network[updates].ty.shape == *expanded);
    let mut patch = Patch::new(network);
    let vectors = patch.reshape(rows, &[one[0].clone(), 1i64.into()])?;
    let attrs = attrs([("reduction", Attr::Text(scatter.attrs.text("reduction").into()))]);
    let new = patch.op_with("ScatterND", attrs, &[data, vectors, updates])?;
    patch.shunt(scatter.outputs[0], new)?;
    Ok(Some(patch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::dtype::DType;
    use crate::passes::testing::Graph;

    fn scattered(axis: i64) -> Graph {
        let mut g = Graph::new();
        let (x, updates) = (g.input("x", "n 3 4"), g.input("updates", "k 3 4"));
        let rows = g.input_of("rows", DType::Int64, "k 1 1");
        let like = g.op("Shape", &[updates]);
        let indices = g.op("Expand", &[rows, like]);
        let y = g.op_with(
            "ScatterElements",
            attrs([("axis", Attr::Int(axis))]),
            &[x, indices, updates],
        );
        g.output(y);
        g
    }

    #[test]
    fn an_index_for_each_row_is_enough() {
        scattered(0).becomes_by(
            &[&PASS],
            &crate::passes::Settings::default(),
            "%ScatterElements: int64[k, 1] = Reshape(%rows, [k, 1]) {allowzero=1}
             %ScatterElements~1: float32[n, 3, 4] = ScatterND(%x, %ScatterElements, %updates) {reduction=none}",
        );
    }
}
