//! Lets a convolution do the padding before it.

use super::build::Build;
use super::matching::{input, only_given_by, uniform};
use super::{Found, Pass, rewrite, rule_if, rule_if_some};
use crate::network::attr::{Attr, Read};
use crate::network::dim::Dim;
use crate::network::patch::Patch;
use crate::network::{Layer, LayerId, Network};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "fold_pad",
    doc: "Pad with zeros along spatial axes -> Conv => Conv",
    apply: |network, _| rewrite(network, rule),
};

/// Pad -> Conv => Conv.
fn rule(network: &Network, id: LayerId) -> Found<'_> {
    let conv = &network[id];
    rule_if!(conv.op.name == "Conv" && conv.attrs.text("auto_pad") == "NOTSET");
    rule_if_some!(pad = input(conv, 0).and_then(|x| only_given_by(network, x, "Pad")));
    rule_if_some!(x = input(pad, 0));
    rule_if_some!(pads = zero_pads(network, pad, network[x].ty.rank()));
    let mut attrs = conv.attrs.clone();
    let own = attrs.ints("pads");
    let sum = pads
        .iter()
        .enumerate()
        .map(|(i, pad)| pad + own.get(i).copied().unwrap_or(0));
    let sum = sum.collect();
    attrs.insert("pads".into(), Attr::Ints(sum));
    let mut inputs = conv.inputs.clone();
    inputs[0] = Some(x);
    let mut patch = Patch::new(network);
    let new = patch.op_full(conv.op.name, attrs, &inputs)?[0];
    rule_if!(patch.ty(new).shape == network[conv.outputs[0]].ty.shape);
    patch.shunt(conv.outputs[0], new)?;
    Ok(Some(patch))
}

/// Padding before each spatial axis, then after each, if the layer adds nothing but zeros there.
fn zero_pads(network: &Network, pad: &Layer, rank: usize) -> Option<Vec<i64>> {
    let zeros = input(pad, 2).is_none_or(|value| uniform(network, value) == Some(0.0));
    let all_axes = input(pad, 3).is_none();
    let amounts = network[input(pad, 1)?].ty.value.as_ref()?;
    let amounts: Vec<i64> = amounts.iter().map(Dim::as_const).collect::<Option<_>>()?;
    let (before, after) = amounts.split_at_checked(rank)?;
    let spatial_only = rank > 2 && before[..2] == [0, 0] && after[..2] == [0, 0];
    let grows = amounts.iter().all(|&amount| amount >= 0);
    let folds = pad.attrs.text("mode") == "constant" && zeros && all_axes && spatial_only && grows;
    folds.then(|| [&before[2..], &after[2..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::TensorId;
    use crate::network::attr::attrs;
    use crate::passes::testing::Graph;

    /// Pad by these amounts, with this value, then Conv of padding 1.
    fn padded(pads: &[i64], value: f64) -> Graph {
        let mut g = Graph::new();
        let x = g.input("x", "n 2 h 5");
        let (pads, value) = (g.ints(pads), g.scalar(value));
        let y = g.op("Pad", &[x, pads, value]);
        let w: TensorId = g.weights(&[3, 2, 3, 3]);
        let y = g.op_with("Conv", attrs([("pads", Attr::Ints(vec![1, 1, 1, 1]))]), &[y, w]);
        g.output(y);
        g
    }

    #[test]
    fn zeros_become_padding_of_the_convolution() {
        padded(&[0, 0, 1, 0, 0, 0, 2, 3], 0.0).becomes(
            &PASS,
            "%Conv: float32[n, 3, h + 3, 8] = Conv(%x, float32[3, 2, 3, 3](...)) \
             {auto_pad=NOTSET, dilations=[], group=1, pads=[2, 1, 3, 4], strides=[]}",
        );
    }

    #[test]
    fn other_values_and_other_axes_stay() {
        for (pads, value, batch) in [
            ([0, 0, 1, 0, 0, 0, 2, 3], 1.0, "n"),
            ([1, 0, 1, 0, 0, 0, 2, 3], 0.0, "n + 1"),
        ] {
            let layers = format!(
                "%Pad: float32[{batch}, 2, h + 3, 8] = Pad(%x, int64[8](...), float32[]({value})) {{mode=constant}}
                 %Conv: float32[{batch}, 3, h + 3, 8] = Conv(%Pad, float32[3, 2, 3, 3](...)) \
                 {{auto_pad=NOTSET, dilations=[], group=1, pads=[1, 1, 1, 1], strides=[]}}"
            );
            padded(&pads, value).becomes(&PASS, &layers);
        }
    }
}
