//! Finds LayerNormalization in the pieces that exporters write it in.

use super::build::Build;
use super::matching::{either_order, given_by, input, is_constant, only_given_by, padded, shifted, uniform};
use super::simplify::replace;
use super::{Found, Pass, rewrite, rule_if, rule_if_some};
use crate::error::Result;
use crate::network::array::{Array, bytes_of};
use crate::network::attr::{Attr, Read, attrs};
use crate::network::patch::Patch;
use crate::network::{Layer, LayerId, Network, TensorId};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "recognise_layer_norm",
    doc: "d = x - ReduceMean(x); d / Sqrt(ReduceMean(d*d) + epsilon) => LayerNormalization; \
          x * s + (bias - mean * s), x * s + (-mean * s + bias), s = scale / Sqrt(ReduceMean(d*d) + epsilon) \
          => LayerNormalization; \
          LayerNormalization -> Mul, Add by constants of the normalised shape => LayerNormalization",
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
        "Add" => match expanded(network, layer)? {
            None => offset(network, layer),
            found => Ok(found),
        },
        _ => Ok(None),
    }
}

/// (x - mean) / sqrt(variance + epsilon) => LayerNormalization with scale 1.
fn normalisation<'n>(network: &'n Network, layer: &Layer) -> Found<'n> {
    rule_if_some!((centred, variance) = deviation(network, layer));
    rule_if_some!((variance, epsilon) = only_given_by(network, variance, "Add").and_then(|sum| shifted(network, sum)));
    rule_if_some!(mean_of_squares = only_given_by(network, variance, "ReduceMean"));
    rule_if_some!(square = input(mean_of_squares, 0));
    rule_if!(is_square(network, square, centred) && network.sole_user(square).is_some());
    rule_if_some!((difference, _) = given_by(network, centred, "Sub").and_then(|l| input(l, 0).zip(input(l, 1))));
    rule_if_some!(mean = given_by(network, centred, "Sub").and_then(|l| input(l, 1)));
    rule_if_some!(mean = only_given_by(network, mean, "ReduceMean"));
    let x = difference;
    rule_if!(input(mean, 0) == Some(x));
    let (Some(axis), Some(other)) = (last_axes(network, mean), last_axes(network, mean_of_squares)) else {
        return Ok(None);
    };
    rule_if!(axis == other && is_read_by_norm_alone(network, centred, layer));
    with_scale_one(network, layer, "LayerNormalization", x, axis, epsilon)
}

/// A scale of ones with more bytes than this costs more than the kernel of the normalisation saves.
const LARGEST_SCALE: usize = 16 << 20;

/// A normalisation of x over its axes from `axis` on, in the place of a layer; their extents must be numbers.
pub(super) fn with_scale_one<'n>(
    network: &'n Network,
    layer: &Layer,
    op: &str,
    x: TensorId,
    axis: usize,
    epsilon: f64,
) -> Found<'n> {
    let ty = &network[x].ty;
    let extents = ty.shape[axis..].iter().map(|d| d.as_const().map(|v| v as usize));
    rule_if_some!(shape = extents.collect::<Option<Vec<_>>>());
    let dtype = ty.dtype;
    rule_if!(bytes_of(dtype, &shape).is_ok_and(|bytes| bytes <= LARGEST_SCALE));
    replace(network, layer, |patch| {
        let scale = patch.constant(Array::full(dtype, shape, 1.0)?);
        let given = attrs([("axis", Attr::Int(axis as i64)), ("epsilon", Attr::Float(epsilon))]);
        patch.op_with(op, given, &[x, scale]).map(Some)
    })
}

/// d / Sqrt(v), d * Reciprocal(Sqrt(v)) and how else one may write it: gives d and v.
pub(super) fn deviation(network: &Network, layer: &Layer) -> Option<(TensorId, TensorId)> {
    if layer.op.name == "Div" {
        return Some((input(layer, 0)?, root(network, input(layer, 1)?)?));
    }
    either_order(layer)
        .into_iter()
        .find_map(|(d, r)| Some((d, inverse_root(network, r)?)))
}

/// Sqrt(v), v**0.5: gives v.
fn root(network: &Network, t: TensorId) -> Option<TensorId> {
    let root = only_given_by(network, t, "Sqrt").or_else(|| power(network, t, 0.5))?;
    input(root, 0)
}

/// Reciprocal(Sqrt(v)), 1 / Sqrt(v), v**-0.5: gives v.
fn inverse_root(network: &Network, t: TensorId) -> Option<TensorId> {
    let one_over = |l: &Layer| input(l, 1).filter(|_| input(l, 0).and_then(|t| uniform(network, t)) == Some(1.0));
    let reciprocal = only_given_by(network, t, "Reciprocal").and_then(|l| input(l, 0));
    let quotient = || only_given_by(network, t, "Div").and_then(one_over);
    match reciprocal.or_else(quotient) {
        Some(inner) => root(network, inner),
        None => power(network, t, -0.5).and_then(|l| input(l, 0)),
    }
}

pub(super) fn power(network: &Network, t: TensorId, exponent: f64) -> Option<&Layer> {
    only_given_by(network, t, "Pow").filter(|l| input(l, 1).and_then(|e| uniform(network, e)) == Some(exponent))
}

pub(super) fn is_square(network: &Network, square: TensorId, of: TensorId) -> bool {
    let product = given_by(network, square, "Mul").is_some_and(|l| l.inputs == [Some(of), Some(of)]);
    product || power(network, square, 2.0).is_some_and(|l| input(l, 0) == Some(of))
}

/// The first of the axes that a reduction reduces, when they are the last ones and stay as 1.
pub(super) fn last_axes(network: &Network, reduction: &Layer) -> Option<usize> {
    let ty = &network[input(reduction, 0)?].ty;
    let axes = reduction.attrs.ints("axes").iter().map(|&a| ty.axis(a).ok());
    let mut axes = axes.collect::<Option<Vec<_>>>()?;
    axes.sort_unstable();
    let first = *axes.first()?;
    let fits = reduction.attrs.flag("keepdims") && axes.into_iter().eq(first..ty.rank());
    fits.then_some(first)
}

/// Whether only the square and the division read the difference, so that nothing of it is left.
fn is_read_by_norm_alone(network: &Network, centred: TensorId, last: &Layer) -> bool {
    let is_last = |user: &LayerId| network[*user].outputs == last.outputs;
    let is_square_of = |user: &LayerId| is_square(network, network[*user].outputs[0], centred);
    !network.is_output(centred) && network[centred].users.iter().all(|u| is_last(u) || is_square_of(u))
}

/// bias - mean * s as TensorFlow writes it, -mean * s + bias as Keras does: gives the product, the bias, and whether the
/// mean is negated.
fn shift(network: &Network, rest: TensorId) -> Option<(&Layer, TensorId, bool)> {
    if let Some(difference) = only_given_by(network, rest, "Sub") {
        let product = only_given_by(network, input(difference, 1)?, "Mul")?;
        return Some((product, input(difference, 0)?, false));
    }
    let sum = only_given_by(network, rest, "Add")?;
    let product = |(product, bias)| Some((only_given_by(network, product, "Mul")?, bias, true));
    either_order(sum).into_iter().find_map(product)
}

/// x * s + (bias - mean * s) with s = scale / sqrt(variance + epsilon) => LayerNormalization.
fn expanded<'n>(network: &'n Network, layer: &Layer) -> Found<'n> {
    let found = either_order(layer).into_iter().find_map(|(product, rest)| {
        let (shifted, bias, negated) = shift(network, rest)?;
        Some((only_given_by(network, product, "Mul")?, shifted, bias, negated))
    });
    rule_if_some!((product, shifted_mean, bias, negated) = found);
    // The factor is what both products have.
    let sides = either_order(product).into_iter().find_map(|(x, factor)| {
        let (mean, _) = either_order(shifted_mean).into_iter().find(|(_, f)| *f == factor)?;
        let mean = match negated {
            true => input(only_given_by(network, mean, "Neg")?, 0)?,
            false => mean,
        };
        Some((x, factor, mean))
    });
    rule_if_some!((x, factor, mean) = sides);
    rule_if!(network[factor].users.len() == 2 && !network.is_output(factor));
    let factors = given_by(network, factor, "Mul").and_then(|l| {
        let found = either_order(l)
            .into_iter()
            .find(|(_, scale)| is_constant(network, *scale));
        found.and_then(|(root, scale)| Some((inverse_root(network, root)?, scale)))
    });
    rule_if_some!((variance, scale) = factors);
    rule_if_some!((variance, epsilon) = only_given_by(network, variance, "Add").and_then(|sum| shifted(network, sum)));
    rule_if_some!(mean_of_squares = only_given_by(network, variance, "ReduceMean"));
    rule_if_some!(square = input(mean_of_squares, 0));
    let centred = network.producer(square).and_then(|(_, l)| input(l, 0));
    rule_if_some!(centred = centred.filter(|&d| is_square(network, square, d)));
    rule_if_some!(difference = given_by(network, centred, "Sub"));
    rule_if!(difference.inputs == [Some(x), Some(mean)]);
    rule_if_some!(mean = given_by(network, mean, "ReduceMean").filter(|mean| input(mean, 0) == Some(x)));
    let (axis, other) = (last_axes(network, mean), last_axes(network, mean_of_squares));
    rule_if_some!(axis = axis.filter(|_| axis == other));
    let (normalised, rank) = (&network[x].ty.shape[axis..], network[x].ty.rank());
    let fits = |t: TensorId| is_constant(network, t) && padded(&network[t].ty.shape, rank) == padded(normalised, rank);
    rule_if!(fits(scale) && fits(bias));
    replace(network, layer, |patch| {
        let [scale, bias] = [patch.reshape(scale, normalised)?, patch.reshape(bias, normalised)?];
        let given = attrs([("axis", Attr::Int(axis as i64)), ("epsilon", Attr::Float(epsilon))]);
        patch.op_with("LayerNormalization", given, &[x, scale, bias]).map(Some)
    })
}

/// LayerNormalization without bias -> Mul => LayerNormalization.
fn scale<'n>(network: &'n Network, layer: &Layer) -> Found<'n> {
    rule_if_some!((norm, factor) = normalised(network, layer));
    rule_if_some!((x, scale) = input(norm, 0).zip(input(norm, 1)));
    rule_if!(is_constant(network, scale));
    replace(network, layer, |patch| {
        let factor = shaped(patch, factor, scale)?;
        let scale = patch.op("Mul", &[scale, factor])?;
        Ok(Some(
            patch.op_full("LayerNormalization", norm.attrs.clone(), &[Some(x), Some(scale)])?[0],
        ))
    })
}

/// LayerNormalization without bias -> Add => LayerNormalization.
fn offset<'n>(network: &'n Network, layer: &Layer) -> Found<'n> {
    rule_if_some!((norm, bias) = normalised(network, layer));
    rule_if_some!((x, scale) = input(norm, 0).zip(input(norm, 1)));
    replace(network, layer, |patch| {
        let bias = shaped(patch, bias, scale)?;
        let inputs = [Some(x), Some(scale), Some(bias)];
        Ok(Some(
            patch.op_full("LayerNormalization", norm.attrs.clone(), &inputs)?[0],
        ))
    })
}

/// A LayerNormalization without bias that only this layer reads, and a constant of the normalised shape beside it.
fn normalised<'n>(network: &'n Network, layer: &Layer) -> Option<(&'n Layer, TensorId)> {
    let (norm, constant) = either_order(layer)
        .into_iter()
        .find_map(|(y, c)| Some((only_given_by(network, y, "LayerNormalization")?, c)))?;
    let scale = input(norm, 1)?;
    let rank = network[input(norm, 0)?].ty.rank();
    let want = padded(&network[scale].ty.shape, rank);
    let fits = is_constant(network, constant) && padded(&network[constant].ty.shape, rank) == want;
    (fits && input(norm, 2).is_none() && norm.outputs.len() == 1).then_some((norm, constant))
}

pub(super) fn shaped(patch: &mut Patch, constant: TensorId, like: TensorId) -> Result<TensorId> {
    let shape = patch.ty(like).shape.clone();
    patch.reshape(constant, &shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::testing::Graph;
    use crate::passes::{Settings, fold_constants, simplify};

    fn pieces(g: &mut Graph, x: TensorId, by_power: bool) -> TensorId {
        let mean = |g: &mut Graph, x| {
            let attributes = attrs([("axes", Attr::Ints(vec![-1])), ("keepdims", Attr::Int(1))]);
            g.op_with("ReduceMean", attributes, &[x])
        };
        let average = mean(g, x);
        let d = g.op("Sub", &[x, average]);
        let square = if by_power {
            let two = g.scalar(2.0);
            g.op("Pow", &[d, two])
        } else {
            g.op("Mul", &[d, d])
        };
        let variance = mean(g, square);
        let epsilon = g.scalar(0.5);
        let variance = g.op("Add", &[variance, epsilon]);
        let root = g.op("Sqrt", &[variance]);
        g.op("Div", &[d, root])
    }

    #[test]
    fn the_pieces_with_scale_and_bias_become_one_layer() {
        for by_power in [false, true] {
            let mut g = Graph::new();
            let x = g.input("x", "n t 4");
            let y = pieces(&mut g, x, by_power);
            let (scale, bias) = (g.weights(&[4]), g.weights(&[4]));
            let y = g.op("Mul", &[y, scale]);
            let y = g.op("Add", &[y, bias]);
            g.output(y);
            g.becomes_by(
                &[&PASS, &fold_constants::PASS, &simplify::PASS],
                &Settings::default(),
                "%Add: float32[n, t, 4] = LayerNormalization(%x, float32[4](...), float32[4](...)) {axis=2, epsilon=0.5, stash_type=1}",
            );
        }
    }

    #[test]
    fn a_norm_whose_mean_is_taken_off_last_becomes_one_layer() {
        for negated in [false, true] {
            let mut g = Graph::new();
            let x = g.input("x", "n t 4");
            let last = || attrs([("axes", Attr::Ints(vec![-1])), ("keepdims", Attr::Int(1))]);
            let mean = g.op_with("ReduceMean", last(), &[x]);
            let d = g.op("Sub", &[x, mean]);
            let square = g.op("Mul", &[d, d]);
            let variance = g.op_with("ReduceMean", last(), &[square]);
            let epsilon = g.scalar(0.5);
            let variance = g.op("Add", &[variance, epsilon]);
            let root = g.op("Sqrt", &[variance]);
            let root = g.op("Reciprocal", &[root]);
            let (scale, bias) = (g.weights(&[4]), g.weights(&[4]));
            let factor = g.op("Mul", &[root, scale]);
            let product = g.op("Mul", &[x, factor]);
            let shift = if negated {
                let less = g.op("Neg", &[mean]);
                let shift = g.op("Mul", &[less, factor]);
                g.op("Add", &[shift, bias])
            } else {
                let shift = g.op("Mul", &[mean, factor]);
                g.op("Sub", &[bias, shift])
            };
            let y = g.op("Add", &[product, shift]);
            g.output(y);
            g.becomes(
                &PASS,
                "%Add: float32[n, t, 4] = LayerNormalization(%x, float32[4](...), float32[4](...)) \
                 {axis=2, epsilon=0.5, stash_type=1}",
            );
        }
    }

    #[test]
    fn a_difference_that_others_read_keeps_the_pieces() {
        let mut g = Graph::new();
        let x = g.input("x", "n 4");
        let y = pieces(&mut g, x, false);
        let (_, sub) = g.network.layers().find(|(_, l)| l.op.name == "Sub").unwrap();
        let d = sub.outputs[0];
        g.output(d);
        g.output(y);
        assert_eq!((PASS.apply)(&mut g.network, &Settings::default()).unwrap(), 0);
    }
}
