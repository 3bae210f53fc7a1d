//! Means of integers of 8 bits between a Dequantize layer and, where there is one, a Quantize layer.

use super::fold::Fold;
use super::{Finish, Reduce};
use crate::network::ops::cast;
use crate::network::quantization::Scheme;
use crate::network::{Layer, LayerId, Network};
use crate::plan::Candidate;
use crate::providers::common::mean_of_8_bits::MeanOf8Bits;
use crate::providers::common::scope::Scope;
use std::sync::Arc;

/// A mean with the layer in front of it, and with the one behind it too.
pub fn offer(scope: &Scope, mean: &Reduce) -> Vec<Candidate> {
    let (network, layer) = (scope.network, scope.layer());
    let Some(found) = MeanOf8Bits::of(network, layer) else {
        return vec![];
    };
    let scheme = found.read.scheme;
    let candidate = |name: &str, finish, behind: &[LayerId]| Candidate {
        kernel: Arc::new(Reduce {
            name: name.into(),
            fold: Fold::Sum,
            finish,
            ..mean.clone()
        }),
        layers: found
            .layers()
            .iter()
            .chain([&scope.layer])
            .chain(behind)
            .copied()
            .collect(),
        inputs: vec![found.read.tensor],
        outputs: network[*behind.last().unwrap_or(&scope.layer)].outputs.clone(),
    };
    let alone = candidate("int8 ReduceMean", Finish::DequantizedMean(scheme), &[]);
    let quantized = quantized(network, layer).map(|(written, behind)| {
        let finish = Finish::RequantizedMean(scheme, written);
        candidate("int8 ReduceMean+QuantizeLinear", finish, &behind)
    });
    quantized.into_iter().chain([alone]).collect()
}

/// What a mean is quantized to, and the layers that do it: a Cast that the precision brought may stand in front.
fn quantized(network: &Network, mean: &Layer) -> Option<(Scheme, Vec<LayerId>)> {
    let mut behind = vec![network.sole_user(mean.outputs[0])?];
    let first = &network[behind[0]];
    if first.op.name == "Cast" && !cast::rounds(&first.attrs) {
        behind.push(network.sole_user(first.outputs[0])?);
    }
    let last = &network[*behind.last()?];
    let written = Scheme::of(network, last).filter(Scheme::is_int)?;
    (last.op.name == "QuantizeLinear").then_some((written, behind))
}

/// What the mean of integers with this sum stands for.
pub fn dequantized(sum: f64, count: usize, scheme: Scheme) -> f32 {
    ((sum / count as f64 - f64::from(scheme.zero)) * f64::from(scheme.scale)) as f32
}

/// That, quantized.
pub fn requantized(sum: f64, count: usize, read: Scheme, written: Scheme) -> f64 {
    let [low, high] = written.limits().map(f64::from);
    let steps = dequantized(sum, count, read) / written.scale;
    (f64::from(steps.round_ties_even()) + f64::from(written.zero)).clamp(low, high)
}
