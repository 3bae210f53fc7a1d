//! Moves scales and offsets per channel into the weights beside them.
//!
//! The new weights are written as layers on constants; `fold_constants` computes them and keeps the recipe. Nothing moves
//! that would overflow, vanish, or take part of what it is added to with it.

use super::build::Build;
use super::matching::{
    are_offsets, factors_within_range, input, is_bias, is_constant, only_given_by, output_type, scales_within_range,
};
use super::simplify::{has_shape, replace};
use super::{Found, Pass, rewrite, rule_if, rule_if_some};
use crate::error::Result;
use crate::network::attr::{Attr, Read, attrs};
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::op::Decomposition;
use crate::network::ops::batch_normalization;
use crate::network::patch::Patch;
use crate::network::{Layer, LayerId, Network, TensorId};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "fold_batch_norm",
    doc: "BatchNormalization => Mul -> Add; Conv, ConvTranspose, MatMul -> Mul or Div by a constant per output \
          channel => Conv, ...; Conv, ConvTranspose -> Add => Conv with bias; MatMul -> Add -> Mul, Div or Add => MatMul -> \
          Add; \
          Mul or Div -> Conv => Conv; Add -> Conv without padding => Conv",
    apply: |network, _| rewrite(network, rule),
};

fn rule(network: &Network, id: LayerId) -> Found<'_> {
    let layer = &network[id];
    match layer.op.name {
        "BatchNormalization" => batch_norm(network, id),
        "Mul" | "Div" | "Add" => after(network, id),
        "Conv" => before(network, layer),
        _ => Ok(None),
    }
}

/// BatchNormalization => Mul -> Add.
fn batch_norm(network: &Network, id: LayerId) -> Found<'_> {
    let layer = &network[id];
    rule_if!((1..5).all(|i| input(layer, i).is_some_and(|t| is_constant(network, t))));
    if let Some(patch) = behind_narrow(network, id)? {
        return Ok(Some(patch));
    }
    match layer.op.decomposition {
        Decomposition::WithoutKernel(decompose) => decompose(network, id).map(Some),
        _ => Ok(None),
    }
}

/// Conv, ConvTranspose -> BatchNormalization => Conv with bias, in 16 bits: a factor that was rounded to these before it scales
/// the weights would be off for a whole channel.
fn behind_narrow(network: &Network, id: LayerId) -> Found<'_> {
    let norm = &network[id];
    rule_if_some!(x = input(norm, 0));
    let dtype = network[x].ty.dtype;
    rule_if!(dtype.is_float() && dtype.size() == 2);
    rule_if_some!(inner = weighted(network, x));
    rule_if!(inner.layer.op.name != "MatMul" && norm_within_range(network, norm, &inner));
    let (mut patch, [factor, shift]) = batch_normalization::factors(network, id, inner.bias)?;
    if let Some((inner, _)) = network.producer(x) {
        patch.absorb(inner);
    }
    let weights = scale_outputs(&mut patch, &inner, "Mul", factor)?;
    let inputs = [inner.x, weights, patch.cast(shift, dtype)?].map(Some);
    let conv = patch.add_named("", inner.layer.op, inner.layer.attrs.clone(), &inputs)?;
    patch.shunt(norm.outputs[0], conv[0])?;
    Ok(Some(patch))
}

/// Whether a normalization has a factor and an offset for each channel that weights and a bias of 16 bits can take.
fn norm_within_range(network: &Network, norm: &Layer, inner: &Weighted) -> bool {
    let numbers = |t: TensorId| -> Option<Vec<f64>> { Some(network[t].constant()?.f64s().collect()) };
    let parameters: Vec<Vec<f64>> = (1..5).filter_map(|i| numbers(input(norm, i)?)).collect();
    let ([scale, offset, mean, var], Some(weights)) = (&parameters[..], network[inner.weights].constant()) else {
        return false;
    };
    let bias = inner.bias.and_then(numbers).unwrap_or_else(|| vec![0.0; mean.len()]);
    let count = &network[inner.layer.outputs[0]].ty.shape[inner.axis];
    let factor = |c: usize| scale[c] / (var[c] + norm.attrs.float("epsilon")).sqrt();
    let shift = |c: usize| offset[c] + (bias[c] - mean[c]) * factor(c);
    let dtype = weights.dtype();
    [scale, offset, mean, var, &bias]
        .iter()
        .all(|each| count.is(each.len() as i64))
        && factors_within_range(weights, (0..mean.len()).map(factor))
        && are_offsets(dtype, (0..mean.len()).map(shift))
        && are_offsets(dtype, bias.iter().copied())
}

/// Weights are computed in float32 at least, and rounded once.
fn widened(patch: &mut Patch, t: TensorId) -> Result<TensorId> {
    let dtype = patch.ty(t).dtype;
    patch.cast(t, if dtype.size() < 4 { DType::Float32 } else { dtype })
}

/// A layer with constant weights, and where its output channels are.
struct Weighted<'n> {
    layer: &'n Layer,
    x: TensorId,
    weights: TensorId,
    bias: Option<TensorId>,
    /// The axis of the channels in the output.
    axis: usize,
}

fn weighted(network: &Network, output: TensorId) -> Option<Weighted<'_>> {
    let layer = ["Conv", "ConvTranspose", "MatMul"]
        .iter()
        .find_map(|op| only_given_by(network, output, op))?;
    let (x, weights, bias) = (input(layer, 0)?, input(layer, 1)?, input(layer, 2));
    let rank = network[output].ty.rank();
    let is_matmul = layer.op.name == "MatMul";
    let fits = is_constant(network, weights)
        && bias.is_none_or(|b| is_constant(network, b))
        && (!is_matmul || (network[weights].ty.rank() == 2 && network[x].ty.rank() >= 2));
    fits.then_some(Weighted {
        layer,
        x,
        weights,
        bias,
        axis: if is_matmul { rank - 1 } else { 1 },
    })
}

/// Conv -> Mul => Conv; Conv -> Add => Conv; MatMul -> Mul => MatMul; MatMul -> Add -> Mul => MatMul -> Add; Div as Mul.
fn after(network: &Network, id: LayerId) -> Found<'_> {
    let layer = &network[id];
    rule_if_some!((y, constant) = input(layer, 0).zip(input(layer, 1)));
    rule_if!(is_constant(network, constant) && network[y].ty.dtype.is_float());
    let scale = Some(layer.op.name).filter(|&op| op != "Add");
    if let Some(shifted) = only_given_by(network, y, "Add") {
        return match scale {
            Some(op) => after_add(network, layer, shifted, op, constant),
            None => both_offsets(network, layer, shifted, constant),
        };
    }
    rule_if_some!(inner = weighted(network, y));
    rule_if!(is_per_channel(network, constant, id, inner.axis));
    rule_if!(match scale {
        Some(op) => scales_within_range(network, inner.weights, op, constant),
        None =>
            inner.layer.op.name != "MatMul"
                && [Some(constant), inner.bias]
                    .iter()
                    .flatten()
                    .all(|&b| is_bias(network, b)),
    });
    replace(network, layer, |patch| {
        if let Some((inner, _)) = network.producer(y) {
            patch.absorb(inner);
        }
        let (mut weights, mut bias) = (inner.weights, inner.bias);
        if let Some(op) = scale {
            weights = scale_outputs(patch, &inner, op, constant)?;
            let flat = channels(patch, constant)?;
            bias = bias.map(|b| combine(patch, op, b, flat)).transpose()?;
        } else {
            let flat = channels(patch, constant)?;
            let count = network[y].ty.shape[1].clone();
            bias = Some(match bias {
                Some(b) => combine(patch, "Add", b, flat)?,
                None if patch.ty(flat).shape[0] == count => flat,
                None => {
                    let shape = patch.dims(&[count]);
                    patch.op("Expand", &[flat, shape])?
                }
            });
        }
        let mut inputs = vec![Some(inner.x), Some(weights)];
        inputs.extend(bias.map(Some));
        Ok(Some(
            patch.add_named("", inner.layer.op, inner.layer.attrs.clone(), &inputs)?[0],
        ))
    })
}

/// (y + b) * c => y * c + b * c, where the product can go into the weights that give y; the same for a quotient.
fn after_add<'n>(network: &'n Network, layer: &Layer, shifted: &Layer, op: &str, c: TensorId) -> Found<'n> {
    rule_if_some!((y, b) = input(shifted, 0).zip(input(shifted, 1)));
    rule_if_some!(inner = weighted(network, y));
    let (rank, axis) = (network[y].ty.rank(), inner.axis);
    rule_if!(is_constant(network, b) && is_bias(network, b) && has_shape(network, c, rank, |a| a == axis));
    rule_if!(scales_within_range(network, inner.weights, op, c) && scales_within_range(network, b, op, c));
    replace(network, layer, |patch| {
        let scaled = patch.op(op, &[y, c])?;
        let shift = combine(patch, op, b, c)?;
        patch.op("Add", &[scaled, shift]).map(Some)
    })
}

/// (y + b) + c => y + (b + c), where a product gives y, whose bias that is then.
fn both_offsets<'n>(network: &'n Network, layer: &Layer, shifted: &Layer, c: TensorId) -> Found<'n> {
    rule_if_some!((y, b) = input(shifted, 0).zip(input(shifted, 1)));
    rule_if_some!(inner = weighted(network, y));
    let (rank, axis) = (network[y].ty.rank(), inner.axis);
    let fits = |t: TensorId| is_bias(network, t) && has_shape(network, t, rank, |a| a == axis);
    rule_if!(fits(b) && fits(c));
    replace(network, layer, |patch| {
        let both = combine(patch, "Add", b, c)?;
        patch.op("Add", &[y, both]).map(Some)
    })
}

/// Whether a constant differs along one axis of a layer's output alone.
fn is_per_channel(network: &Network, constant: TensorId, id: LayerId, axis: usize) -> bool {
    has_shape(network, constant, output_type(network, id).rank(), |a| a == axis)
}

/// A constant that differs along one axis alone as a vector.
fn channels(patch: &mut Patch, constant: TensorId) -> Result<TensorId> {
    let elements = patch.ty(constant).elements();
    patch.reshape(constant, &[elements])
}

/// `a op b`, computed in float32 at least.
fn combine(patch: &mut Patch, op: &str, a: TensorId, b: TensorId) -> Result<TensorId> {
    let dtype = patch.ty(a).dtype;
    let (a, b) = (widened(patch, a)?, widened(patch, b)?);
    let result = patch.op(op, &[a, b])?;
    patch.cast(result, dtype)
}

/// The weights with each output channel multiplied or divided by its constant.
fn scale_outputs(patch: &mut Patch, inner: &Weighted, op: &str, constant: TensorId) -> Result<TensorId> {
    let flat = channels(patch, constant)?;
    let shape = patch.ty(inner.weights).shape.clone();
    let count = patch.ty(flat).shape[0].clone();
    let attrs = &inner.layer.attrs;
    match inner.layer.op.name {
        "MatMul" => {
            let factor = if attrs.flag("transB") {
                patch.reshape(flat, &[count, 1i64.into()])?
            } else {
                flat
            };
            combine(patch, op, inner.weights, factor)
        }
        "Conv" => {
            let factor = patch.reshape(flat, &axis_shape(shape.len(), 0, count))?;
            combine(patch, op, inner.weights, factor)
        }
        // [C, M/group, kernel...]: the groups lie along C.
        _ => {
            let group = Dim::from(attrs.int("group"));
            let split = grouped(&shape, &group);
            let weights = patch.reshape(inner.weights, &split)?;
            let mut factor_shape = axis_shape(split.len(), 2, shape[1].clone());
            if count.is(1) {
                factor_shape[2] = 1i64.into();
            } else {
                factor_shape[0] = group;
            }
            let factor = patch.reshape(flat, &factor_shape)?;
            let scaled = combine(patch, op, weights, factor)?;
            patch.reshape(scaled, &shape)
        }
    }
}

/// Ones, but for one axis.
fn axis_shape(rank: usize, axis: usize, size: Dim) -> Vec<Dim> {
    let mut shape = vec![Dim::from(1i64); rank];
    shape[axis] = size;
    shape
}

/// [A, B, rest...] => [group, A / group, B, rest...].
fn grouped(shape: &[Dim], group: &Dim) -> Vec<Dim> {
    let mut split = vec![group.clone(), shape[0].floordiv(group)];
    split.extend_from_slice(&shape[1..]);
    split
}

/// Mul or Div -> Conv => Conv; Add -> Conv without padding => Conv.
fn before<'n>(network: &'n Network, conv: &Layer) -> Found<'n> {
    rule_if_some!((x, w) = input(conv, 0).zip(input(conv, 1)));
    rule_if_some!(
        layer = ["Mul", "Div", "Add"]
            .iter()
            .find_map(|op| only_given_by(network, x, op))
    );
    rule_if_some!((inner, constant) = input(layer, 0).zip(input(layer, 1)));
    let (rank, channels_in) = (network[x].ty.rank(), network[x].ty.shape[1].clone());
    rule_if!(is_constant(network, constant) && is_constant(network, w));
    rule_if!(has_shape(network, constant, rank, |a| a == 1) && network[inner].ty.shape == network[x].ty.shape);
    rule_if!(input(conv, 2).is_none_or(|b| is_constant(network, b)));
    // Padding is zeros, which a product keeps and a sum does not.
    let pads = conv.attrs.ints("pads").iter().all(|&p| p == 0);
    let padded_with_nothing = match conv.attrs.text("auto_pad") {
        "NOTSET" => pads,
        "VALID" => true,
        _ => false,
    };
    let scale = Some(layer.op.name).filter(|&op| op != "Add");
    rule_if!(match scale {
        Some(op) => scales_within_range(network, w, op, constant),
        None => padded_with_nothing && is_bias(network, constant),
    });
    replace(network, conv, |patch| {
        let shape = patch.ty(w).shape.clone();
        let group = Dim::from(conv.attrs.int("group"));
        let split = grouped(&shape, &group);
        // [group, M/group, C/group, kernel...]: the input channels are group x C/group.
        let mut factor_shape = vec![Dim::from(1i64); split.len()];
        let flat = channels(patch, constant)?;
        if patch.ty(flat).shape[0] == channels_in {
            factor_shape[0] = group;
            factor_shape[2] = shape[1].clone();
        }
        let factor = patch.reshape(flat, &factor_shape)?;
        let weights = patch.reshape(w, &split)?;
        let scaled = combine(patch, scale.unwrap_or("Mul"), weights, factor)?;
        let mut inputs = vec![Some(inner), Some(w), input(conv, 2)];
        if scale.is_some() {
            inputs[1] = Some(patch.reshape(scaled, &shape)?);
        } else {
            let axes = (2..split.len() as i64).collect();
            let wide = widened(patch, scaled)?;
            let sums = attrs([("axes", Attr::Ints(axes)), ("keepdims", Attr::Int(0))]);
            let sums = patch.op_with("ReduceSum", sums, &[wide])?;
            let sums = patch.reshape(sums, &shape[..1])?;
            let sums = patch.cast(sums, patch.ty(w).dtype)?;
            inputs[2] = Some(match input(conv, 2) {
                Some(bias) => combine(patch, "Add", bias, sums)?,
                None => sums,
            });
        }
        if inputs[2].is_none() {
            inputs.pop();
        }
        Ok(Some(patch.add_named("", conv.op, conv.attrs.clone(), &inputs)?[0]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::testing::Graph;
    use crate::passes::{Settings, fold_constants};

    fn folds(g: &mut Graph, layers: &str) {
        g.becomes_by(&[&PASS, &fold_constants::PASS], &Settings::default(), layers);
    }

    fn norm(g: &mut Graph, x: TensorId, channels: usize) -> TensorId {
        let parts = [
            g.weights(&[channels]),
            g.weights(&[channels]),
            g.weights(&[channels]),
            g.positive(&[channels]),
        ];
        g.op("BatchNormalization", &[x, parts[0], parts[1], parts[2], parts[3]])
    }

    const PADDED: &str = "{auto_pad=NOTSET, dilations=[], group=1, pads=[1, 1, 1, 1], strides=[]}";

    #[test]
    fn conv_with_batch_norm_is_a_conv_and_keeps_the_recipe() {
        let mut g = Graph::new();
        let x = g.input("x", "n 2 h 4");
        let w = g.weights(&[3, 2, 3, 3]);
        let y = g.op_with("Conv", attrs([("pads", Attr::Ints(vec![1; 4]))]), &[x, w]);
        let y = norm(&mut g, y, 3);
        g.output(y);
        folds(
            &mut g,
            &format!("%Conv: float32[n, 3, h, 4] = Conv(%x, float32[3, 2, 3, 3](...), float32[3](...)) {PADDED}"),
        );
        let (_, conv) = g.network.layers().next().unwrap();
        let crate::network::Source::Constant(weights) = &g.network[conv.inputs[1].unwrap()].source else {
            panic!("not folded")
        };
        let again = weights.replay(&|_| None).unwrap();
        assert_eq!(again, weights.array);
        assert_eq!(conv.sources, ["Conv", "BatchNormalization"]);
    }

    #[test]
    fn groups_and_transposed_convolutions_fold() {
        for group in [1usize, 2] {
            let mut g = Graph::new();
            let x = g.input("x", "n 4 3 3");
            let (w, b) = (g.weights(&[4, 6 / group, 2, 2]), g.weights(&[6]));
            let y = g.op_with("ConvTranspose", attrs([("group", Attr::Int(group as i64))]), &[x, w, b]);
            let y = norm(&mut g, y, 6);
            g.output(y);
            let before = g.network.clone();
            let passes: &[&Pass] = &[&PASS, &fold_constants::PASS];
            for pass in passes.iter().cycle().take(6) {
                (pass.apply)(&mut g.network, &Settings::default()).unwrap();
            }
            assert_eq!(g.network.layer_count(), 1);
            crate::passes::testing::assert_same(&before, &g.network);
        }
    }

    #[test]
    fn matmul_takes_the_scale_and_leaves_one_offset() {
        let mut g = Graph::new();
        let x = g.input("x", "n 5 4");
        let (w, b, c, d) = (g.weights(&[4, 3]), g.weights(&[3]), g.weights(&[3]), g.weights(&[3]));
        let y = g.op("MatMul", &[x, w]);
        let y = g.op("Add", &[y, b]);
        let y = g.op("Mul", &[y, c]);
        let y = g.op("Add", &[y, d]);
        g.output(y);
        g.becomes_by(
            &[&PASS, &fold_constants::PASS, &crate::passes::simplify::PASS],
            &Settings::default(),
            "
            %MatMul: float32[n, 5, 3] = MatMul(%x, float32[4, 3](...)) {transA=0, transB=0}
            %Add: float32[n, 5, 3] = Add(%MatMul, float32[3](...))",
        );
    }

    #[test]
    fn what_comes_before_a_conv_folds_if_the_padding_allows() {
        for (pads, group, left) in [(0, 1, 1), (0, 2, 1), (1, 1, 2), (1, 2, 2)] {
            let mut g = Graph::new();
            let x = g.input("x", "n 4 5 5");
            let (scale, shift) = (g.weights(&[4, 1, 1]), g.weights(&[1, 4, 1, 1]));
            let y = g.op("Mul", &[x, scale]);
            let y = g.op("Relu", &[y]);
            let y = g.op("Add", &[y, shift]);
            let w = g.weights(&[6, 4 / group, 3, 3]);
            let conv = attrs([("pads", Attr::Ints(vec![pads; 4])), ("group", Attr::Int(group as i64))]);
            let y = g.op_with("Conv", conv, &[y, w]);
            g.output(y);
            let before = g.network.clone();
            (PASS.apply)(&mut g.network, &Settings::default()).unwrap();
            (fold_constants::PASS.apply)(&mut g.network, &Settings::default()).unwrap();
            assert_eq!(g.network.layer_count(), 2 + left, "pads {pads}, group {group}");
            crate::passes::testing::assert_same(&before, &g.network);
        }
    }

    #[test]
    fn a_product_before_a_padded_conv_folds() {
        let mut g = Graph::new();
        let x = g.input("x", "n 2 4 4");
        let (scale, w) = (g.weights(&[2, 1, 1]), g.weights(&[3, 2, 3, 3]));
        let y = g.op("Mul", &[x, scale]);
        let y = g.op_with("Conv", attrs([("pads", Attr::Ints(vec![1; 4]))]), &[y, w]);
        g.output(y);
        folds(
            &mut g,
            &format!("%Conv: float32[n, 3, 4, 4] = Conv(%x, float32[3, 2, 3, 3](...)) {PADDED}"),
        );
    }

    #[test]
    fn a_conv_that_others_read_keeps_its_weights() {
        let mut g = Graph::new();
        let x = g.input("x", "n 2 4 4");
        let w = g.weights(&[3, 2, 1, 1]);
        let y = g.op("Conv", &[x, w]);
        let z = norm(&mut g, y, 3);
        g.output(y);
        g.output(z);
        let plain = "{auto_pad=NOTSET, dilations=[], group=1, pads=[], strides=[]}";
        folds(
            &mut g,
            &format!(
                "
                %Conv: float32[n, 3, 4, 4] = Conv(%x, float32[3, 2, 1, 1](...)) {plain}
                %BatchNormalization: float32[n, 3, 4, 4] = Mul(%Conv, float32[3, 1, 1](...))
                %BatchNormalization~1: float32[n, 3, 4, 4] = Add(%BatchNormalization, float32[3, 1, 1](...))"
            ),
        );
    }
}
