//! Looks whether a program suits sizes at which its forms were not chosen, and takes it in other forms where it does not.

use crate::error::Result;
use crate::network::dim::Binding;
use crate::plan::layout::Layout;
use crate::plan::program::{SlotId, Step, operand};
use crate::plan::reselect::{forms, is_far};
use crate::plan::{Form, Instance, Kernel, Request};
use crate::runtime::executable::Executable;
use crate::runtime::prepare::{Prepared, create};
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
    pub fn better(&mut self, prepared: &Prepared) -> Result<Option<Arc<Executable>>> {
        let program = &prepared.program;
        let mut hopeful = false;
        for (number, instance) in &prepared.instances {
            let step = &program.steps[*number];
            let alone = || program.forms(step).len() < 2;
            if self.is_slow(prepared, step, &**instance)? && !alone() {
                hopeful |= self.look(prepared, step)?;
            }
        }
        if !hopeful {
            return Ok(None);
        }
        let seen = |step: &Step, form: &Form| self.seen.get(&address(&*step.kernel))?.get(form).copied();
        let forms = forms(program, self.binding, prepared.threads, &seen)?;
        let chosen = program.kernels().map(|step| &step.form);
        match chosen.eq(&forms) {
            true => Ok(None),
            false => program.in_forms(forms).map(Some),
        }
    }

    /// Whether a step should have another form: it is on a reference implementation, or on a fallback that is not what was
    /// chosen, or was chosen far from these sizes.
    fn is_slow(&self, prepared: &Prepared, step: &Step, instance: &dyn Instance) -> Result<bool> {
        if !instance.is_library_fallback() || instance.is_reference() || is_far(&prepared.program, step, self.binding)?
        {
            return Ok(instance.is_reference() || instance.is_library_fallback());
        }
        let chosen = instance_of(prepared, step, &step.form, &prepared.program.opt);
        Ok(chosen.is_ok_and(|chosen| !chosen.is_library_fallback()))
    }

    /// Looks at all forms of the kernel of a step that is slow in its own; whether there is a better one.
    fn look(&mut self, prepared: &Prepared, step: &Step) -> Result<bool> {
        let known = self.seen.remove(&address(&*step.kernel)).unwrap_or_default();
        let mut seen = HashMap::from([(step.form.clone(), true)]);
        let forms = prepared.program.forms(step).into_iter();
        for form in forms.filter(|form| *form != step.form) {
            let slow = match known.get(&form) {
                Some(&slow) => slow,
                // A form that does not fit these sizes is no better.
                None => match instance_of(prepared, step, &form, self.binding) {
                    Ok(instance) => instance.is_reference() || instance.is_library_fallback(),
                    Err(_) => true,
                },
            };
            seen.insert(form, slow);
        }
        let better = seen.values().any(|slow| !slow);
        self.seen.insert(address(&*step.kernel), seen);
        Ok(better)
    }
}

fn address(kernel: &dyn Kernel) -> *const () {
    std::ptr::from_ref(kernel).cast()
}

/// The kernel of a step in another form.
fn instance_of(prepared: &Prepared, step: &Step, form: &Form, binding: &Binding) -> Result<Box<dyn Instance>> {
    let program = &prepared.program;
    let operands = |slots: &[SlotId], layouts: &[Layout]| {
        let each = slots.iter().zip(layouts);
        each.map(|(&slot, &layout)| operand(&program.network, program.slots[slot].tensor, layout, binding))
            .collect::<Result<Vec<_>>>()
    };
    let request = Request {
        form,
        inputs: &operands(&step.inputs, &form.inputs)?,
        outputs: &operands(&step.outputs, &form.outputs)?,
        binding,
        threads: prepared.threads,
    };
    create(program, step, &request)
}
