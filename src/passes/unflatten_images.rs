//! Lets transposes between tokens and images lie at the images, where layouts of convolutions take them up.

use super::build::Build;
use super::matching::{input, only_given_by, permutation};
use super::{Found, Pass, rewrite, rule_if, rule_if_some};
use crate::network::dim::Dim;
use crate::network::patch::Patch;
use crate::network::{Layer, LayerId, Network};
use std::ops::Range;

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "unflatten_images",
    doc: "Transpose of tokens [n, hw, c] -> Reshape to [n, c, h, w] => Reshape to [n, h, w, c] -> Transpose; \
          Reshape of an image [n, c, h, w] to [n, c, hw] -> Transpose => Transpose to [n, h, w, c] -> Reshape: \
          the images are channels-last as they come",
    apply: |network, _| rewrite(network, rule),
};

fn rule(network: &Network, id: LayerId) -> Found<'_> {
    match network[id].op.name {
        "Reshape" => into_image(network, &network[id]),
        "Transpose" => out_of_image(network, &network[id]),
        _ => Ok(None),
    }
}

/// Transpose -> Reshape that parts the last axis => Reshape -> Transpose.
fn into_image<'n>(network: &'n Network, outer: &Layer) -> Found<'n> {
    rule_if_some!(inner = input(outer, 0).and_then(|x| only_given_by(network, x, "Transpose")));
    rule_if_some!((x, perm) = input(inner, 0).zip(permutation(network, inner)));
    let image = &network[outer.outputs[0]].ty.shape;
    rule_if_some!(parts = parts(&network[inner.outputs[0]].ty.shape, image));
    // The places that the axes of the image have before the transposition.
    let mut order: Vec<usize> = (0..perm.len()).collect();
    order.sort_by_key(|&axis| perm[axis]);
    let sources: Vec<usize> = order.into_iter().flat_map(|axis| parts[axis].clone()).collect();
    rule_if!(is_channels_last(&sources));
    let shape: Vec<Dim> = sources.iter().map(|&axis| image[axis].clone()).collect();
    let mut patch = Patch::new(network);
    let new = patch.reshape(x, &shape)?;
    let new = patch.transpose(new, &channels_first(sources.len()))?;
    patch.shunt(outer.outputs[0], new)?;
    Ok(Some(patch))
}

/// Reshape that joins axes -> Transpose => Transpose -> Reshape.
fn out_of_image<'n>(network: &'n Network, outer: &Layer) -> Found<'n> {
    rule_if_some!(perm = permutation(network, outer));
    rule_if_some!(inner = input(outer, 0).and_then(|x| only_given_by(network, x, "Reshape")));
    rule_if_some!(image = input(inner, 0));
    rule_if_some!(parts = parts(&network[inner.outputs[0]].ty.shape, &network[image].ty.shape));
    let order: Vec<usize> = perm.iter().flat_map(|&axis| parts[axis].clone()).collect();
    rule_if!(is_channels_last(&order));
    let mut patch = Patch::new(network);
    let new = patch.transpose(image, &order)?;
    let new = patch.reshape(new, &network[outer.outputs[0]].ty.shape)?;
    patch.shunt(outer.outputs[0], new)?;
    Ok(Some(patch))
}

/// For each axis of a shape the axes of a longer one that it joins; `None` where they are not parts of it.
fn parts(short: &[Dim], long: &[Dim]) -> Option<Vec<Range<usize>>> {
    let mut end = 0;
    let mut found = vec![];
    for dim in short {
        let start = end;
        let mut product = Dim::from(1usize);
        while end == start || product != *dim {
            product = product * long.get(end)?.clone();
            end += 1;
        }
        found.push(start..end);
    }
    (end == long.len() && long.len() > short.len()).then_some(found)
}

/// Whether axes are those of an image in the order n, h, w, c.
fn is_channels_last(axes: &[usize]) -> bool {
    let last = axes.len().checked_sub(1).filter(|&last| last >= 2);
    last.is_some_and(|last| axes[0] == 0 && axes[last] == 1 && axes[1..last].iter().copied().eq(2..=last))
}

/// The order that makes n, c, h, w of n, h, w, c.
fn channels_first(rank: usize) -> Vec<usize> {
    [0, rank - 1].into_iter().chain(1..rank - 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::TensorId;
    use crate::network::attr::{Attr, attrs};
    use crate::passes::testing::Graph;

    fn transpose(g: &mut Graph, x: TensorId, perm: &[i64]) -> TensorId {
        g.op_with("Transpose", attrs([("perm", Attr::Ints(perm.into()))]), &[x])
    }

    fn reshape(g: &mut Graph, x: TensorId, shape: &[i64]) -> TensorId {
        let shape = g.ints(shape);
        g.op("Reshape", &[x, shape])
    }

    #[test]
    fn a_convolution_between_tokens_reads_and_writes_images_of_channels_last() {
        let mut g = Graph::new();
        let x = g.input("x", "n 6 4");
        let w = g.input("w", "4 4 1 1");
        let y = transpose(&mut g, x, &[0, 2, 1]);
        let y = reshape(&mut g, y, &[0, 4, 2, 3]);
        let y = g.op("Conv", &[y, w]);
        let y = reshape(&mut g, y, &[0, 4, -1]);
        let y = transpose(&mut g, y, &[0, 2, 1]);
        g.output(y);
        g.becomes(
            &PASS,
            "
            %Reshape: float32[n, 2, 3, 4] = Reshape(%x, [n, 2, 3, 4]) {allowzero=1}
            %Reshape~1: float32[n, 4, 2, 3] = Transpose(%Reshape) {perm=[0, 3, 1, 2]}
            %Conv: float32[n, 4, 2, 3] = Conv(%Reshape~1, %w) {auto_pad=NOTSET, dilations=[], group=1, pads=[], strides=[]}
            %Transpose: float32[n, 2, 3, 4] = Transpose(%Conv) {perm=[0, 2, 3, 1]}
            %Transpose~1: float32[n, 6, 4] = Reshape(%Transpose, [n, 6, 4]) {allowzero=1}",
        );
    }

    #[test]
    fn volumes_are_images_too() {
        let mut g = Graph::new();
        let x = g.input("x", "n 24 5");
        let y = transpose(&mut g, x, &[0, 2, 1]);
        let y = reshape(&mut g, y, &[0, 5, 2, 3, 4]);
        g.output(y);
        g.becomes(
            &PASS,
            "
            %Reshape: float32[n, 2, 3, 4, 5] = Reshape(%x, [n, 2, 3, 4, 5]) {allowzero=1}
            %Reshape~1: float32[n, 5, 2, 3, 4] = Transpose(%Reshape) {perm=[0, 4, 1, 2, 3]}",
        );
    }

    /// What makes layers behind an input of shape [n, 6, 4].
    type Case = fn(&mut Graph, TensorId) -> TensorId;

    #[test]
    fn other_orders_stay() {
        // Heads, and axes that are parted before they are moved.
        let heads: Case = |g, x| {
            let y = reshape(g, x, &[0, 6, 2, 2]);
            let y = transpose(g, y, &[0, 2, 1, 3]);
            reshape(g, y, &[0, 12, 2])
        };
        let leading: Case = |g, x| {
            let y = reshape(g, x, &[0, 2, 3, 4]);
            let y = reshape(g, y, &[-1, 3, 4]);
            transpose(g, y, &[0, 2, 1])
        };
        // What is read as it is, too.
        let shared: Case = |g, x| {
            let y = transpose(g, x, &[0, 2, 1]);
            g.output(y);
            reshape(g, y, &[0, 4, 2, 3])
        };
        for case in [heads, leading, shared] {
            let mut g = Graph::new();
            let x = g.input("x", "n 6 4");
            let y = case(&mut g, x);
            g.output(y);
            assert_eq!((PASS.apply)(&mut g.network, &Default::default()).unwrap(), 0);
        }
    }
}
