//! Looks whether a program suits sizes at which its forms were not chosen, and takes it in other forms where it does not.

use crate::error::Result;
use crate::network::dim::Binding;
use crate::plan::layout::Layout;
use crate::plan::program::{Command, SlotId, operand};
use crate::plan::reselect::{forms, is_far};
use crate::plan::{Form, Kernel, Prepared, Request, Tier};
use crate::runtime::executable::Executable;
use crate::runtime::prepare::{PreparedProgram, create};
use std::collections::HashMap;
use std::sync::Arc;

/// Chooses forms again until none is left that does better.
pub(super) struct Reselect<'a> {
    binding: &'a Binding,
    /// Of the forms of a kernel, by its address, those that were looked at: whether they are slow.
    seen: HashMap<*const (), HashMap<Form, bool>>,
}

impl<'a> Reselect<'a> {
    pub fn new(binding: &'a Binding) -> Self {
        Self {
            binding,
            seen: HashMap::new(),
        }
    }

    /// The program in other forms, with the same kernels; `None` where no kernel is slow that has a form which is not.
    ///
    /// # Errors
    /// If a tensor has no size.
    pub fn better(&mut self, prepared: &PreparedProgram) -> Result<Option<Arc<Executable>>> {
        let program = &prepared.program;
        let mut hopeful = false;
        for (number, in_its_form) in &prepared.commands {
            let command = &program.commands[*number];
            let alone = || program.forms(command).len() < 2;
            if self.is_slow(prepared, command, in_its_form.tier)? && !alone() {
                hopeful |= self.look(prepared, command)?;
            }
        }
        if !hopeful {
            return Ok(None);
        }
        let seen = |command: &Command, form: &Form| self.seen.get(&address(&*command.kernel))?.get(form).copied();
        let forms = forms(program, self.binding, prepared.threads, &seen)?;
        let chosen = program.kernels().map(|command| &command.form);
        match chosen.eq(&forms) {
            true => Ok(None),
            false => program.in_forms(forms).map(Some),
        }
    }

    /// Whether a command should have another form: it is on a reference implementation, or on a fallback that is not what was
    /// chosen, or was chosen far from these sizes.
    fn is_slow(&self, prepared: &PreparedProgram, command: &Command, tier: Tier) -> Result<bool> {
        if tier != Tier::LibraryFallback || is_far(&prepared.program, command, self.binding)? {
            return Ok(tier != Tier::Specialised);
        }
        let chosen = in_form(prepared, command, &command.form, &prepared.program.opt);
        Ok(chosen.is_ok_and(|chosen| chosen.tier != Tier::LibraryFallback))
    }

    /// Looks at all forms of the kernel of a command that is slow in its own; whether there is a better one.
    fn look(&mut self, prepared: &PreparedProgram, command: &Command) -> Result<bool> {
        let known = self.seen.remove(&address(&*command.kernel)).unwrap_or_default();
        let mut seen = HashMap::from([(command.form.clone(), true)]);
        let forms = prepared.program.forms(command).into_iter();
        for form in forms.filter(|form| *form != command.form) {
            let slow = match known.get(&form) {
                Some(&slow) => slow,
                // A form that does not fit these sizes is no better.
                None => {
                    !in_form(prepared, command, &form, self.binding).is_ok_and(|other| other.tier == Tier::Specialised)
                }
            };
            seen.insert(form, slow);
        }
        let better = seen.values().any(|slow| !slow);
        self.seen.insert(address(&*command.kernel), seen);
        Ok(better)
    }
}

fn address(kernel: &dyn Kernel) -> *const () {
    std::ptr::from_ref(kernel).cast()
}

/// The kernel of a command in another form.
fn in_form(prepared: &PreparedProgram, command: &Command, form: &Form, binding: &Binding) -> Result<Prepared> {
    let program = &prepared.program;
    let operands = |slots: &[SlotId], layouts: &[Layout]| {
        let each = slots.iter().zip(layouts);
        each.map(|(&slot, &layout)| operand(&program.network, program.slots[slot].tensor, layout, binding))
            .collect::<Result<Vec<_>>>()
    };
    let request = Request {
        form,
        inputs: &operands(&command.inputs, &form.inputs)?,
        outputs: &operands(&command.outputs, &form.outputs)?,
        binding,
        opt: &program.opt,
        threads: prepared.threads,
    };
    create(program, command, &request)
}
