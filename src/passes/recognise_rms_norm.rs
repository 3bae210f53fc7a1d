//! Finds RMSNormalization in the pieces that exporters write it in.

use super::build::Build;
use super::matching::{either_order, input, is_constant, only_given_by, padded, shifted};
use super::recognise_layer_norm::{deviation, is_square, last_axes, shaped, with_scale_one};
use super::simplify::replace;
use super::{Found, Pass, rewrite, rule_if, rule_if_some};
use crate::network::{Layer, LayerId, Network};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "recognise_rms_norm",
    doc: "x / Sqrt(ReduceMean(x*x) + epsilon) => RMSNormalization; RMSNormalization -> Mul by a constant of the \
          normalised shape => RMSNormalization",
    apply: |network, _| rewrite(network, rule),
};

fn rule(network: &Network, id: LayerId) -> Found<'_> {
    let layer = &network[id];
    match layer.op.name {
        "Div" => normalisation(network, layer),
        "Mul" => match normalisation(network, layer)? {
            None => scale(network, layer),
            found => Ok(found),
        },
        _ => Ok(None),
    }
}

/// x / sqrt(mean of squares + epsilon) => RMSNormalization with scale 1.
fn normalisation<'n>(network: &'n Network, layer: &Layer) -> Found<'n> {
    rule_if_some!((x, variance) = deviation(network, layer));
    rule_if_some!((mean, epsilon) = only_given_by(network, variance, "Add").and_then(|sum| shifted(network, sum)));
    rule_if_some!(mean = only_given_by(network, mean, "ReduceMean"));
    rule_if_some!(square = input(mean, 0).filter(|&t| network.sole_user(t).is_some()));
    rule_if!(is_square(network, square, x));
    rule_if_some!(axis = last_axes(network, mean));
    with_scale_one(network, layer, "RMSNormalization", x, axis, epsilon)
}

/// RMSNormalization -> Mul => RMSNormalization.
fn scale<'n>(network: &'n Network, layer: &Layer) -> Found<'n> {
    let found = either_order(layer)
        .into_iter()
        .find_map(|(y, c)| Some((only_given_by(network, y, "RMSNormalization")?, c)));
    rule_if_some!((norm, factor) = found);
    rule_if_some!((x, scale) = input(norm, 0).zip(input(norm, 1)));
    let rank = network[x].ty.rank();
    let same = padded(&network[factor].ty.shape, rank) == padded(&network[scale].ty.shape, rank);
    rule_if!(is_constant(network, scale) && is_constant(network, factor) && same);
    replace(network, layer, |patch| {
        let factor = shaped(patch, factor, scale)?;
        let scale = patch.op("Mul", &[scale, factor])?;
        patch
            .op_with("RMSNormalization", norm.attrs.clone(), &[x, scale])
            .map(Some)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::passes::testing::Graph;
    use crate::passes::{Settings, fold_constants, simplify};

    /// As llama (a reciprocal), T5 (one over it) and others (a quotient) write it.
    fn pieces(how: &str, others_read: bool) -> Graph {
        let mut g = Graph::new();
        let x = g.input("x", "n t 4");
        let two = g.scalar(2.0);
        let square = g.op("Pow", &[x, two]);
        let last = attrs([("axes", Attr::Ints(vec![-1])), ("keepdims", Attr::Int(1))]);
        let mean = g.op_with("ReduceMean", last, &[square]);
        let epsilon = g.scalar(0.5);
        let mean = g.op("Add", &[mean, epsilon]);
        let root = g.op("Sqrt", &[mean]);
        let y = match how {
            "Reciprocal" => {
                let inverse = g.op("Reciprocal", &[root]);
                g.op("Mul", &[x, inverse])
            }
            "one over" => {
                let one = g.scalar(1.0);
                let inverse = g.op("Div", &[one, root]);
                g.op("Mul", &[inverse, x])
            }
            _ => g.op("Div", &[x, root]),
        };
        let weight = g.weights(&[4]);
        let y = g.op("Mul", &[weight, y]);
        g.output(y);
        if others_read {
            g.output(mean);
        }
        g
    }

    #[test]
    fn the_pieces_with_a_scale_become_one_layer() {
        for how in ["Reciprocal", "one over", "quotient"] {
            pieces(how, false).becomes_by(
                &[&PASS, &fold_constants::PASS, &simplify::PASS],
                &Settings::default(),
                "%Mul: float32[n, t, 4] = RMSNormalization(%x, float32[4](...)) {axis=2, epsilon=0.5, stash_type=1}",
            );
        }
    }

    #[test]
    fn a_mean_that_others_read_keeps_the_pieces() {
        let mut g = pieces("quotient", true);
        assert_eq!((PASS.apply)(&mut g.network, &Settings::default()).unwrap(), 0);
    }
}
