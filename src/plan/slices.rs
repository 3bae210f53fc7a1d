//! Tensors whose parts had better lie apart: slices save the copy of a Concat, but some kernels take longer for them.

use crate::error::{ErrorKind, Result};
use crate::network::TensorId;
use crate::plan::Alias;
use crate::plan::effort::Effort;
use crate::plan::layout::Operand;
use crate::plan::placement::{Placement, place};
use crate::plan::program::{Command, Program, SlotId};
use crate::plan::timing::REFERENCE_TIME;
use crate::plan::tuning::Tuner;
use std::collections::BTreeSet;

/// The tensors of a program, as it is placed, for whose slices kernels lose more time than copies would take.
///
/// # Errors
/// If a tensor has no size, or the caller ends the work.
pub(super) fn losing(program: &Program, tuner: &mut Tuner) -> Result<BTreeSet<TensorId>> {
    let operands = program.operands(&program.opt)?;
    let places = place(program, operands.clone());
    let slices = (0..operands.len()).filter(|&slot| places.operands[slot].parent_channels.is_some());
    let wholes: BTreeSet<SlotId> = slices.map(|slot| places.root(slot)).collect();
    let mut found = BTreeSet::new();
    for whole in wholes {
        let slices = Slices {
            operands: &operands,
            places: &places,
            whole,
        };
        let saved: f64 = program.commands.iter().map(|command| slices.saved(command)).sum();
        let mut lost = 0.0;
        for command in &program.commands {
            lost += slices.lost(command, tuner)?;
        }
        if lost > saved {
            found.insert(program.slots[whole].tensor);
        }
    }
    Ok(found)
}

/// The slices of one tensor.
struct Slices<'a> {
    /// Each slot by itself.
    operands: &'a [Operand],
    places: &'a Placement,
    whole: SlotId,
}

impl Slices<'_> {
    fn has(&self, slot: SlotId) -> bool {
        self.places.operands[slot].parent_channels.is_some() && self.places.root(slot) == self.whole
    }

    /// The nanoseconds of a copy that is not needed.
    fn saved(&self, command: &Command) -> f64 {
        let (parts, whole) = match command.alias() {
            Alias::Concat(_) => (&command.inputs, command.outputs[0]),
            Alias::Split(..) => (&command.outputs, command.inputs[0]),
            _ => return 0.0,
        };
        let bytes = |slots: &[SlotId]| slots.iter().map(|&slot| self.operands[slot].bytes()).sum::<usize>() as f64;
        let shared: Vec<SlotId> = parts
            .iter()
            .copied()
            .filter(|&part| self.has(part) && self.places.shares(part, whole))
            .collect();
        command.time * bytes(&shared) / bytes(parts).max(1.0)
    }

    /// How many nanoseconds longer a kernel takes for slices, if it is one for which that may be much.
    fn lost(&self, command: &Command, tuner: &mut Tuner) -> Result<f64> {
        let timed = command.kernel.times_slices(&command.form) && command.alias() == Alias::None && command.time > 0.0;
        let touched = command
            .inputs
            .iter()
            .chain(&command.outputs)
            .any(|&slot| self.has(slot));
        if !timed || !touched || Effort::of(tuner.settings, &command.form, &[]) != Effort::Time {
            return Ok(0.0);
        }
        let lie = |slots: &[SlotId]| {
            let one = |&slot: &SlotId| match self.has(slot) {
                true => self.places.operands[slot].clone(),
                false => self.operands[slot].clone(),
            };
            slots.iter().map(one).collect::<Vec<_>>()
        };
        let (inputs, outputs) = (lie(&command.inputs), lie(&command.outputs));
        match tuner.time_of(command.provider, &*command.kernel, &command.form, &inputs, &outputs) {
            Ok(time) => Ok(time as f64 - command.time),
            Err(error) if error.kind() == ErrorKind::Interrupted => Err(error),
            Err(_) => Ok(REFERENCE_TIME as f64),
        }
    }
}
