//! Makes a lower precision explicit: lowerable layers compute in it, between Casts.

use super::build::Build;
use super::matching::{given_by, input, is_constant};
use super::{Found, Pass, plan_precision, rewrite_with, rule_if, rule_if_some};
use crate::error::Result;
use crate::network::array::Array;
use crate::network::attr::Attr;
use crate::network::dtype::DType;
use crate::network::patch::Patch;
use crate::network::{Layer, LayerId, Network};
use std::collections::BTreeMap;

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "assign_precision",
    doc: "float32 layer whose plan is a lower dtype => Casts -> layer -> Cast; inputs and outputs of the network keep their \
          dtypes, and the bias of a Conv that gives an output stays float32",
    apply: |network, _| {
        let lowered = plan_precision::lowered(network);
        rewrite_with(network, |network, id| {
            rule_if_some!(planned = lowered.get(&id));
            let found = match planned.clips_mask {
                true => with_mask_in_range(network, id, planned.dtype),
                false => rule(network, id, planned.dtype),
            };
            Ok(found?.map(Patch::finish))
        })
    },
};

/// Writes what the pass would lower so that float32 kernels compute it: what each such layer reads and gives is rounded, always.
/// Kernels of the lower precision round no more than that, and less where they go on with what they computed. Gives the
/// number of layers.
///
/// # Errors
/// If the network has a cycle.
pub fn emulate(network: &mut Network) -> Result<usize> {
    let lowered = plan_precision::lowered(network);
    rewrite_with(network, |network, id| {
        rule_if_some!(planned = lowered.get(&id));
        let kept = match planned.clips_mask {
            true => network[id].op.lowering.mask,
            false => last_bias(network, &network[id]).map(|_| 2),
        };
        Ok(Some(rounded(network, &network[id], planned.dtype, kept)?.finish()))
    })
}

/// A layer with what it reads, but for one input, and what it gives rounded to another dtype.
fn rounded<'n>(network: &'n Network, layer: &Layer, to: DType, kept: Option<usize>) -> Result<Patch<'n>> {
    let mut patch = Patch::new(network);
    let count = layer.op.lowering.operands;
    let mut inputs = layer.inputs.clone();
    for (at, input) in inputs.iter_mut().enumerate().take(count) {
        if let Some(tensor) = input.filter(|&t| network[t].ty.dtype == DType::Float32 && kept != Some(at)) {
            let low = patch.cast(tensor, to)?;
            *input = Some(patch.cast(low, DType::Float32)?);
        }
    }
    let outputs = patch.add_named("", layer.op, layer.attrs.clone(), &inputs)?;
    for (&old, new) in layer.outputs.iter().zip(outputs) {
        let low = patch.cast(new, to)?;
        let back = patch.cast(low, DType::Float32)?;
        patch.shunt(old, back)?;
    }
    Ok(patch)
}

const CONVOLUTIONS: [&str; 2] = ["Conv", "ConvTranspose"];

fn rule(network: &Network, id: LayerId, low: DType) -> Found<'_> {
    let layer = &network[id];
    rule_if!(!adds_last_bias(network, layer));
    if let Some(bias) = last_bias(network, layer) {
        return bias_behind(network, layer, bias, low);
    }
    between_casts(network, layer, DType::Float32, low)
}

/// Attention with a mask of -3.4e38 or so => Attention in 16 bits with the lowest number that they have: rounded, it would be
/// infinite, and a query that sees no key would give NaN.
fn with_mask_in_range(network: &Network, id: LayerId, low: DType) -> Found<'_> {
    let (layer, mut patch) = (&network[id], Patch::new(network));
    let mut inputs = layer.inputs.clone();
    let mask = layer.op.lowering.mask;
    if let Some((at, mask)) = mask.and_then(|at| Some((at, input(layer, at)?))) {
        let (_, most) = low.normal_range();
        inputs[at] = Some(patch.clip(mask, (-most, most))?);
    }
    for tensor in inputs.iter_mut().flatten() {
        *tensor = patch.placed_cast(*tensor, low)?;
    }
    let new = patch.add_named("", layer.op, layer.attrs.clone(), &inputs)?[0];
    let back = patch.placed_cast(new, network[layer.outputs[0]].ty.dtype)?;
    patch.shunt(layer.outputs[0], back)?;
    Ok(Some(patch))
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
    let operands = operands.map(|&t| Ok(Some(patch.placed_cast(t, to)?)));
    let operands = operands.collect::<Result<Vec<_>>>()?;
    let sums = patch.add_named("", layer.op, layer.attrs.clone(), &operands)?[0];
    let sums = patch.placed_cast(sums, network[output].ty.dtype)?;
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

/// The layer with inputs and outputs of one dtype computed in another. Does not apply where it has none of them.
pub(super) fn between_casts<'n>(network: &'n Network, layer: &Layer, from: DType, to: DType) -> Found<'n> {
    let mut patch = Patch::new(network);
    let cast = layer.op.lowering.operands;
    let mut inputs = vec![];
    for (at, &tensor) in layer.inputs.iter().enumerate() {
        inputs.push(match tensor {
            Some(t) if network[t].ty.dtype == from && at < cast => Some(patch.placed_cast(t, to)?),
            tensor => tensor,
        });
    }
    let mut attrs = layer.attrs.clone();
    let typed = attrs.values_mut().filter(|attr| **attr == Attr::Type(from));
    typed.for_each(|attr| *attr = Attr::Type(to));
    rule_if!(inputs != layer.inputs);
    let outputs = patch.add_named("", layer.op, attrs, &inputs)?;
    for (&old, new) in layer.outputs.iter().zip(outputs) {
        let back = patch.placed_cast(new, network[old].ty.dtype)?;
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
    use crate::network::ops::cast;
    use crate::passes::testing::Graph;
    use crate::passes::{Settings, clean_casts, fold_constants};
    use std::collections::HashSet;

    fn low(compute: DType) -> Settings {
        Settings {
            compute,
            ..Settings::default()
        }
    }

    #[test]
    fn an_emulation_rounds_all_that_lowered_layers_read_and_give() {
        let mut g = Graph::new();
        let x = g.input("x", "n 4");
        let w = g.weights(&[4, 4]);
        let y = g.op("MatMul", &[x, w]);
        let y = g.op("Relu", &[y]);
        let z = g.op("Exp", &[y]);
        g.output(z);
        let kept = HashSet::from([g.network.producer(y).unwrap().1.name.clone()]);
        for (lifted, casts) in [(HashSet::new(), 10), (kept, 6)] {
            let mut network = g.network.clone();
            let settings = Settings {
                lifted,
                ..low(DType::BFloat16)
            };
            (plan_precision::PASS.apply)(&mut network, &settings).unwrap();
            emulate(&mut network).unwrap();
            network.verify().unwrap();
            let all = || network.layers().map(|(_, layer)| layer);
            assert_eq!(all().filter(|layer| layer.op.name == "Cast").count(), casts);
            assert!(all().all(|layer| layer.op.name != "Cast" || cast::rounds(&layer.attrs)));
            let others = all().filter(|layer| layer.op.name != "Cast");
            assert!(
                others
                    .into_iter()
                    .all(|layer| network[layer.outputs[0]].ty.dtype == DType::Float32)
            );
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
            &[&plan_precision::PASS, &PASS, &clean_casts::PASS, &fold_constants::PASS],
            &low(DType::BFloat16),
            "
            %MatMul: bfloat16[n, 2, 4] = Cast(%x) {elidable=1, round_mode=up, saturate=1, to=bfloat16}
            %MatMul~1: bfloat16[n, 2, 3] = MatMul(%MatMul, bfloat16[4, 3](...)) {transA=0, transB=0}
            %Relu: bfloat16[n, 2, 3] = Relu(%MatMul~1)
            %Relu~1: float32[n, 2, 3] = Cast(%Relu) {elidable=1, round_mode=up, saturate=1, to=float32}
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
            &[&plan_precision::PASS, &PASS, &clean_casts::PASS, &fold_constants::PASS],
            &low(DType::Float16),
            "
            %Conv: float16[n, 4, 6, 6] = Cast(%x) {elidable=1, round_mode=up, saturate=1, to=float16}
            %Conv~1: float16[n, 4, 4, 4] = Conv(%Conv, float16[4, 4, 3, 3](...), float16[4](...)) {auto_pad=NOTSET, dilations=[], group=1, pads=[], strides=[]}
            %Conv~2: float16[n, 4, 2, 2] = Conv(%Conv~1, float16[4, 4, 3, 3](...)) {auto_pad=NOTSET, dilations=[], group=1, pads=[], strides=[]}
            %Conv~3: float32[n, 4, 2, 2] = Cast(%Conv~2) {elidable=1, round_mode=up, saturate=1, to=float32}
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
            (plan_precision::PASS.apply)(&mut g.network, &low(dtype)).unwrap();
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
        (plan_precision::PASS.apply)(&mut g.network, &low(DType::Float16)).unwrap();
        (PASS.apply)(&mut g.network, &low(DType::Float16)).unwrap();
        g.network.verify().unwrap();
        let outputs = g.network.outputs();
        assert!(outputs.iter().all(|o| g.network[o.tensor].ty.dtype == DType::Float32));
        assert_eq!(outputs[0].name, "y0");
    }
}
