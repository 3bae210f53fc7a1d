//! What an engine does, for people and for tools.

use crate::engine::Engine;
use crate::network::dim::Binding;
use crate::network::{LayerId, Network, Source};
use crate::plan::Refusal;
use crate::plan::instance::ProgramInstance;
use crate::plan::program::{Program, Step};
use serde::Serialize;
use std::collections::BTreeMap;

/// What an engine does.
#[derive(Serialize)]
pub struct Report {
    /// The providers in order of preference, with the number of layers that each runs.
    pub providers: Vec<(String, usize)>,
    /// Layers that a provider did not take.
    pub refusals: Vec<Refusal>,
    /// What the user should know.
    pub notes: Vec<String>,
    /// Every kernel, in order.
    pub kernels: Vec<KernelReport>,
    /// Share of layers per dtype.
    pub layers_per_dtype: BTreeMap<String, f64>,
    /// Memory in bytes.
    pub memory: MemoryReport,
    /// How often each pass rewrote something.
    pub passes: Vec<(String, usize)>,
    /// Seconds that the build took.
    pub build_seconds: f64,
}

/// One kernel of the first plan.
#[derive(Serialize)]
pub struct KernelReport {
    /// What it computes.
    pub kernel: String,
    /// The provider.
    pub provider: String,
    /// The layers that it runs.
    pub layers: Vec<String>,
    /// The nodes of the source model that these stand for.
    pub sources: Vec<String>,
    /// The layouts and the algorithm.
    pub form: String,
    /// The implementation; empty where placing its operands in one another left nothing to do.
    pub implementation: String,
    /// Nanoseconds when it was tuned; 0 if it was not.
    pub tuned_nanoseconds: f64,
}

/// Bytes at the opt shapes of the first profile.
#[derive(Serialize)]
pub struct MemoryReport {
    /// Weights as they came.
    pub weights: usize,
    /// Activations and workspaces of one context.
    pub arena: usize,
    /// Activations if nothing shared memory.
    pub activations_unshared: usize,
    /// 1 - arena / unshared.
    pub reuse: f64,
}

impl Engine {
    /// What the engine does, at these shapes.
    ///
    /// # Errors
    /// If the program can't be instantiated at these shapes.
    pub fn report(&self, binding: &Binding) -> crate::error::Result<Report> {
        let program = &self.plans[self.plan_for(binding).0].program;
        let instance = ProgramInstance::new(program.clone(), binding)?;
        let implementations: BTreeMap<_, _> = instance.implementations().into_iter().collect();
        let kernel = |(i, step): (usize, &Step)| kernel_report(program, step, implementations.get(&i));
        let mut per_provider: Vec<_> = program.providers.iter().map(|p| (p.name().to_string(), 0)).collect();
        program
            .steps
            .iter()
            .for_each(|step| per_provider[step.provider].1 += step.layers.len());
        let (arena, unshared) = (instance.arena_bytes(), instance.unshared_bytes());
        Ok(Report {
            providers: per_provider,
            refusals: program.refusals.clone(),
            notes: self.notes.clone(),
            kernels: program.steps.iter().enumerate().map(kernel).collect(),
            layers_per_dtype: layers_per_dtype(&self.network),
            memory: MemoryReport {
                weights: weight_bytes(&self.network),
                arena,
                activations_unshared: unshared,
                reuse: 1.0 - arena as f64 / unshared.max(1) as f64,
            },
            passes: self.passes.clone(),
            build_seconds: self.build_seconds,
        })
    }
}

fn kernel_report(program: &Program, step: &Step, implementation: Option<&String>) -> KernelReport {
    let network = &program.network;
    let layer = |&id: &LayerId| network[id].name.clone();
    let layouts =
        |layouts: &[crate::plan::layout::Layout]| layouts.iter().map(|l| l.to_string()).collect::<Vec<_>>().join(",");
    KernelReport {
        kernel: step.kernel.name(),
        provider: program.providers[step.provider].name().into(),
        layers: step.layers.iter().map(layer).collect(),
        sources: step.layers.iter().flat_map(|&id| network[id].sources.clone()).collect(),
        form: format!(
            "{} -> {} #{}",
            layouts(&step.form.inputs),
            layouts(&step.form.outputs),
            step.form.tactic
        ),
        implementation: implementation.cloned().unwrap_or_default(),
        tuned_nanoseconds: step.time,
    }
}

fn layers_per_dtype(network: &Network) -> BTreeMap<String, f64> {
    let mut counts = BTreeMap::new();
    for (_, layer) in network.layers() {
        *counts
            .entry(network[layer.outputs[0]].ty.dtype.to_string())
            .or_insert(0.0) += 1.0;
    }
    let total = network.layer_count().max(1) as f64;
    counts.values_mut().for_each(|share| *share /= total);
    counts
}

fn weight_bytes(network: &Network) -> usize {
    let used = network.tensors().filter(|(_, t)| !t.users.is_empty());
    used.filter_map(|(_, t)| match &t.source {
        Source::Constant(constant) => Some(constant.array.bytes().len()),
        _ => None,
    })
    .sum()
}
