//! What an engine does, for people and for tools.

use crate::device::Space;
use crate::engine::Engine;
use crate::engine::arithmetic::{Shares, Tally, operations};
use crate::engine::full_precision::{FullPrecision, Kept};
use crate::error::Result;
use crate::network::dim::Binding;
use crate::network::graph::Graph;
use crate::network::ops::tf32;
use crate::network::{LayerId, Network, Source};
use crate::plan::Refusal;
use crate::plan::arena::Placed;
use crate::plan::program::{Command, Program, SlotId};
use crate::runtime::context_memory::ContextMemory;
use crate::runtime::executable::Executable;
use crate::runtime::instance::ProgramInstance;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

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
    /// Share of layers per dtype; products of float32 that may round what they multiply count as tf32, those whose weights
    /// alone are quantized as "float32 with int8 weights".
    pub layers_per_dtype: Shares,
    /// Share of arithmetic, likewise: multiplications and additions of products, one operation for each element that other
    /// layers give.
    pub arithmetic_per_dtype: Shares,
    /// The layers that stay float32 where a lower precision was asked for, by reason; none where the whole engine does, which a note
    /// says.
    pub full_precision: Vec<FullPrecision>,
    /// How many calls share how many threads.
    pub threads: ThreadReport,
    /// Whether nothing was timed so that builds repeat.
    pub deterministic: bool,
    /// Memory in bytes.
    pub memory: MemoryReport,
    /// How often each pass rewrote something.
    pub passes: Vec<(String, usize)>,
    /// Seconds that the build took.
    pub build_seconds: f64,
    /// Those of them that verification took.
    pub verify_seconds: f64,
    /// The layers before and after the passes.
    pub graph: Graphs,
}

/// The layers before and after the passes.
#[derive(Serialize)]
pub struct Graphs {
    /// The network as it was given; none where the engine came from a file.
    pub before: Option<Graph>,
    /// The simplified network with the kernels that run its layers; one per stage where there are several.
    pub after: Vec<Graph>,
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
    /// The dtype of its first result.
    pub dtype: String,
    /// The layouts and the algorithm.
    pub form: String,
    /// Whether its products may round what they multiply to tf32; the implementation says so where they do.
    pub tf32: bool,
    /// The implementation; empty where placing its operands in one another left nothing to do.
    pub implementation: String,
    /// What its compiler says of it, where that is not ours.
    pub details: Option<serde_json::Value>,
    /// Nanoseconds when it was tuned; 0 if it was not.
    pub tuned_nanoseconds: f64,
}

/// Threads of the processor.
#[derive(Serialize)]
pub struct ThreadReport {
    /// Those of one call.
    pub call: usize,
    /// Calls beside each other that keep all threads busy.
    pub calls: usize,
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
    /// What lies in the arenas, where and when.
    pub blocks: Vec<BlockReport>,
}

/// A stretch of the arena of one memory.
#[derive(Serialize)]
pub struct BlockReport {
    /// Whose memory: `host`, or `device 0`.
    pub space: String,
    /// Bytes from the start of the arena.
    pub offset: usize,
    /// Its size.
    pub bytes: usize,
    /// The number of the first kernel that needs it.
    pub first: usize,
    /// The number of the last one.
    pub last: usize,
    /// The tensors that share it; none in the workspace of a kernel.
    pub tensors: Vec<String>,
}

impl Engine {
    /// What the engine does, at these shapes.
    ///
    /// # Errors
    /// If the program can't be instantiated at these shapes.
    pub fn report(&self, binding: &Binding) -> Result<Report> {
        let mut report = Report {
            providers: vec![],
            refusals: vec![],
            notes: self
                .notes
                .iter()
                .map(String::as_str)
                .chain(self.degraded())
                .map(String::from)
                .collect(),
            kernels: vec![],
            layers_per_dtype: Shares::new(),
            arithmetic_per_dtype: Shares::new(),
            full_precision: vec![],
            threads: ThreadReport {
                call: self.config.threads_per_call(),
                calls: self.calls(),
            },
            deterministic: self.config.deterministic,
            memory: MemoryReport {
                weights: self.parts().iter().map(|part| weight_bytes(&part.network)).sum(),
                arena: 0,
                activations_unshared: 0,
                reuse: 0.0,
                blocks: vec![],
            },
            graph: Graphs {
                before: self.source.clone(),
                after: vec![],
            },
            passes: self.passes.clone(),
            build_seconds: self.build_seconds,
            verify_seconds: self.verify_seconds,
        };
        let (mut layers, mut arithmetic, mut kept) = (Tally::default(), Tally::default(), Kept::default());
        for part in self.parts() {
            let defaults = part
                .network
                .symbols
                .iter()
                .map(|(name, range)| (name.clone(), range.opt));
            let binding = defaults.chain(binding.clone()).collect();
            let guessed = part
                .network
                .symbols
                .keys()
                .any(|s| !self.network.symbols.contains_key(s));
            layers.add(part, |_, _| 1.0);
            arithmetic.add(part, |network, layer| operations(network, layer, &binding));
            kept.add(part, &binding);
            let timed = part.config.effort() > 0;
            report.add(&part.plans[part.plan_for(&binding).0].program, &binding, guessed, timed)?;
        }
        report.notes.extend(self.replacements());
        report.layers_per_dtype = layers.shares();
        report.arithmetic_per_dtype = arithmetic.shares();
        report.full_precision = kept.told();
        let MemoryReport {
            arena,
            activations_unshared,
            ..
        } = report.memory;
        report.memory.reuse = match activations_unshared {
            0 => 0.0,
            unshared => (1.0 - arena as f64 / unshared as f64).max(0.0),
        };
        Ok(report)
    }
}

impl Report {
    /// `guessed`: some sizes depend on data. Default dims need not fit each other; then only kernels are reported.
    /// `timed`: the times of its commands were measured.
    fn add(&mut self, program: &Arc<Executable>, binding: &Binding, guessed: bool, timed: bool) -> Result<()> {
        let guessed = guessed || program.network.check_guards(binding).is_err();
        let instance = match ProgramInstance::new(program.clone(), binding, &ContextMemory::default()) {
            Err(_) if guessed => None,
            made => Some(made?),
        };
        let program = instance.as_ref().map_or(program, ProgramInstance::program);
        let implementations = instance.iter().flat_map(|i| i.implementations());
        let implementations: BTreeMap<_, _> = implementations.collect();
        let kernel = |(i, command): (usize, &Command)| KernelReport {
            tuned_nanoseconds: if timed { command.time } else { 0.0 },
            ..kernel_report(program, command, implementations.get(&i))
        };
        let ahead = self.kernels.len();
        let commands = program.commands.iter().enumerate();
        let runs: HashMap<LayerId, usize> = commands
            .flat_map(|(i, command)| command.layers.iter().map(move |&layer| (layer, ahead + i)))
            .collect();
        let graph = Graph::of(&program.network, &|layer| runs.get(&layer).copied());
        self.graph.after.push(graph);
        self.kernels.extend(program.commands.iter().enumerate().map(kernel));
        if self.providers.is_empty() {
            self.providers = program.providers.iter().map(|p| (p.name().to_string(), 0)).collect();
        }
        for command in &program.commands {
            self.providers[command.provider].1 += command.layers.len();
        }
        self.refusals.extend(program.refusals.clone());
        if let Some(instance) = &instance {
            // Stages run one after another in the same memory.
            self.memory.arena = self.memory.arena.max(instance.arena_bytes());
            self.memory.activations_unshared += instance.unshared_bytes();
            let blocks = instance.blocks().iter();
            self.memory
                .blocks
                .extend(blocks.map(|placed| block_report(program, placed, ahead)));
        }
        Ok(())
    }
}

fn block_report(program: &Program, placed: &Placed, ahead: usize) -> BlockReport {
    let name = |&slot: &SlotId| program.network[program.slots[slot].tensor].name.clone();
    BlockReport {
        space: match placed.space {
            Space::Host => "host".into(),
            Space::Device(number) => format!("device {number}"),
        },
        offset: placed.offset,
        bytes: placed.block.bytes,
        first: ahead + placed.block.first,
        last: ahead + placed.block.last,
        tensors: placed.slots.iter().map(name).collect(),
    }
}

fn kernel_report(program: &Program, command: &Command, implementation: Option<&String>) -> KernelReport {
    let (network, provider) = (&program.network, &program.providers[command.provider]);
    let layer = |&id: &LayerId| network[id].name.clone();
    let layouts =
        |layouts: &[crate::plan::layout::Layout]| layouts.iter().map(|l| l.to_string()).collect::<Vec<_>>().join(",");
    KernelReport {
        kernel: command.kernel.name(),
        provider: provider.name().into(),
        layers: command.layers.iter().map(layer).collect(),
        sources: command
            .layers
            .iter()
            .flat_map(|&id| network[id].sources.clone())
            .collect(),
        dtype: match command.outputs.first() {
            Some(&slot) => network[program.slots[slot].tensor].ty.dtype.to_string(),
            None => String::new(),
        },
        form: format!(
            "{} -> {}{}",
            layouts(&command.form.inputs),
            layouts(&command.form.outputs),
            command.form.tactic.suffix()
        ),
        tf32: provider.has_tf32() && command.layers.iter().any(|&id| tf32::is_allowed(&network[id])),
        implementation: implementation.cloned().unwrap_or_default(),
        details: command
            .kernel
            .details()
            .and_then(|text| serde_json::from_str(&text).ok()),
        tuned_nanoseconds: command.time,
    }
}

fn weight_bytes(network: &Network) -> usize {
    let used = network.tensors().filter(|(_, t)| !t.users.is_empty());
    used.filter_map(|(_, t)| match &t.source {
        Source::Constant(constant) => Some(constant.array.bytes().len()),
        _ => None,
    })
    .sum()
}
