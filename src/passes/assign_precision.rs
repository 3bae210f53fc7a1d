//! Makes a lower precision explicit: layers that bear it compute in it, between Casts.

use super::build::Build;
use super::matching::{given_by, input, is_constant, is_pointwise};
use super::{Found, Pass, Settings, rewrite_with, rule_if};
use crate::error::Result;
use crate::network::array::Array;
use crate::network::attr::Attr;
use crate::network::dtype::DType;
use crate::network::patch::Patch;
use crate::network::{Layer, LayerId, Network, TensorId};
use std::collections::BTreeMap;

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "assign_precision",
    doc: "float32 layer that bears Settings::compute => Casts -> layer -> Cast; inputs and outputs of the network keep \
          their dtypes, delicate layers stay float32, and so does the bias of a Conv that gives an output",
    apply: |network, settings| {
        if !matches!(settings.compute, DType::Float16 | DType::BFloat16) {
            return Ok(0);
        }
        rewrite_with(network, |network, id| {
            Ok(rule(network, id, settings)?.map(Patch::finish))
        })
    },
};

const CONVOLUTIONS: [&str; 2] = ["Conv", "ConvTranspose"];

/// Pointwise ops whose result moves far when the argument moves a little, or leaves the range.
#[rustfmt::skip]
const DELICATE: &[&str] = &[
    "Acosh", "Asinh", "Atanh", "Cast", "Ceil", "Cos", "Cosh", "DequantizeLinear", "Div", "Exp", "Floor", "Log", "Mod",
    "Pow", "Reciprocal", "Round", "Sin", "Sinh", "Sqrt", "Tan",
];

/// Ops beside the pointwise ones that bear it: they sum in wider numbers, or move elements.
#[rustfmt::skip]
const BEARERS: &[&str] = &[
    // Products and pooling.
    "Attention", "AveragePool", "Conv", "ConvTranspose", "Einsum", "GlobalAveragePool", "GlobalMaxPool", "GRU",
    "GridSample", "LpPool", "LSTM", "MatMul", "MaxPool", "Resize", "RNN",
    // Norms and reductions to a mean or an element.
    "BatchNormalization", "Gelu", "GroupNormalization", "InstanceNormalization", "LayerNormalization", "LogSoftmax",
    "LRN", "ReduceMax", "ReduceMean", "ReduceMin", "RMSNormalization", "Softmax",
    // Moves.
    "Concat", "DepthToSpace", "Expand", "Gather", "GatherElements", "GatherND", "Pad", "Reshape", "ScatterElements",
    "ScatterND", "Slice", "SpaceToDepth", "Split", "Tile", "Transpose", "Trilu", "Where",
];

fn rule<'n>(network: &'n Network, id: LayerId, settings: &Settings) -> Found<'n> {
    let layer = &network[id];
    let is_float32 = |t: &TensorId| network[*t].ty.dtype == DType::Float32;
    rule_if!(layer.outputs.iter().all(is_float32) && bears(network, layer, settings.compute));
    rule_if!(!adds_last_bias(network, layer));
    if let Some(bias) = last_bias(network, layer) {
        return bias_behind(network, layer, bias, settings.compute);
    }
    between_casts(network, layer, DType::Float32, settings.compute)
}

/// The constant bias of a convolution that gives a result of the network.
fn last_bias<'n>(network: &'n Network, layer: &Layer) -> Option<&'n Array> {
    let is_conv = CONVOLUTIONS.contains(&layer.op.name);
    let bias = input(layer, 2).filter(|_| is_conv && is_last(network, layer))?;
    network[bias].constant()
}

/// Conv with bias => Casts -> Conv -> Cast -> Add. The result is cast anyway, and a rounded bias would be off at every place
/// of it.
fn bias_behind<'n>(network: &'n Network, layer: &Layer, bias: &Array, to: DType) -> Found<'n> {
    let (mut patch, output) = (Patch::new(network), layer.outputs[0]);
    let operands = layer.inputs[..2].iter().flatten();
    let operands = operands.map(|&t| Ok(Some(patch.cast(t, to)?)));
    let operands = operands.collect::<Result<Vec<_>>>()?;
    let sums = patch.add_named("", layer.op, layer.attrs.clone(), &operands)?[0];
    let sums = patch.cast(sums, network[output].ty.dtype)?;
    let mut channels = vec![1; network[output].ty.rank()];
    channels[1] = bias.len();
    let bias = patch.constant(bias.reshaped(channels)?);
    let sums = patch.op("Add", &[sums, bias])?;
    patch.shunt(output, sums)?;
    Ok(Some(patch))
}

/// Whether a layer is the Add that [`bias_behind`] writes: an Add of a constant behind a Conv is a bias before this pass.
fn adds_last_bias(network: &Network, layer: &Layer) -> bool {
    let cast = input(layer, 0).and_then(|sums| given_by(network, sums, "Cast"));
    let source = cast.and_then(|cast| network.producer(input(cast, 0)?));
    let behind_conv = source.is_some_and(|(_, layer)| CONVOLUTIONS.contains(&layer.op.name));
    let constant = input(layer, 1).is_some_and(|t| is_constant(network, t));
    layer.op.name == "Add" && is_last(network, layer) && constant && behind_conv
}

/// Whether a layer gives a result of the network and nothing else.
fn is_last(network: &Network, layer: &Layer) -> bool {
    let output = layer.outputs[0];
    network.is_output(output) && network[output].users.is_empty()
}

fn bears(network: &Network, layer: &Layer, low: DType) -> bool {
    let by_kind = BEARERS.contains(&layer.op.name) || (is_pointwise(layer) && !DELICATE.contains(&layer.op.name));
    by_kind && cast_inputs(layer).all(|t| is_representable(network, t, low))
}

/// The inputs whose elements the layer computes with; the rest (scales of a Resize, ...) say how.
fn cast_inputs(layer: &Layer) -> impl Iterator<Item = TensorId> {
    let count = if layer.op.name == "Resize" {
        1
    } else {
        layer.inputs.len()
    };
    layer.inputs.iter().take(count).copied().flatten()
}

/// Whether no number of a constant leaves the range, and a single one does not vanish.
fn is_representable(network: &Network, tensor: TensorId, low: DType) -> bool {
    let Some(array) = network[tensor].constant() else {
        return true;
    };
    if low != DType::Float16 || array.dtype() != DType::Float32 {
        return true;
    }
    let fits = |v: f32| !v.is_finite() || v.abs() <= 65504.0;
    let vanishes = |v: f32| v != 0.0 && v.abs() < 6e-8;
    let mut values = array
        .bytes()
        .chunks_exact(4)
        .map(|c| f32::from_ne_bytes([c[0], c[1], c[2], c[3]]));
    match array.len() {
        1 => values.all(|v| fits(v) && !vanishes(v)),
        _ => values.all(fits),
    }
}

/// The layer with inputs and outputs of one dtype computed in another. Does not apply where it has none of them.
pub(super) fn between_casts<'n>(network: &'n Network, layer: &Layer, from: DType, to: DType) -> Found<'n> {
    let mut patch = Patch::new(network);
    let cast: Vec<_> = cast_inputs(layer).collect();
    let mut inputs = vec![];
    for &tensor in &layer.inputs {
        inputs.push(match tensor {
            Some(t) if network[t].ty.dtype == from && cast.contains(&t) => Some(patch.cast(t, to)?),
            tensor => tensor,
        });
    }
    let mut attrs = layer.attrs.clone();
    let typed = attrs.values_mut().filter(|attr| **attr == Attr::Type(from));
    typed.for_each(|attr| *attr = Attr::Type(to));
    rule_if!(inputs != layer.inputs);
    let outputs = patch.add_named("", layer.op, attrs, &inputs)?;
    for (&old, new) in layer.outputs.iter().zip(outputs) {
        let back = patch.cast(new, network[old].ty.dtype)?;
        rule_if!(patch.ty(back).shape == network[old].ty.shape);
        patch.shunt(old, back)?;
    }
    Ok(Some(patch))
}

/// How many layers give each dtype, Casts left out.
pub fn share(network: &Network) -> BTreeMap<DType, usize> {
    let mut share = BTreeMap::new();
    for (_, layer) in network.layers().filter(|(_, layer)| layer.op.name != "Cast") {
        if let Some(&output) = layer.outputs.first() {
            *share.entry(network[output].ty.dtype).or_default() += 1;
        }
    }
    share
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::testing::Graph;
    use crate::passes::{clean_casts, fold_constants};

    fn low(compute: DType) -> Settings {
        Settings {
            compute,
            ..Settings::default()
        }
    }

    #[test]
    fn layers_compute_low_between_casts_at_the_edges() {
        let mut g = Graph::new();
        let x = g.input("x", "n 2 4");
        let w = g.weights(&[4, 3]);
        let y = g.op("MatMul", &[x, w]);
        let y = g.op("Relu", &[y]);
        let y = g.op("Exp", &[y]);
        g.output(y);
        g.becomes_by(
            &[&PASS, &clean_casts::PASS, &fold_constants::PASS],
            &low(DType::BFloat16),
            "
            %MatMul: bfloat16[n, 2, 4] = Cast(%x) {round_mode=up, saturate=1, to=bfloat16}
            %MatMul~1: bfloat16[n, 2, 3] = MatMul(%MatMul, bfloat16[4, 3](...)) {transA=0, transB=0}
            %Relu: bfloat16[n, 2, 3] = Relu(%MatMul~1)
            %Relu~1: float32[n, 2, 3] = Cast(%Relu) {round_mode=up, saturate=1, to=float32}
            %Exp: float32[n, 2, 3] = Exp(%Relu~1)",
        );
        assert_eq!(share(&g.network), [(DType::Float32, 1), (DType::BFloat16, 2)].into());
    }

    #[test]
    fn the_bias_of_a_result_stays_wide() {
        let mut g = Graph::new();
        let x = g.input("x", "n 4 6 6");
        let (w, b) = (g.weights(&[4, 4, 3, 3]), g.weights(&[4]));
        let y = g.op("Conv", &[x, w, b]);
        let z = g.op("Conv", &[y, w, b]);
        g.output(z);
        g.becomes_by(
            &[&PASS, &clean_casts::PASS, &fold_constants::PASS],
            &low(DType::Float16),
            "
            %Conv: float16[n, 4, 6, 6] = Cast(%x) {round_mode=up, saturate=1, to=float16}
            %Conv~1: float16[n, 4, 4, 4] = Conv(%Conv, float16[4, 4, 3, 3](...), float16[4](...)) {auto_pad=NOTSET, dilations=[], group=1, pads=[], strides=[]}
            %Conv~2: float16[n, 4, 2, 2] = Conv(%Conv~1, float16[4, 4, 3, 3](...)) {auto_pad=NOTSET, dilations=[], group=1, pads=[], strides=[]}
            %Conv~3: float32[n, 4, 2, 2] = Cast(%Conv~2) {round_mode=up, saturate=1, to=float32}
            %Conv~4: float32[n, 4, 2, 2] = Add(%Conv~3, float32[1, 4, 1, 1](...))",
        );
    }

    #[test]
    fn numbers_out_of_range_keep_their_layer_wide() {
        for (value, dtype, count) in [
            (1e30, DType::Float16, 0),
            (1e-12, DType::Float16, 0),
            (1e30, DType::BFloat16, 1),
        ] {
            let mut g = Graph::new();
            let x = g.input("x", "n");
            let c = g.scalar(value);
            let y = g.op("Mul", &[x, c]);
            g.output(y);
            assert_eq!((PASS.apply)(&mut g.network, &low(dtype)).unwrap(), count);
        }
    }

    #[test]
    fn outputs_keep_name_and_dtype() {
        let mut g = Graph::new();
        let x = g.input("x", "n");
        let y = g.op("Relu", &[x]);
        let z = g.op("Sigmoid", &[y]);
        g.output(y);
        g.output(z);
        (PASS.apply)(&mut g.network, &low(DType::Float16)).unwrap();
        g.network.verify().unwrap();
        let outputs = g.network.outputs();
        assert!(outputs.iter().all(|o| g.network[o.tensor].ty.dtype == DType::Float32));
        assert_eq!(outputs[0].name, "y0");
    }
}
