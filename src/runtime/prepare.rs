//! The kernels of a program at concrete shapes, before they have memory.

use crate::error::{Error, ErrorKind, Result};
use crate::interrupt;
use crate::network::dim::Binding;
use crate::plan::layout::Operand;
use crate::plan::placement::{Placement, is_ahead, place};
use crate::plan::program::{Command, Program};
use crate::plan::{Alias, Instance, Prepared, Request, Tier, build_jobs};
use crate::runtime::executable::Executable;
use crate::runtime::instance::describe;
use crate::runtime::reselect::Reselect;
use std::sync::Arc;

/// A program at concrete shapes: where its operands lie, and the kernel of each command that has something to do.
pub(super) struct PreparedProgram {
    pub program: Arc<Executable>,
    pub places: Placement,
    pub commands: Vec<(usize, Prepared)>,
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
    let operands = program.operands(binding)?;
    let threads = threads_for(&program, &operands);
    let places = place(&program, operands);
    let mut commands = vec![];
    for command in (0..program.commands.len()).filter(|&command| !is_ahead(&program, command)) {
        interrupt::poll()?;
        let prepared = prepare_command(&program, command, &places, binding, threads)
            .map_err(|e| e.layer(describe(&program, &program.commands[command])))?;
        commands.extend(prepared.map(|prepared| (command, prepared)));
    }
    Ok(PreparedProgram {
        program,
        places,
        commands,
        threads,
    })
}

/// A program that took less than this when it was tuned runs on the caller's thread: handing over costs more.
const SMALL: f64 = 15_000.0;

/// One thread for a program that is over before others could help.
fn threads_for(program: &Program, operands: &[Operand]) -> usize {
    let time: f64 = program.commands.iter().map(|s| s.time).sum();
    /// Elements that a kernel goes through in about the time of a hand-over.
    const FEW: usize = 4096;
    // Reorders and what only moves data are not timed; the sizes of their operands tell enough.
    let timed = |command: &Command| command.time > 0.0 || command.layers.is_empty() || command.alias() != Alias::None;
    let timed = program.commands.iter().all(timed);
    let short = timed && time < SMALL && operands.iter().all(|o| o.elements() <= FEW);
    if short { 1 } else { program.threads }
}

/// Prepares the kernel of a command; `None` if there is nothing to do: no element to compute, or operands that lie in one another.
pub(super) fn prepare_command(
    program: &Executable,
    command: usize,
    places: &Placement,
    binding: &Binding,
    threads: usize,
) -> Result<Option<Prepared>> {
    let command = &program.commands[command];
    with_request(program, command, places, binding, threads, |request| {
        create(program, command, request).or_else(|error| {
            let (tier, instance) = in_another_tactic(program, command, request, error)?;
            Ok(Prepared::from(instance).with_tier(tier))
        })
    })
    .transpose()
}

/// What `with` does with the request for the kernel of a command; `None` if there is nothing to do.
fn with_request<T>(
    program: &Executable,
    command: &Command,
    places: &Placement,
    binding: &Binding,
    threads: usize,
    with: impl FnOnce(&Request) -> T,
) -> Option<T> {
    let mut inputs: Vec<_> = command.inputs.iter().map(|&s| places.operands[s].clone()).collect();
    let mut outputs: Vec<_> = command.outputs.iter().map(|&s| places.operands[s].clone()).collect();
    if outputs.iter().all(Operand::is_empty) {
        return None;
    }
    match command.alias() {
        Alias::Reshape | Alias::Bitcast(_) if places.shares(command.inputs[0], command.outputs[0]) => return None,
        Alias::Concat(_) => {
            for (operand, &slot) in inputs.iter_mut().zip(&command.inputs) {
                operand.in_place = places.shares(slot, command.outputs[0]);
            }
            if inputs.iter().all(|o| o.in_place || o.is_empty()) {
                return None;
            }
        }
        Alias::Split(..) => {
            for (operand, &slot) in outputs.iter_mut().zip(&command.outputs) {
                operand.in_place = places.shares(slot, command.inputs[0]);
            }
            if outputs.iter().all(|o| o.in_place || o.is_empty()) {
                return None;
            }
        }
        _ => {
            for (i, o) in command.kernel.in_place() {
                inputs[i].in_place = places.shares(command.inputs[i], command.outputs[o]);
            }
        }
    }
    Some(with(&Request {
        form: &command.form,
        inputs: &inputs,
        outputs: &outputs,
        binding,
        opt: &program.opt,
        threads,
    }))
}

/// A kernel that can't serve these shapes in its form, in the first tactic with the same layouts that can; the report says so.
fn in_another_tactic(
    program: &Executable,
    command: &Command,
    request: &Request,
    error: Error,
) -> Result<(Tier, Instance)> {
    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::Memory) {
        return Err(error);
    }
    let chosen = &command.form;
    let others = program
        .forms(command)
        .into_iter()
        .filter(|form| form.tactic != chosen.tactic && form.inputs == chosen.inputs && form.outputs == chosen.outputs);
    for form in others {
        let request = Request {
            form: &form,
            ..*request
        };
        let other = create(program, command, &request).and_then(|prepared| {
            let tier = prepared.tier;
            Ok((tier, finish(program, command, prepared, request.threads)?))
        });
        if let Ok((tier, instance)) = other {
            program.note_replacement(format!(
                "{} runs as {} where its tactic {} does not serve the shapes of a call: {}",
                describe(program, command),
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
pub(super) fn create(program: &Program, command: &Command, request: &Request) -> Result<Prepared> {
    let mut prepared = None;
    program.providers[command.provider].run(request.threads, &mut || {
        prepared = Some(command.kernel.prepare(request)?);
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
    mut commands: Vec<(usize, Prepared)>,
    places: &Placement,
    binding: &Binding,
    threads: usize,
) -> Result<Vec<(usize, Instance)>> {
    let jobs = commands
        .iter_mut()
        .flat_map(|(_, prepared)| std::mem::take(&mut prepared.jobs));
    build_jobs::run(jobs);
    let finished = commands.into_iter().map(|(number, prepared)| {
        interrupt::poll()?;
        let command = &program.commands[number];
        let another = |error| {
            let replace = |request: &Request| in_another_tactic(program, command, request, error);
            let other = with_request(program, command, places, binding, threads, replace);
            other.unwrap_or_else(|| Err(Error::internal("a command without work was prepared")))
        };
        let instance = finish(program, command, prepared, threads)
            .or_else(|error| another(error).map(|(_, instance)| instance))
            .map_err(|e| e.layer(describe(program, command)))?;
        Ok((number, instance))
    });
    finished.collect()
}

/// Makes a prepared kernel ready where its provider wants it made.
pub(super) fn finish(program: &Program, command: &Command, prepared: Prepared, threads: usize) -> Result<Instance> {
    if prepared.is_ready() {
        return prepared.finish();
    }
    let (mut prepared, mut instance) = (Some(prepared), None);
    program.providers[command.provider].run(threads, &mut || {
        instance = prepared.take().map(Prepared::finish).transpose()?;
        Ok(())
    })?;
    instance.ok_or_else(|| Error::internal("the provider did not run the job"))
}
