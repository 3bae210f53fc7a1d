//! Runs each kernel that a provider offers for a network in every form, with operands that are dense, shared or slices of
//! larger tensors, beside the reference evaluation. Conformance holds every provider to it: whatever the planner may choose
//! is run here, whatever it would choose.

use crate::device::{Memory, Stream};
use crate::engine::builder::simplified;
use crate::engine::config::{BuilderConfig, Precision};
use crate::error::{Error, ErrorKind, Result};
use crate::network::array::Array;
use crate::network::dim::Binding;
use crate::network::dtype::DType;
use crate::network::{Network, Source, TensorId, reference};
use crate::passes;
use crate::plan::layout::{Layout, Operand};
use crate::plan::program::operand;
use crate::plan::{Alias, Call, Candidate, Form, Provider, Request, Tier};
use std::collections::HashMap;
use std::sync::Arc;

/// What one kernel gave in one form.
pub struct Outcome {
    /// The kernel.
    pub kernel: String,
    /// The form, as reports write it, and how its operands lay.
    pub form: String,
    /// The algorithm.
    pub tactic: String,
    /// Which implementation ran; empty where none did.
    pub implementation: String,
    /// Each output: its name, what the kernel gave, what the reference gives.
    pub outputs: Vec<(String, Array, Array)>,
    /// Why it did not run, or what it did besides giving outputs.
    pub fault: Option<Error>,
}

/// Bytes that no kernel writes by chance: an element that is left unwritten, or written beside its place, shows.
const POISON: u8 = 0xa5;
/// A larger workspace is not filled with [`POISON`].
const LARGEST_POISONED: usize = 64 << 20;
/// A kernel runs so often: what a run takes over from the one before it shows in the last one. References keep nothing, and take long.
const RUNS: usize = 2;

/// Runs every form of every candidate of a provider for the layers of a network.
///
/// # Errors
/// If the inputs do not fit the network, or the reference can't evaluate it; what a kernel fails with stands in its outcome.
pub fn run(network: Network, provider: &Arc<dyn Provider>, inputs: &[Array], tf32: bool) -> Result<Vec<Outcome>> {
    let binding = reference::bind(&network, &|i| inputs[i].shape().to_vec())?;
    let config = BuilderConfig::default();
    let precision = Precision {
        tf32,
        ..Precision::FLOAT32
    };
    let mut network = simplified(network, precision, &config, std::slice::from_ref(provider))?;
    if tf32 {
        // Kernels that round are run for layers that gain little by it, too.
        passes::allow_tf32::everywhere(&mut network)?;
    }
    let values = values(&network, inputs)?;
    let bench = Bench {
        values: &values,
        network: &network,
        provider: &**provider,
        binding: &binding,
        threads: config.threads,
    };
    let mut outcomes = vec![];
    for layer in network.order()? {
        let Ok(mut offered) = provider.candidates(&network, layer, &config.settings()) else {
            continue;
        };
        offered.extend(provider.unplanned(&network, layer));
        for candidate in &offered {
            for form in candidate.kernel.forms() {
                for lie in bench.lies(candidate, &form)? {
                    outcomes.push(bench.outcome(candidate, &form, &lie)?);
                }
            }
        }
    }
    Ok(outcomes)
}

/// The value of every tensor that is no constant.
fn values(network: &Network, inputs: &[Array]) -> Result<HashMap<TensorId, Array>> {
    let mut probe = network.clone();
    let mut wanted: Vec<TensorId> = vec![];
    for layer in network.order()? {
        let read = network[layer].inputs.iter().flatten();
        let symbolic = |tensor: &&TensorId| matches!(network[**tensor].source, Source::Symbolic);
        let known = read.filter(symbolic).chain(&network[layer].outputs);
        let fresh: Vec<TensorId> = known.copied().filter(|tensor| !wanted.contains(tensor)).collect();
        wanted.extend(fresh);
    }
    let marked = probe.outputs().len();
    for (i, &tensor) in wanted.iter().enumerate() {
        probe.mark_output(tensor, &format!("every form: {i}"))?;
    }
    let found = reference::evaluate(&probe, inputs)?;
    let given = network.inputs().iter().copied().zip(inputs.iter().cloned());
    Ok(wanted
        .into_iter()
        .zip(found.into_iter().skip(marked))
        .chain(given)
        .collect())
}

/// A slice along the channels: the channel that it begins with, and how many its tensor has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slice {
    pub start: usize,
    pub parent: usize,
}

/// How the operands of a run lie.
pub(super) struct Lie {
    pub name: &'static str,
    pub inputs: Vec<Option<Slice>>,
    pub outputs: Vec<Option<Slice>>,
    /// An input and the output that takes its memory.
    pub shared: Option<(usize, usize)>,
}

/// Runs kernels one by one on values that are known.
pub(super) struct Bench<'a> {
    pub network: &'a Network,
    pub provider: &'a dyn Provider,
    pub binding: &'a Binding,
    /// What every tensor holds that is no constant.
    pub values: &'a HashMap<TensorId, Array>,
    pub threads: usize,
}

impl Bench<'_> {
    fn operands(&self, tensors: &[TensorId], layouts: &[Layout], slices: &[Option<Slice>]) -> Result<Vec<Operand>> {
        let one = |((&tensor, &layout), slice): ((&TensorId, &Layout), &Option<Slice>)| {
            let mut made = operand(self.network, tensor, layout, self.binding)?;
            made.parent_channels = slice.map(|slice| slice.parent);
            Ok(made)
        };
        tensors.iter().zip(layouts).zip(slices).map(one).collect()
    }

    /// The ways in which the planner may lay the operands of a form.
    fn lies(&self, candidate: &Candidate, form: &Form) -> Result<Vec<Lie>> {
        let none = |tensors: &[TensorId]| vec![None; tensors.len()];
        let (inputs, outputs) = (none(&candidate.inputs), none(&candidate.outputs));
        let dense = |name, shared| Lie {
            name,
            inputs: inputs.clone(),
            outputs: outputs.clone(),
            shared,
        };
        let mut lies = vec![dense("dense", None)];
        let alike = |&(i, o): &(usize, usize)| {
            form.inputs[i] == form.outputs[o] && self.network[candidate.inputs[i]].constant().is_none()
        };
        let pairs = candidate.kernel.in_place().into_iter().filter(alike);
        let fits = |&(i, o): &(usize, usize)| {
            let bytes = |tensor| operand(self.network, tensor, Layout::Plain, self.binding).map(|o| o.bytes());
            matches!((bytes(candidate.inputs[i]), bytes(candidate.outputs[o])), (Ok(a), Ok(b)) if a == b)
        };
        lies.extend(pairs.filter(fits).map(|pair| dense("in place", Some(pair))));
        let (reads, writes) = candidate.kernel.takes_slices(form);
        for (name, loose) in [("slices", false), ("odd slices", true)] {
            let inputs_in = self.slices(&candidate.inputs, &form.inputs, candidate, loose)?;
            let outputs_in = self.slices(&candidate.outputs, &form.outputs, candidate, loose)?;
            let lie = |name, reads: bool, writes: bool| Lie {
                name,
                inputs: if reads { inputs_in.clone() } else { inputs.clone() },
                outputs: if writes { outputs_in.clone() } else { outputs.clone() },
                shared: None,
            };
            let any = |slices: &[Option<Slice>]| slices.iter().any(Option::is_some);
            let (reads, writes) = (reads && any(&inputs_in), writes && any(&outputs_in));
            if reads && writes {
                lies.push(lie(name, true, true));
            }
            if !loose {
                lies.extend(reads.then(|| lie("inputs are slices", true, false)));
                lies.extend(writes.then(|| lie("outputs are slices", false, true)));
            }
        }
        Ok(lies)
    }

    /// A slice for each operand that the planner could lay so, no two of them alike.
    fn slices(
        &self,
        tensors: &[TensorId],
        layouts: &[Layout],
        candidate: &Candidate,
        loose: bool,
    ) -> Result<Vec<Option<Slice>>> {
        /// What libraries ask of rows and addresses, in elements of a byte.
        const EVEN: usize = 16;
        let one = |(number, (&tensor, &layout)): (usize, (&TensorId, &Layout))| {
            let dense = operand(self.network, tensor, layout, self.binding)?;
            let blocked = layout == Layout::Blocked16;
            let channels = dense.shape.get(1).copied().unwrap_or(0);
            let apart = dense.is_empty() || channels == 0 || self.network[tensor].constant().is_some();
            let uneven = loose && (blocked || candidate.kernel.alignment() > dense.dtype.size());
            if apart || uneven || (blocked && !channels.is_multiple_of(EVEN)) {
                return Ok(None);
            }
            Ok(Some(match loose {
                true => Slice {
                    start: 1 + number,
                    parent: channels + 4 + 2 * number,
                },
                false => Slice {
                    start: EVEN * (1 + number),
                    parent: channels.next_multiple_of(EVEN) + EVEN * (2 + 2 * number),
                },
            }))
        };
        tensors.iter().zip(layouts).enumerate().map(one).collect()
    }

    /// Runs a kernel in a form.
    ///
    /// # Errors
    /// If an operand has no shape; what the kernel fails with stands in the outcome.
    pub fn outcome(&self, candidate: &Candidate, form: &Form, lie: &Lie) -> Result<Outcome> {
        let mut inputs = self.operands(&candidate.inputs, &form.inputs, &lie.inputs)?;
        let outputs = self.operands(&candidate.outputs, &form.outputs, &lie.outputs)?;
        if let (Some((input, _)), Alias::None) = (lie.shared, candidate.kernel.alias(form)) {
            inputs[input].in_place = true;
        }
        let words = |operands: &[Operand]| operands.iter().map(Operand::describe).collect::<Vec<_>>().join(", ");
        let mut outcome = Outcome {
            kernel: candidate.kernel.name(),
            form: format!(
                "{} -> {}{}, {}",
                words(&inputs),
                words(&outputs),
                form.tactic.suffix(),
                lie.name
            ),
            tactic: form.tactic.to_string(),
            implementation: String::new(),
            outputs: vec![],
            fault: None,
        };
        let request = Request {
            form,
            inputs: &inputs,
            outputs: &outputs,
            binding: self.binding,
            opt: self.binding,
            threads: self.threads,
        };
        match self.launch(candidate, &request, lie) {
            Ok((implementation, found)) => {
                outcome.implementation = implementation;
                for ((tensor, slice), (operand, bytes)) in candidate
                    .outputs
                    .iter()
                    .zip(&lie.outputs)
                    .zip(outputs.iter().zip(found))
                {
                    let (array, intact) = unpack(&bytes, operand, *slice)?;
                    if !intact {
                        let what = "a kernel wrote beside its output, or left padding that is not zero";
                        outcome
                            .fault
                            .get_or_insert(Error::new(ErrorKind::Internal, what).tensor(&self.network[*tensor].name));
                    }
                    let name = self.network[*tensor].name.clone();
                    outcome.outputs.push((name, array, self.values[tensor].clone()));
                }
            }
            Err(error) => outcome.fault = Some(error),
        }
        Ok(outcome)
    }

    /// Runs a kernel, where its provider wants it run; gives its implementation, and the memory around each output.
    fn launch(&self, candidate: &Candidate, request: &Request, lie: &Lie) -> Result<(String, Vec<Vec<u8>>)> {
        if request.outputs.iter().all(Operand::is_empty) {
            let nothing = request.outputs.iter().map(|_| vec![]).collect();
            return Ok(("nothing to compute".into(), nothing));
        }
        let mut launched = None;
        self.provider.run(request.threads, &mut || {
            launched = Some(self.launch_here(candidate, request, lie)?);
            Ok(())
        })?;
        launched.ok_or_else(|| Error::internal("the provider did not run the job"))
    }

    fn launch_here(&self, candidate: &Candidate, request: &Request, lie: &Lie) -> Result<(String, Vec<Vec<u8>>)> {
        let stream = &*self.provider.device().stream()?;
        let value = |tensor: &TensorId| self.network[*tensor].constant().unwrap_or_else(|| &self.values[tensor]);
        let given: Vec<Vec<u8>> = (candidate.inputs.iter().zip(request.inputs).zip(&lie.inputs))
            .map(|((tensor, operand), slice)| pack(value(tensor), operand, *slice))
            .collect();
        let room: Vec<Vec<u8>> = (request.outputs.iter().zip(&lie.outputs))
            .map(|(operand, slice)| vec![POISON; extent(operand, *slice)])
            .collect();
        let from = given.iter().map(|bytes| self.poisoned(bytes.len(), stream));
        let from = from.collect::<Result<Vec<_>>>()?;
        let to = room.iter().map(|bytes| self.poisoned(bytes.len(), stream));
        let to = to.collect::<Result<Vec<_>>>()?;
        let inputs = addresses(&from, request.inputs, &lie.inputs);
        let mut outputs = addresses(&to, request.outputs, &lie.outputs);
        if let Some((input, output)) = lie.shared {
            outputs[output] = inputs[input];
        }
        let prepared = candidate.kernel.prepare(request)?;
        let runs = if prepared.tier == Tier::Reference { 1 } else { RUNS };
        let mut instance = prepared.finish()?;
        let workspace = self.poisoned(instance.workspace, stream)?;
        for _ in 0..runs {
            for (memory, bytes) in from.iter().zip(&given).chain(to.iter().zip(&room)) {
                self.copy(memory.address(), bytes.as_ptr(), bytes.len(), stream)?;
            }
            instance.launch(&Call {
                inputs: &inputs.iter().map(|address| address.cast_const()).collect::<Vec<_>>(),
                outputs: &outputs,
                workspace: workspace.address(),
                stream: stream.raw(),
            })?;
            stream.synchronize()?;
            instance.finished()?;
        }
        let mut found = room;
        for (number, bytes) in found.iter_mut().enumerate() {
            let memory = match lie.shared {
                Some((input, output)) if output == number => &from[input],
                _ => &to[number],
            };
            self.copy(bytes.as_mut_ptr(), memory.address().cast_const(), bytes.len(), stream)?;
        }
        Ok((instance.implementation, found))
    }

    /// Memory of the provider's that holds [`POISON`].
    fn poisoned(&self, bytes: usize, stream: &dyn Stream) -> Result<Box<dyn Memory>> {
        let memory = self.provider.device().allocate(bytes)?;
        if (1..LARGEST_POISONED).contains(&bytes) {
            self.copy(memory.address(), vec![POISON; bytes].as_ptr(), bytes, stream)?;
        }
        Ok(memory)
    }

    /// Copies between the processor's memory and the provider's, either way, and waits for it.
    fn copy(&self, to: *mut u8, from: *const u8, bytes: usize, stream: &dyn Stream) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let Some(transfer) = self.provider.transfer() else {
            // SAFETY: both are allocations of at least so many bytes, made by this file, and never the same one.
            unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
            return Ok(());
        };
        let run = Operand::dense(DType::UInt8, vec![1, bytes], Layout::Plain);
        let operands = [run];
        let form = transfer.forms().remove(0);
        let mut instance = transfer
            .prepare(&Request {
                form: &form,
                inputs: &operands,
                outputs: &operands,
                binding: self.binding,
                opt: self.binding,
                threads: self.threads,
            })?
            .finish()?;
        let workspace = self.provider.device().allocate(instance.workspace)?;
        instance.launch(&Call {
            inputs: &[from],
            outputs: &[to],
            workspace: workspace.address(),
            stream: stream.raw(),
        })?;
        stream.synchronize()
    }
}

/// Where operands begin.
fn addresses(memories: &[Box<dyn Memory>], operands: &[Operand], slices: &[Option<Slice>]) -> Vec<*mut u8> {
    let start = |(operand, slice): (&Operand, &Option<Slice>)| {
        slice.map_or(0, |slice| operand.channel(slice.start) * operand.dtype.size())
    };
    let starts = operands.iter().zip(slices).map(start);
    memories
        .iter()
        .zip(starts)
        .map(|(memory, start)| memory.address().wrapping_add(start))
        .collect()
}

/// Bytes of the tensor that an operand is, or is a slice of.
fn extent(operand: &Operand, slice: Option<Slice>) -> usize {
    let mut shape = operand.shape.clone();
    if let Some(slice) = slice {
        shape[1] = slice.parent;
    }
    operand.layout.bytes(operand.dtype, &shape)
}

/// For each element of an operand, row-major, its place in the memory around it.
fn places(operand: &Operand, slice: Option<Slice>) -> Vec<usize> {
    let start = slice.map_or(0, |slice| operand.channel(slice.start));
    operand.places().into_iter().map(|place| start + place).collect()
}

/// An array in the memory of an operand, with [`POISON`] around it; padding of blocks is zero.
fn pack(array: &Array, operand: &Operand, slice: Option<Slice>) -> Vec<u8> {
    let size = operand.dtype.size();
    let around = if slice.is_some() { POISON } else { 0 };
    let mut bytes = vec![around; extent(operand, slice)];
    for (element, place) in array.bytes().chunks(size).zip(places(operand, slice)) {
        bytes[place * size..][..size].copy_from_slice(element);
    }
    bytes
}

/// The array in the memory of an operand, and whether what lies around it is as it was; the padding of blocks must be zero.
fn unpack(bytes: &[u8], operand: &Operand, slice: Option<Slice>) -> Result<(Array, bool)> {
    let size = operand.dtype.size();
    let around = if slice.is_some() { POISON } else { 0 };
    let mut rest = bytes.to_vec();
    let mut elements = vec![];
    for place in places(operand, slice) {
        elements.extend_from_slice(&bytes[place * size..][..size]);
        rest[place * size..][..size].fill(around);
    }
    let intact = rest.iter().all(|&byte| byte == around);
    Ok((
        Array::from_bytes(operand.dtype, operand.shape.clone(), &elements)?,
        intact,
    ))
}
