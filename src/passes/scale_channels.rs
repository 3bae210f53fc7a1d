//! Writes convolutions that scale channels as what they are: a GPU's libraries have slow kernels for them, and products fuse with what is
//! around them, or go into the weights of other layers.

use super::build::Build;
use super::matching::{input, is_bias, is_constant};
use super::{Found, Pass, rewrite, rule_if, rule_if_some};
use crate::network::attr::Read;
use crate::network::ops::conv;
use crate::network::patch::Patch;
use crate::network::{Layer, LayerId, Network, TensorId};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "scale_channels",
    doc: "Conv over one pixel with a group for each channel => Mul -> Add by a number for each channel, where that is faster",
    apply: |network, settings| match settings.channel_products {
        true => rewrite(network, rule),
        false => Ok(0),
    },
};

fn rule(network: &Network, id: LayerId) -> Found<'_> {
    let layer = &network[id];
    rule_if!(layer.op.name == "Conv");
    rule_if_some!((x, weights) = input(layer, 0).zip(input(layer, 1)));
    rule_if!(is_constant(network, weights) && scales(network, layer, x, weights));
    let bias = input(layer, 2);
    rule_if!(bias.is_none_or(|bias| is_bias(network, bias)));
    // What follows goes into the weights and the bias first, where it is one factor and one summand.
    rule_if!(!is_scaled(network, layer));
    let mut factors = network[weights].ty.shape.clone();
    factors.remove(1);
    let mut patch = Patch::new(network);
    let factor = patch.reshape(weights, &factors)?;
    let mut result = patch.op("Mul", &[x, factor])?;
    if let Some(bias) = bias {
        let offset = patch.reshape(bias, &factors)?;
        result = patch.op("Add", &[result, offset])?;
    }
    patch.shunt(layer.outputs[0], result)?;
    Ok(Some(patch))
}

/// Whether each number of the result is one of the input times a weight of its channel.
fn scales(network: &Network, layer: &Layer, x: TensorId, weights: TensorId) -> bool {
    let (from, to) = (&network[x].ty.shape, &network[layer.outputs[0]].ty.shape);
    let shape = &network[weights].ty.shape;
    let Ok(window) = conv::window(&layer.attrs, shape) else {
        return false;
    };
    let ones = |numbers: &[i64]| numbers.iter().all(|&number| number == 1);
    let padded = window.begin.iter().chain(&window.end).any(|&pixels| pixels != 0);
    shape[0].is(layer.attrs.int("group"))
        && shape[1].is(1)
        && ones(&window.kernel)
        && ones(&window.strides)
        && !padded
        && from == to
}

/// Whether a product or a sum with a constant, or a normalization, follows.
fn is_scaled(network: &Network, layer: &Layer) -> bool {
    let Some(next) = network.sole_user(layer.outputs[0]).map(|id| &network[id]) else {
        return false;
    };
    let constant = || next.inputs.iter().flatten().any(|&t| is_constant(network, t));
    matches!(next.op.name, "Mul" | "Div" | "Add" | "Sub" | "BatchNormalization") && constant()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::passes::testing::Graph;
    use crate::passes::{Settings, fold_batch_norm, fold_constants, merge_reshapes};

    fn grouped(g: &mut Graph, shape: &str, weights: &[usize], others: &[(&str, Attr)]) {
        let (x, w, b) = (g.input("x", shape), g.weights(weights), g.weights(&weights[..1]));
        let mut given = attrs([("group", Attr::Int(weights[0] as i64))]);
        given.extend(others.iter().map(|(name, value)| (name.to_string(), value.clone())));
        let y = g.op_with("Conv", given, &[x, w, b]);
        g.output(y);
    }

    fn settings() -> Settings {
        Settings {
            channel_products: true,
            ..Default::default()
        }
    }

    fn becomes(mut g: Graph, layers: &str) {
        let passes: &[&Pass] = &[
            &PASS,
            &fold_constants::PASS,
            &merge_reshapes::PASS,
            &fold_batch_norm::PASS,
        ];
        g.becomes_by(passes, &settings(), layers);
    }

    #[test]
    fn a_convolution_of_one_pixel_and_one_channel_is_a_product_and_a_sum() {
        for (shape, weights, factors) in [
            ("n 6 5 w", vec![6, 1, 1, 1], "6, 1, 1"),
            ("2 6 5", vec![6, 1, 1], "6, 1"),
        ] {
            let mut g = Graph::new();
            grouped(&mut g, shape, &weights, &[]);
            let sizes = shape.replace(' ', ", ");
            becomes(
                g,
                &format!(
                    "%Conv: float32[{sizes}] = Mul(%x, float32[{factors}](...))\n%Conv~1: float32[{sizes}] = Add(%Conv, \
                     float32[{factors}](...))"
                ),
            );
        }
    }

    #[test]
    fn others_stay() {
        let stay = |shape: &str, weights: &[usize], others: &[(&str, Attr)]| {
            let mut g = Graph::new();
            grouped(&mut g, shape, weights, others);
            assert_eq!((PASS.apply)(&mut g.network, &settings()).unwrap(), 0);
        };
        stay("1 6 5 5", &[6, 1, 3, 3], &[]);
        stay("1 6 5 5", &[6, 1, 1, 1], &[("strides", Attr::Ints(vec![2, 2]))]);
        stay("1 6 5 5", &[6, 1, 1, 1], &[("pads", Attr::Ints(vec![1, 1, 0, 0]))]);
        stay("1 6 5 5", &[12, 1, 1, 1], &[("group", Attr::Int(6))]);
        let mut g = Graph::new();
        grouped(&mut g, "1 6 5 5", &[6, 1, 1, 1], &[]);
        assert_eq!((PASS.apply)(&mut g.network, &Settings::default()).unwrap(), 0);
    }

    #[test]
    fn what_follows_goes_into_it_first() {
        let mut g = Graph::new();
        let (x, w, s) = (g.input("x", "1 6 5 5"), g.weights(&[6, 1, 1, 1]), g.weights(&[6, 1, 1]));
        let conv = g.op_with("Conv", attrs([("group", Attr::Int(6))]), &[x, w]);
        let y = g.op("Mul", &[conv, s]);
        g.output(y);
        assert_eq!((PASS.apply)(&mut g.network, &settings()).unwrap(), 0);
        becomes(g, "%Conv: float32[1, 6, 5, 5] = Mul(%x, float32[6, 1, 1](...))");
    }
}
