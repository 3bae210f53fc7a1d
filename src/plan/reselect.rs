//! Forms for sizes at which the chosen ones have a reference implementation alone, or one that only time could justify, by
//! rules: nothing is timed.

use crate::error::{Error, Result};
use crate::network::TensorId;
use crate::network::dim::Binding;
use crate::plan::choose::{Choice, choose};
use crate::plan::cover::Group;
use crate::plan::layout::Layout;
use crate::plan::prepare::{Prepared, create};
use crate::plan::program::{Program, SlotId, Step, operand};
use crate::plan::timing::{NAIVE, TimingCache};
use crate::plan::tuning::Tuner;
use crate::plan::{Form, Instance, Kernel, Request, Settings};
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
    pub fn better(&mut self, prepared: &Prepared) -> Result<Option<Arc<Program>>> {
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
        let forms = self.forms(program, prepared.threads)?;
        let chosen = kernels(program).map(|step| &step.form);
        match chosen.eq(&forms) {
            true => Ok(None),
            false => program.in_forms(forms).map(Some),
        }
    }

    /// Whether a step should have another form: it is on a reference implementation, or on a fallback that is not what was
    /// chosen, or was chosen far from these sizes.
    fn is_slow(&self, prepared: &Prepared, step: &Step, instance: &dyn Instance) -> Result<bool> {
        if !instance.fallback() || instance.naive() || self.is_far(&prepared.program, step)? {
            return Ok(instance.naive() || instance.fallback());
        }
        let chosen = instance_of(prepared, step, &step.form, &prepared.program.opt);
        Ok(chosen.is_ok_and(|chosen| !chosen.fallback()))
    }

    /// Whether the sizes of a step are so far from those at which its form was chosen that this says nothing.
    fn is_far(&self, program: &Program, step: &Step) -> Result<bool> {
        /// In number of elements.
        const FAR: usize = 16;
        let Some(&slot) = step.outputs.first() else {
            return Ok(false);
        };
        let elements = |binding| {
            let tensor = program.slots[slot].tensor;
            Ok::<_, Error>(operand(&program.network, tensor, Layout::Plain, binding)?.elements())
        };
        let (here, there) = (elements(self.binding)?, elements(&program.opt)?);
        Ok(here / FAR > there || there / FAR > here)
    }

    /// Looks at all forms of the kernel of a step that is slow in its own; whether there is a better one.
    fn look(&mut self, prepared: &Prepared, step: &Step) -> Result<bool> {
        let known = self.seen.remove(&address(&*step.kernel)).unwrap_or_default();
        let mut seen = HashMap::from([(step.form.clone(), true)]);
        for form in prepared
            .program
            .forms(step)
            .into_iter()
            .filter(|form| *form != step.form)
        {
            let slow = match known.get(&form) {
                Some(&slow) => slow,
                // A form that does not fit these sizes is no better.
                None => match instance_of(prepared, step, &form, self.binding) {
                    Ok(instance) => instance.naive() || instance.fallback(),
                    Err(_) => true,
                },
            };
            seen.insert(form, slow);
        }
        let better = seen.values().any(|slow| !slow);
        self.seen.insert(address(&*step.kernel), seen);
        Ok(better)
    }

    /// The form of each kernel: that which it has, unless that is known to be slow or another one saves reorders.
    fn forms(&self, program: &Program, threads: usize) -> Result<Vec<Form>> {
        let settings = Settings {
            threads,
            ..Settings::default()
        };
        let tuner = Tuner {
            network: &program.network,
            providers: &program.providers,
            settings: &settings,
            opt: self.binding,
            cache: &TimingCache::default(),
            times: Default::default(),
            notes: vec![],
        };
        let groups: Vec<Group> = kernels(program).map(|step| program.group(step)).collect();
        let (edges, numbers) = tuner.edges(&groups)?;
        let choices = kernels(program).map(|step| self.choice(program, step, &numbers));
        let choices = choices.collect::<Result<Vec<_>>>()?;
        let chosen = choose(&choices, &edges).into_iter().zip(choices);
        Ok(chosen
            .map(|(form, mut choice)| choice.forms.swap_remove(form))
            .collect())
    }

    fn choice(&self, program: &Program, step: &Step, numbers: &HashMap<TensorId, usize>) -> Result<Choice> {
        let seen = self.seen.get(&address(&*step.kernel));
        let mut forms = program.forms(step);
        if !self.is_far(program, step)? {
            // That which won near these sizes goes first.
            forms.sort_by_key(|form| *form != step.form);
        }
        let apart = program.providers[step.provider].reorder_time(0.0);
        let time = |(number, form): (usize, &Form)| match seen.and_then(|seen| seen.get(form)) {
            Some(true) => NAIVE as f64,
            _ => number as f64 * apart,
        };
        let numbers = |slots: &[SlotId]| slots.iter().map(|&slot| numbers[&program.slots[slot].tensor]).collect();
        Ok(Choice {
            times: forms.iter().enumerate().map(time).collect(),
            inputs: numbers(&step.inputs),
            outputs: numbers(&step.outputs),
            forms,
        })
    }
}

/// The steps that run layers.
pub(super) fn kernels(program: &Program) -> impl Iterator<Item = &Step> {
    program.steps.iter().filter(|step| !step.layers.is_empty())
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
