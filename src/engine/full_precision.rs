//! The layers that stay float32 where a lower precision was asked for, as reports tell them.

use crate::engine::Engine;
use crate::engine::arithmetic::{in_8_bits, operations};
use crate::network::TensorId;
use crate::network::dim::Binding;
use crate::network::dtype::DType;
use crate::network::ops::tf32;
use crate::network::precision::Reason;
use serde::Serialize;
use std::collections::BTreeMap;

/// Layers that stay float32 for one reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FullPrecision {
    /// The reason, in words.
    pub reason: String,
    /// Their names.
    pub layers: Vec<String>,
    /// Their share of the arithmetic of the engine.
    pub arithmetic: f64,
}

/// By reason, layers and their operations.
#[derive(Default)]
pub(super) struct Kept {
    by_reason: BTreeMap<Reason, (Vec<String>, f64)>,
    all: f64,
}

impl Kept {
    /// Adds those of a part of an engine at these sizes, but for what kernels of 8 bits compute.
    pub fn add(&mut self, part: &Engine, binding: &Binding) {
        let (network, small) = (&part.network, in_8_bits(part));
        for (id, layer) in network.layers() {
            let operations = operations(network, layer, binding);
            self.all += operations;
            let wide = |&output: &TensorId| network[output].ty.dtype == DType::Float32;
            let is_wide = layer.outputs.first().is_some_and(wide) && !tf32::is_allowed(layer);
            let planned = layer
                .precision
                .filter(|planned| is_wide && !planned.is_lower() && !small.contains_key(&id));
            let Some(planned) = planned else { continue };
            let (layers, sum) = self.by_reason.entry(planned.reason).or_default();
            layers.push(layer.name.clone());
            *sum += operations;
        }
    }

    /// All of them, in the order of the reasons.
    pub fn told(mut self) -> Vec<FullPrecision> {
        // The layers of a network that a file brought come in another order.
        self.by_reason.values_mut().for_each(|(layers, _)| layers.sort());
        let share = |operations: f64| operations / self.all.max(1.0);
        let reasons = self.by_reason.into_iter();
        reasons
            .map(|(reason, (layers, operations))| FullPrecision {
                reason: reason.to_string(),
                layers,
                arithmetic: share(operations),
            })
            .collect()
    }
}
