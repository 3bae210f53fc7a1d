//! Lets products of rows be products of the tensor that the rows were made of.

use super::build::Build;
use super::matching::{chain_up_to, input, is_pointwise, only_given_by};
use super::{Found, Pass, rewrite, rule_if, rule_if_some};
use crate::network::attr::Read;
use crate::network::patch::Patch;
use crate::network::{Layer, LayerId, Network, TensorId};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "unflatten_products",
    doc: "Reshape to rows -> MatMul by a matrix -> pointwise with numbers or a vector -> Reshape back => MatMul -> pointwise: \
          Dense of Keras; what follows then joins the product",
    apply: |network, _| rewrite(network, rule),
};

fn rule(network: &Network, id: LayerId) -> Found<'_> {
    let outer = &network[id];
    rule_if!(outer.op.name == "Reshape");
    rule_if_some!(x = input(outer, 0));
    rule_if_some!((between, product) = chain_up_to(network, x, "MatMul", along_rows));
    rule_if_some!((rows, matrix) = input(product, 0).zip(input(product, 1)));
    rule_if!(network[matrix].ty.rank() == 2 && network[rows].ty.rank() >= 2 && !product.attrs.flag("transA"));
    rule_if_some!(source = only_given_by(network, rows, "Reshape").and_then(|inner| input(inner, 0)));
    rule_if!(splits_rows_alike(
        network,
        source,
        rows,
        product.outputs[0],
        outer.outputs[0]
    ));
    let mut patch = Patch::new(network);
    let operands = [Some(source), Some(matrix)];
    let new = patch.add_named("", product.op, product.attrs.clone(), &operands)?[0];
    let new = patch.again(&between, new)?;
    rule_if!(patch.ty(new).shape == network[outer.outputs[0]].ty.shape);
    patch.shunt(outer.outputs[0], new)?;
    Ok(Some(patch))
}

/// Whether the reshapes around a product part nothing but its rows, and both in the same way.
fn splits_rows_alike(network: &Network, source: TensorId, rows: TensorId, product: TensorId, result: TensorId) -> bool {
    let [source, rows, product, result] = [source, rows, product, result].map(|t| network[t].ty.shape.as_slice());
    let parts = |from: &[_], to: &[_]| from.last() == to.last();
    source.len() >= 2
        && parts(source, rows)
        && parts(product, result)
        && source[..source.len() - 1] == result[..result.len() - 1]
}

/// The input of a pointwise layer whose rows its result has; the others are numbers, or vectors along a row.
fn along_rows(network: &Network, layer: &Layer) -> Option<usize> {
    let shape = |t: TensorId| network[t].ty.shape.as_slice();
    let wide = |i: &usize| layer.inputs[*i].is_some_and(|t| shape(t).len() > 1);
    let mut inputs = (0..layer.inputs.len()).filter(wide);
    let main = inputs.next()?;
    let keeps = layer.inputs[main].is_some_and(|t| shape(t) == shape(layer.outputs[0]));
    (is_pointwise(layer) && keeps && inputs.next().is_none()).then_some(main)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::testing::Graph;

    /// x -> Reshape -> MatMul -> Add -> Relu -> Reshape.
    fn dense(input: &str, there: &[i64], back: &[i64]) -> Graph {
        let mut g = Graph::new();
        let x = g.input("x", input);
        let (w, b) = (g.input("w", "8 16"), g.input("b", "16"));
        let (there, back) = (g.ints(there), g.ints(back));
        let y = g.op("Reshape", &[x, there]);
        let y = g.op("MatMul", &[y, w]);
        let y = g.op("Add", &[b, y]);
        let y = g.op("Relu", &[y]);
        let y = g.op("Reshape", &[y, back]);
        g.output(y);
        g
    }

    #[test]
    fn a_dense_layer_of_an_image_is_one_product() {
        dense("n 5 7 8", &[-1, 8], &[-1, 5, 7, 16]).becomes(
            &PASS,
            "
            %Reshape: float32[n, 5, 7, 16] = MatMul(%x, %w) {transA=0, transB=0}
            %Reshape~1: float32[n, 5, 7, 16] = Add(%b, %Reshape)
            %Reshape~2: float32[n, 5, 7, 16] = Relu(%Reshape~1)",
        );
    }

    #[test]
    fn other_reshapes_stay() {
        let heads = dense("n 5 7 8", &[-1, 8], &[-1, 35, 2, 8]);
        let columns = dense("n 5 16", &[-1, 8], &[-1, 5, 32]);
        let swapped = dense("5 7 8", &[-1, 8], &[7, 5, 16]);
        for mut g in [heads, columns, swapped] {
            assert_eq!((PASS.apply)(&mut g.network, &Default::default()).unwrap(), 0);
        }
    }
}
