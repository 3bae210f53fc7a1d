//! Which kernels of a plan compute something else than kernels of another family: each is run by itself, on what it reads in
//! the network, and what it gives is compared.

use crate::engine::config::{BuilderConfig, Precision};
use crate::engine::every_form::{Bench, Lie, Slice};
use crate::engine::trial::untimed;
use crate::engine::{builder, verify};
use crate::error::Result;
use crate::network::array::Array;
use crate::network::dim::Binding;
use crate::network::{Network, Source, TensorId};
use crate::plan::layout::Operand;
use crate::plan::placement::{Placement, place};
use crate::plan::program::{Command, Program};
use crate::plan::regions::ExcludedLayers;
use crate::plan::{Alias, Candidate, ExcludedForm, Provider};
use crate::runtime::executable::Executable;
use std::collections::HashMap;
use std::sync::Arc;

/// A kernel whose results depart.
pub(super) struct Culprit {
    /// What must not be chosen again.
    pub form: ExcludedForm,
    /// The note for the report: the kernel, its implementation, and by how much it departs.
    pub note: String,
}

/// The kernels of a program that depart from those of `reference`, which run on the processor.
///
/// # Errors
/// If the reference can't be planned or run.
pub(super) fn find(
    program: &Program,
    reference: &[Arc<dyn Provider>],
    config: &BuilderConfig,
    precision: Precision,
    binding: &Binding,
    inputs: &[Array],
) -> Result<Vec<Culprit>> {
    let network = &*program.network;
    let suspects: Vec<&Command> = program.commands.iter().filter(|command| is_suspect(command)).collect();
    let mut read: Vec<TensorId> = vec![];
    for slot in suspects
        .iter()
        .flat_map(|command| command.inputs.iter().chain(&command.outputs))
    {
        let tensor = program.slots[*slot].tensor;
        if matches!(network[tensor].source, Source::Layer(..) | Source::Symbolic) && !read.contains(&tensor) {
            read.push(tensor);
        }
    }
    let mut values: HashMap<TensorId, Array> = read
        .iter()
        .copied()
        .zip(tapped(network, &read, reference, config, binding, inputs)?)
        .collect();
    values.extend(network.inputs().iter().copied().zip(inputs.iter().cloned()));
    let placement = place(program, program.operands(binding)?);
    let rounding = verify::rounding(network, precision);
    let mut found = vec![];
    for command in suspects {
        let bench = Bench {
            network,
            provider: &*program.providers[command.provider],
            binding,
            values: &values,
            threads: config.threads,
        };
        found.extend(tried(program, command, &placement, &bench, rounding)?);
    }
    Ok(found)
}

/// Whether a command runs layers in a kernel of ours.
fn is_suspect(command: &Command) -> bool {
    !command.layers.is_empty() && !command.kernel.is_foreign() && command.kernel.is_timed()
}

/// What tensors hold when the reference runs the network.
fn tapped(
    network: &Network,
    tensors: &[TensorId],
    reference: &[Arc<dyn Provider>],
    config: &BuilderConfig,
    binding: &Binding,
    inputs: &[Array],
) -> Result<Vec<Array>> {
    let mut probe = network.clone();
    let marked = probe.outputs().len();
    for (number, &tensor) in tensors.iter().enumerate() {
        probe.mark_output(tensor, &format!("tapped: {number}"))?;
    }
    let config = config.untimed();
    let probe = builder::simplified(probe, Precision::FLOAT32, &config, reference)?;
    let program = untimed(Arc::new(probe), &config, reference, binding, &ExcludedLayers::new())?;
    let found = verify::run_once(&Arc::new(Executable::new(program)), inputs, binding)?;
    Ok(found.into_iter().skip(marked).collect())
}

/// A command, if what it gives departs from the values that are known. One that reads numbers that were too large is not judged: the
/// precision is at fault.
fn tried(
    program: &Program,
    command: &Command,
    placement: &Placement,
    bench: &Bench,
    rounding: f64,
) -> Result<Option<Culprit>> {
    let tensors = |slots: &[usize]| slots.iter().map(|&slot| program.slots[slot].tensor).collect();
    let candidate = Candidate {
        kernel: command.kernel.clone(),
        layers: command.layers.clone(),
        inputs: tensors(&command.inputs),
        outputs: tensors(&command.outputs),
    };
    let mut read = candidate.inputs.iter().filter_map(|tensor| bench.values.get(tensor));
    if read.any(verify::overflowed) {
        return Ok(None);
    }
    let slices = |slots: &[usize]| slots.iter().map(|&slot| slice(&placement.operands[slot])).collect();
    let pairs = command.kernel.in_place().into_iter();
    let mut shared = pairs.filter(|&(i, o)| placement.shares(command.inputs[i], command.outputs[o]));
    let lie = Lie {
        name: "as planned",
        inputs: slices(&command.inputs),
        outputs: slices(&command.outputs),
        shared: shared.next().filter(|_| command.alias() == Alias::None),
    };
    let outcome = bench.outcome(&candidate, &command.form, &lie)?;
    let names: Vec<String> = command
        .layers
        .iter()
        .map(|&layer| program.network[layer].name.clone())
        .collect();
    let departs = match &outcome.fault {
        Some(fault) => Some(format!("fails ({}), other than", fault.message())),
        None => outcome
            .outputs
            .iter()
            .find_map(|(_, got, want)| verify::kernel_departs(got, want, rounding)),
    };
    Ok(departs.map(|how| Culprit {
        note: format!(
            "the kernel {} ({}{}) of {} {how} from what the processor computes, and was excluded",
            outcome.kernel,
            outcome.implementation,
            command.form.tactic.suffix(),
            names.join(" + ")
        ),
        form: ExcludedForm {
            provider: program.providers[command.provider].name().into(),
            layers: names,
            form: command.form.clone(),
        },
    }))
}

/// What an operand is a slice of.
fn slice(operand: &Operand) -> Option<Slice> {
    operand.parent_channels.map(|parent| Slice { start: 0, parent })
}
