//! Forms for sizes that the chosen ones do not suit, by rules: nothing is timed.

use crate::error::{Error, Result};
use crate::network::TensorId;
use crate::network::dim::Binding;
use crate::plan::choose::{Choice, choose};
use crate::plan::cover::Group;
use crate::plan::layout::Layout;
use crate::plan::program::{Command, Program, SlotId, operand};
use crate::plan::timing::{REFERENCE_TIME, TimingCache};
use crate::plan::tuning::Tuner;
use crate::plan::{Form, Settings};
use std::collections::HashMap;

/// What is known of forms at other sizes: whether a command would be slow in one; `None` where nobody looked.
pub type IsSlow<'a> = &'a dyn Fn(&Command, &Form) -> Option<bool>;

/// The form of each of [`Program::kernels`] at these sizes: that which it has, unless that is known to be slow or another one
/// saves reorders.
///
/// # Errors
/// If a tensor has no size.
pub fn forms(program: &Program, binding: &Binding, threads: usize, is_slow: IsSlow) -> Result<Vec<Form>> {
    let settings = Settings {
        threads,
        ..Settings::default()
    };
    let tuner = Tuner {
        network: &program.network,
        providers: &program.providers,
        settings: &settings,
        opt: binding,
        cache: &TimingCache::default(),
        times: Default::default(),
        notes: vec![],
    };
    let groups: Vec<Group> = program.kernels().map(|command| program.group(command)).collect();
    let (edges, numbers) = tuner.edges(&groups)?;
    let choices = program
        .kernels()
        .map(|command| choice(program, command, binding, &numbers, is_slow));
    let choices = choices.collect::<Result<Vec<_>>>()?;
    let chosen = choose(&choices, &edges).into_iter().zip(choices);
    Ok(chosen
        .map(|(form, mut choice)| choice.forms.swap_remove(form))
        .collect())
}

fn choice(
    program: &Program,
    command: &Command,
    binding: &Binding,
    numbers: &HashMap<TensorId, usize>,
    is_slow: IsSlow,
) -> Result<Choice> {
    let mut forms = program.forms(command);
    if !is_far(program, command, binding)? {
        // That which won near these sizes goes first.
        forms.sort_by_key(|form| *form != command.form);
    }
    let apart = program.providers[command.provider].reorder_time(0.0);
    let time = |(number, form): (usize, &Form)| match is_slow(command, form) {
        Some(true) => REFERENCE_TIME as f64,
        _ => number as f64 * apart,
    };
    let numbers = |slots: &[SlotId]| slots.iter().map(|&slot| numbers[&program.slots[slot].tensor]).collect();
    Ok(Choice {
        times: forms.iter().enumerate().map(time).collect(),
        inputs: numbers(&command.inputs),
        outputs: numbers(&command.outputs),
        forms,
    })
}

/// Whether sizes are so far from those at which the form of a command was chosen that this says nothing.
///
/// # Errors
/// If a tensor has no size.
pub fn is_far(program: &Program, command: &Command, binding: &Binding) -> Result<bool> {
    /// In number of elements.
    const FAR: usize = 16;
    let Some(&slot) = command.outputs.first() else {
        return Ok(false);
    };
    let elements = |binding| {
        let tensor = program.slots[slot].tensor;
        Ok::<_, Error>(operand(&program.network, tensor, Layout::Plain, binding)?.elements())
    };
    let (here, there) = (elements(binding)?, elements(&program.opt)?);
    Ok(here / FAR > there || there / FAR > here)
}
