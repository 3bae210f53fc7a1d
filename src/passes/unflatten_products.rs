//! Lets products of rows be products of the tensor that the rows were made of.

use super::build::Build;
use super::matching::{chain_up_to, input, is_pointwise};
use super::{Found, Pass, rewrite, rule_if, rule_if_some};
use crate::network::attr::Read;
use crate::network::dim::Dim;
use crate::network::patch::Patch;
use crate::network::{Layer, LayerId, Network, TensorId};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "unflatten_products",
    doc: "Reshape to rows -> MatMul by a matrix -> Reshape back, pointwise with numbers or a vector between them => Reshape \
          that joins last axes, or none -> MatMul: Dense of Keras, heads behind Attention; what follows then joins the product",
    apply: |network, _| rewrite(network, rule),
};

fn rule(network: &Network, id: LayerId) -> Found<'_> {
    let outer = &network[id];
    rule_if!(outer.op.name == "Reshape");
    rule_if_some!(x = input(outer, 0));
    rule_if_some!((between, product) = chain_up_to(network, x, "MatMul", along_rows));
    rule_if_some!((rows, matrix) = input(product, 0).zip(input(product, 1)));
    rule_if!(network[matrix].ty.rank() == 2 && network[rows].ty.rank() >= 2 && !product.attrs.flag("transA"));
    rule_if_some!((before, inner) = chain_up_to(network, rows, "Reshape", along_rows));
    rule_if_some!(source = input(inner, 0));
    rule_if_some!(shape = unflattened(network, source, rows, product.outputs[0], outer.outputs[0]));
    let mut patch = Patch::new(network);
    let source = patch.reshape(source, &shape)?;
    let source = patch.again(&before, source)?;
    let operands = [Some(source), Some(matrix)];
    let new = patch.add_named("", product.op, product.attrs.clone(), &operands)?[0];
    let new = patch.again(&between, new)?;
    rule_if!(patch.ty(new).shape == network[outer.outputs[0]].ty.shape);
    patch.shunt(outer.outputs[0], new)?;
    Ok(Some(patch))
}

/// The shape of the source of rows in which their product has the shape of the result: where the reshapes around the product split
/// its rows in the same way.
fn unflattened(
    network: &Network,
    source: TensorId,
    rows: TensorId,
    product: TensorId,
    result: TensorId,
) -> Option<Vec<Dim>> {
    let [source, rows, product, result] = [source, rows, product, result].map(|t| network[t].ty.shape.as_slice());
    let lead = result.len().checked_sub(1).filter(|&lead| lead > 0)?;
    let width = source.get(lead..)?.iter().cloned().reduce(|width, dim| width * dim)?;
    let alike = source[..lead] == result[..lead] && rows.last() == Some(&width) && product.last() == result.last();
    alike.then(|| [&source[..lead], &[width]].concat())
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
    use crate::network::attr::{Attr, attrs};
    use crate::network::dtype::DType;
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
    fn heads_alone_are_joined_in_front_of_a_product() {
        dense("n 5 2 4", &[-1, 8], &[-1, 5, 16]).becomes(
            &PASS,
            "
            %Reshape: float32[n, 5, 8] = Reshape(%x, [n, 5, 8]) {allowzero=1}
            %Reshape~1: float32[n, 5, 16] = MatMul(%Reshape, %w) {transA=0, transB=0}
            %Reshape~2: float32[n, 5, 16] = Add(%b, %Reshape~1)
            %Reshape~3: float32[n, 5, 16] = Relu(%Reshape~2)",
        );
    }

    #[test]
    fn rows_are_rounded_as_they_lie() {
        let mut g = Graph::new();
        let x = g.input("x", "n 5 8");
        let w = g.input("w", "8 16");
        let (there, back) = (g.ints(&[-1, 8]), g.ints(&[-1, 5, 16]));
        let scale = g.scalar(0.0625);
        let y = g.op("Reshape", &[x, there]);
        let y = g.op_with("QuantizeLinear", attrs([("to", Attr::Type(DType::Int8))]), &[y, scale]);
        let y = g.op("DequantizeLinear", &[y, scale]);
        let y = g.op("MatMul", &[y, w]);
        let y = g.op("Reshape", &[y, back]);
        g.output(y);
        g.becomes(
            &PASS,
            "
            %Reshape: int8[n, 5, 8] = QuantizeLinear(%x, float32[](0.0625)) {saturate=1, to=int8}
            %Reshape~1: float32[n, 5, 8] = DequantizeLinear(%Reshape, float32[](0.0625))
            %Reshape~2: float32[n, 5, 16] = MatMul(%Reshape~1, %w) {transA=0, transB=0}",
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
