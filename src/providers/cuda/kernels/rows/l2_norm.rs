//! Rows divided by their Euclidean norms, or by a least divisor: a ReduceL2, its bound, and the Div behind it.

use super::norm::{Norm, RowNorm};
use crate::network::{Layer, Network, TensorId};
use crate::plan::Candidate;
use crate::plan::layout::Layout;
use crate::providers::common::scope::{Scope, uniform_forms};
use crate::providers::cuda::kernels::Gpu;
use crate::providers::cuda::kernels::launch::sourced;
use std::sync::Arc;

/// The scope's ReduceL2 over these axes with what follows it, if that is a division of its input.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>, axes: &[usize]) -> Option<Candidate> {
    let (network, x, norm) = (scope.network, scope.input(0)?, scope.layer().outputs[0]);
    let ty = &network[x].ty;
    let first = *axes.iter().min()?;
    // Rows lie one behind another.
    if axes.len() != ty.rank() - first || network[norm].ty.rank() != ty.rank() || !ty.dtype.is_float() {
        return None;
    }
    let mut layers = vec![scope.layer, network.sole_user(norm)?];
    let mut divisor = norm;
    let least = least(network, norm, &network[layers[1]]);
    if least.is_some() {
        divisor = network[layers[1]].outputs[0];
        layers.push(network.sole_user(divisor)?);
    }
    let epsilon = least.unwrap_or(0.0);
    let div = &network[*layers.last()?];
    // The kernel multiplies with the inverse, which is to be finite.
    let inverts = epsilon == 0.0 || epsilon >= f32::MIN_POSITIVE.into();
    if div.op.name != "Div" || div.inputs != [Some(x), Some(divisor)] || !inverts {
        return None;
    }
    let norm = Norm::of_rows(first, RowNorm::Euclidean, epsilon);
    let forms = uniform_forms(&[Layout::Plain], 1, 1);
    let names: Vec<&str> = layers.iter().map(|&id| network[id].op.name).collect();
    let identity = format!("{first} of {}", ty.rank());
    Some(Candidate {
        kernel: Arc::new(sourced(&names.join("+"), identity, forms, gpu, move |gpu, request| {
            norm.instance(gpu, request)
        })),
        outputs: div.outputs.clone(),
        inputs: vec![x],
        layers,
    })
}

/// The bound that a layer puts on norms from below, where it does nothing else.
fn least(network: &Network, norm: TensorId, layer: &Layer) -> Option<f64> {
    let number = |input: usize| {
        network[layer.inputs.get(input).copied().flatten()?]
            .constant()?
            .uniform()
    };
    let least = match (layer.op.name, layer.inputs.as_slice()) {
        ("Relu", _) => Some(0.0),
        ("Clip", [_, Some(_)] | [_, Some(_), None]) => number(1),
        ("Max", [_, _]) => number(1).or_else(|| number(0)),
        _ => None,
    };
    // A bound of more axes would give a tensor of another shape.
    let same = network[norm].ty.shape == network[layer.outputs[0]].ty.shape;
    least.filter(|&least| least >= 0.0 && same)
}
