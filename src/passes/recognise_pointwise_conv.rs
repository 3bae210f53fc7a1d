//! Finds convolutions over one pixel in products of a tensor whose channels were moved behind its pixels.

use super::build::Build;
use super::matching::{chain_up_to, input, inverse, is_bias, is_constant, only_given_by, permutation};
use super::{Found, Pass, rewrite, rule_if, rule_if_some};
use crate::error::Result;
use crate::network::attr::Read;
use crate::network::dim::Dim;
use crate::network::patch::Patch;
use crate::network::{Layer, LayerId, Network, TensorId};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "recognise_pointwise_conv",
    doc: "Transpose of one axis behind the others -> MatMul by a constant matrix of few rows and columns -> Add of a vector, or none -> \
          Transpose back => Conv with a kernel of 1: talking heads",
    apply: |network, _| rewrite(network, rule),
};

/// Rows and columns of the matrix, at most: a product of few terms takes less time than the transposes around it, and one of many is
/// faster where rows are contiguous.
const MOST: i64 = 32;

fn rule(network: &Network, id: LayerId) -> Found<'_> {
    let lower = &network[id];
    rule_if!(lower.op.name == "Transpose");
    rule_if_some!((x, back) = input(lower, 0).zip(permutation(network, lower)));
    rule_if_some!((sums, product) = chain_up_to(network, x, "MatMul", beside_vector));
    rule_if!(sums.len() <= 1 && !product.attrs.flag("transA"));
    rule_if_some!((rows, matrix) = input(product, 0).zip(input(product, 1)));
    rule_if!(network[rows].ty.dtype.is_float() && is_small(network, matrix));
    rule_if_some!(upper = only_given_by(network, rows, "Transpose"));
    rule_if_some!((source, there) = input(upper, 0).zip(permutation(network, upper)));
    rule_if!(there == inverse(&back));
    rule_if_some!(axis = moved_behind(&there));
    let bias = match sums[..] {
        [(sum, main)] => input(sum, 1 - main),
        _ => None,
    };
    let result = &network[lower.outputs[0]].ty.shape;
    let mut patch = Patch::new(network);
    let image = patch.reshape(source, &as_image(&network[source].ty.shape, axis))?;
    let rank = patch.ty(image).rank();
    let weights = weights(&mut patch, product, matrix, rank)?;
    let bias = match bias {
        Some(bias) => Some(patch.reshape(bias, &[result[axis].clone()])?),
        None => None,
    };
    let tf32 = product
        .attrs
        .get("tf32")
        .map(|allowed| ("tf32".into(), allowed.clone()));
    let new = patch.op_full("Conv", tf32.into_iter().collect(), &[Some(image), Some(weights), bias])?[0];
    let new = patch.reshape(new, result)?;
    patch.shunt(lower.outputs[0], new)?;
    Ok(Some(patch))
}

/// The input of an Add beside a vector of constants that may become a bias.
fn beside_vector(network: &Network, layer: &Layer) -> Option<usize> {
    let columns = network[layer.outputs[0]].ty.shape.last();
    let is_vector = |input: &usize| {
        let vector = layer.inputs[*input].filter(|&t| is_bias(network, t));
        vector.is_some_and(|t| network[t].ty.rank() == 1 && network[t].ty.shape.last() == columns)
    };
    let found = [1, 0]
        .into_iter()
        .find(|input| layer.op.name == "Add" && is_vector(input));
    found.map(|vector| 1 - vector)
}

fn is_small(network: &Network, matrix: TensorId) -> bool {
    let shape = &network[matrix].ty.shape;
    let few = |dim: &Dim| dim.as_const().is_some_and(|extent| (1..=MOST).contains(&extent));
    is_constant(network, matrix) && shape.len() == 2 && shape.iter().all(few)
}

/// The axis that a permutation moves behind the others, whose order it keeps.
fn moved_behind(perm: &[usize]) -> Option<usize> {
    let (&axis, others) = perm.split_last()?;
    (axis < others.len() && others.is_sorted()).then_some(axis)
}

/// A shape as that of images whose channels lie along an axis.
fn as_image(shape: &[Dim], axis: usize) -> Vec<Dim> {
    let product = |dims: &[Dim]| dims.iter().cloned().fold(Dim::from(1i64), |all, dim| all * dim);
    let (batch, pixels) = (&shape[..axis], &shape[axis + 1..]);
    let pixels = if pixels.len() > 2 {
        vec![product(pixels)]
    } else {
        pixels.to_vec()
    };
    [vec![product(batch), shape[axis].clone()], pixels].concat()
}

/// The matrix of a product as the weights of a convolution of tensors of this rank.
fn weights(patch: &mut Patch, product: &Layer, matrix: TensorId, rank: usize) -> Result<TensorId> {
    let turned = match product.attrs.flag("transB") {
        true => matrix,
        false => patch.transpose(matrix, &[1, 0])?,
    };
    let mut shape = patch.ty(turned).shape.clone();
    shape.resize(rank, 1i64.into());
    patch.reshape(turned, &shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::array::Array;
    use crate::network::attr::{Attr, attrs};
    use crate::network::dtype::DType;
    use crate::passes::testing::Graph;
    use crate::passes::{Settings, fold_constants};

    /// x -> Transpose -> MatMul -> Add -> Transpose.
    fn heads(shape: &str, there: &[i64], back: &[i64], matrix: [usize; 2], summand: &[usize]) -> Graph {
        let mut g = Graph::new();
        let b = g.weights(summand);
        with_summand(g, b, shape, there, back, matrix)
    }

    fn with_summand(mut g: Graph, b: TensorId, shape: &str, there: &[i64], back: &[i64], matrix: [usize; 2]) -> Graph {
        let (x, w) = (g.input("x", shape), g.weights(&matrix));
        let perm = |order: &[i64]| attrs([("perm", Attr::Ints(order.to_vec()))]);
        let y = g.op_with("Transpose", perm(there), &[x]);
        let y = g.op("MatMul", &[y, w]);
        let y = g.op("Add", &[b, y]);
        let y = g.op_with("Transpose", perm(back), &[y]);
        g.output(y);
        g
    }

    const CONV: &str = "{auto_pad=NOTSET, dilations=[], group=1, pads=[], strides=[]}";

    fn becomes(mut g: Graph, layers: &str) {
        let layers = layers.replace("{}", CONV);
        g.becomes_by(&[&PASS, &fold_constants::PASS], &Settings::default(), &layers);
    }

    #[test]
    fn a_product_over_heads_is_a_convolution() {
        becomes(
            heads("n 4 5 h", &[0, 2, 3, 1], &[0, 3, 1, 2], [4, 6], &[6]),
            "%Transpose: float32[n, 6, 5, h] = Conv(%x, float32[6, 4, 1, 1](...), float32[6](...)) {}",
        );
        becomes(
            heads("n 4 5", &[0, 2, 1], &[0, 2, 1], [4, 6], &[6]),
            "%Transpose: float32[n, 6, 5] = Conv(%x, float32[6, 4, 1](...), float32[6](...)) {}",
        );
    }

    #[test]
    fn other_axes_are_batch_and_pixels() {
        becomes(
            heads("n 3 4 5", &[0, 1, 3, 2], &[0, 1, 3, 2], [4, 6], &[6]),
            "%Transpose: float32[3*n, 4, 5] = Reshape(%x, [3*n, 4, 5]) {allowzero=1}\n\
             %Transpose~1: float32[3*n, 6, 5] = Conv(%Transpose, float32[6, 4, 1](...), float32[6](...)) {}\n\
             %Transpose~2: float32[n, 3, 6, 5] = Reshape(%Transpose~1, [n, 3, 6, 5]) {allowzero=1}",
        );
    }

    #[test]
    fn other_graphs_stay() {
        let stays = |mut g: Graph| assert_eq!((PASS.apply)(&mut g.network, &Settings::default()).unwrap(), 0);
        // Another order at the end, a summand that is no vector, a matrix that is not small.
        stays(heads("n 4 5 5", &[0, 2, 3, 1], &[0, 3, 2, 1], [4, 6], &[6]));
        stays(heads("n 4 5 5", &[0, 2, 3, 1], &[0, 3, 1, 2], [4, 6], &[5, 6]));
        stays(heads("n 4 5 5", &[0, 2, 3, 1], &[0, 3, 1, 2], [4, 64], &[64]));
        // A summand that rounds what it is added to.
        let mut g = Graph::new();
        let large = Array::from_f64(DType::Float32, vec![6], &[1.5 * 2f64.powi(23); 6]).unwrap();
        let large = g.network.add_constant("large", large);
        stays(with_summand(g, large, "n 4 5 5", &[0, 2, 3, 1], &[0, 3, 1, 2], [4, 6]));
    }
}
