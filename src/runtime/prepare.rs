//! The kernels of a program at concrete shapes, before they have memory.

use crate::error::{Error, ErrorKind, Result};
use crate::interrupt;
use crate::network::dim::Binding;
use crate::plan::layout::Operand;
use crate::plan::placement::{Placement, is_ahead, place};
use crate::plan::program::{Program, Step, operand};
use crate::plan::{Alias, Instance, Prepared, Request, Tier, build_jobs};
use crate::runtime::executable::Executable;
use crate::runtime::instance::describe;
use crate::runtime::reselect::Reselect;
use std::sync::Arc;

/// A program at concrete shapes: where its operands lie, and the kernel of each step that has something to do.
pub(super) struct PreparedProgram {
    pub program: Arc<Executable>,
    pub places: Placement,
    pub steps: Vec<(usize, Prepared)>,
    pub threads: usize,
}

/// Prepares the kernels of a program. Where some have a reference implementation alone in the forms that were chosen at
/// other shapes, forms are chosen again.
///
/// # Errors
/// If a kernel can't serve these shapes; names the layer.
pub(super) fn prepare(program: Arc<Executable>, binding: &Binding) -> Result<PreparedProgram> {
    let mut prepared = as_it_is(program, binding)?;
    let mut reselect = Reselect::new(binding);
    while let Some(program) = reselect.better(&prepared)? {
        match as_it_is(program, binding) {
            Ok(other) => prepared = other,
            // What was chosen by rules alone need not fit the shapes; slow kernels that do are at hand.
            Err(_) => break,
        }
    }
    Ok(prepared)
}

fn as_it_is(program: Arc<Executable>, binding: &Binding) -> Result<PreparedProgram> {
    let operands = program
        .slots
        .iter()
        .map(|slot| operand(&program.network, slot.tensor, slot.layout, binding));
    let operands = operands.collect::<Result<Vec<_>>>()?;
    let threads = threads_for(&program, &operands);
    let places = place(&program, operands);
    let mut steps = vec![];
    for step in (0..program.steps.len()).filter(|&step| !is_ahead(&program, step)) {
        interrupt::poll()?;
        let prepared = prepare_step(&program, step, &places, binding, threads)
            .map_err(|e| e.layer(describe(&program, &program.steps[step])))?;
        steps.extend(prepared.map(|prepared| (step, prepared)));
    }
    Ok(PreparedProgram {
        program,
        places,
        steps,
        threads,
    })
}

/// A program that took less than this when it was tuned runs on the caller's thread: handing over costs more.
const SMALL: f64 = 15_000.0;

/// One thread for a program that is over before others could help.
fn threads_for(program: &Program, operands: &[Operand]) -> usize {
    let time: f64 = program.steps.iter().map(|s| s.time).sum();
    /// Elements that a kernel goes through in about the time of a hand-over.
    const FEW: usize = 4096;
    // Reorders and what only moves data are not timed; the sizes of their operands tell enough.
    let timed = |step: &Step| step.time > 0.0 || step.layers.is_empty() || step.alias() != Alias::None;
    let timed = program.steps.iter().all(timed);
    let short = timed && time < SMALL && operands.iter().all(|o| o.elements() <= FEW);
    if short { 1 } else { program.threads }
}

/// Prepares the kernel of a step; `None` if there is nothing to do: no element to compute, or operands that lie in one another.
pub(super) fn prepare_step(
    program: &Executable,
    step: usize,
    places: &Placement,
    binding: &Binding,
    threads: usize,
) -> Result<Option<Prepared>> {
    let step = &program.steps[step];
    with_request(program, step, places, binding, threads, |request| {
        create(program, step, request).or_else(|error| {
            let (tier, instance) = in_another_tactic(program, step, request, error)?;
            Ok(Prepared::from(instance).with_tier(tier))
        })
    })
    .transpose()
}

/// What `with` does with the request for the kernel of a step; `None` if there is nothing to do.
fn with_request<T>(
    program: &Executable,
    step: &Step,
    places: &Placement,
    binding: &Binding,
    threads: usize,
    with: impl FnOnce(&Request) -> T,
) -> Option<T> {
    let mut inputs: Vec<_> = step.inputs.iter().map(|&s| places.operands[s].clone()).collect();
    let mut outputs: Vec<_> = step.outputs.iter().map(|&s| places.operands[s].clone()).collect();
    if outputs.iter().all(Operand::is_empty) {
        return None;
    }
    match step.alias() {
        Alias::Reshape | Alias::Bitcast(_) if places.shares(step.inputs[0], step.outputs[0]) => return None,
        Alias::Concat(_) => {
            for (operand, &slot) in inputs.iter_mut().zip(&step.inputs) {
                operand.in_place = places.shares(slot, step.outputs[0]);
            }
            if inputs.iter().all(|o| o.in_place) {
                return None;
            }
        }
        Alias::Split(..) => {
            for (operand, &slot) in outputs.iter_mut().zip(&step.outputs) {
                operand.in_place = places.shares(slot, step.inputs[0]);
            }
            if outputs.iter().all(|o| o.in_place) {
                return None;
            }
        }
        _ => {
            for (i, o) in step.kernel.in_place() {
                inputs[i].in_place = places.shares(step.inputs[i], step.outputs[o]);
            }
        }
    }
    Some(with(&Request {
        form: &step.form,
        inputs: &inputs,
        outputs: &outputs,
        binding,
        opt: &program.opt,
        threads,
    }))
}

/// A kernel that can't serve these shapes in its form, in the first tactic with the same layouts that can; the report says so.
fn in_another_tactic(program: &Executable, step: &Step, request: &Request, error: Error) -> Result<(Tier, Instance)> {
    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::Memory) {
        return Err(error);
    }
    let chosen = &step.form;
    let others = program
        .forms(step)
        .into_iter()
        .filter(|form| form.tactic != chosen.tactic && form.inputs == chosen.inputs && form.outputs == chosen.outputs);
    for form in others {
        let request = Request {
            form: &form,
            ..*request
        };
        let other = create(program, step, &request).and_then(|prepared| {
            let tier = prepared.tier;
            Ok((tier, finish(program, step, prepared, request.threads)?))
        });
        if let Ok((tier, instance)) = other {
            program.note_replacement(format!(
                "{} runs as {} where its tactic {} does not serve the shapes of a call: {}",
                describe(program, step),
                instance.implementation,
                chosen.tactic,
                error.message(),
            ));
            return Ok((tier, instance));
        }
    }
    Err(error)
}

/// Prepares a kernel where its provider wants it made.
pub(super) fn create(program: &Program, step: &Step, request: &Request) -> Result<Prepared> {
    let mut prepared = None;
    program.providers[step.provider].run(request.threads, &mut || {
        prepared = Some(step.kernel.prepare(request)?);
        Ok(())
    })?;
    prepared.ok_or_else(|| Error::internal("the provider did not run the job"))
}

/// Makes the kernels of a program ready, after their jobs have run in parallel. One that fails runs in another tactic.
///
/// # Errors
/// If one can't be made; names the layer.
pub(super) fn finish_all(
    program: &Executable,
    mut steps: Vec<(usize, Prepared)>,
    places: &Placement,
    binding: &Binding,
    threads: usize,
) -> Result<Vec<(usize, Instance)>> {
    let jobs = steps
        .iter_mut()
        .flat_map(|(_, prepared)| std::mem::take(&mut prepared.jobs));
    build_jobs::run(jobs);
    let finished = steps.into_iter().map(|(number, prepared)| {
        interrupt::poll()?;
        let step = &program.steps[number];
        let another = |error| {
            let replace = |request: &Request| in_another_tactic(program, step, request, error);
            let other = with_request(program, step, places, binding, threads, replace);
            other.unwrap_or_else(|| Err(Error::internal("a step without work was prepared")))
        };
        let instance = finish(program, step, prepared, threads)
            .or_else(|error| another(error).map(|(_, instance)| instance))
            .map_err(|e| e.layer(describe(program, step)))?;
        Ok((number, instance))
    });
    finished.collect()
}

/// Makes a prepared kernel ready where its provider wants it made.
pub(super) fn finish(program: &Program, step: &Step, prepared: Prepared, threads: usize) -> Result<Instance> {
    if prepared.is_ready() {
        return prepared.finish();
    }
    let (mut prepared, mut instance) = (Some(prepared), None);
    program.providers[step.provider].run(threads, &mut || {
        instance = prepared.take().map(Prepared::finish).transpose()?;
        Ok(())
    })?;
    instance.ok_or_else(|| Error::internal("the provider did not run the job"))
}
