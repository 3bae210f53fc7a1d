//! From kernels in their forms to the commands of a program.

use crate::device::Space;
use crate::error::{Error, Result};
use crate::network::{Source, TensorId};
use crate::plan::cover::Group;
use crate::plan::layout::Layout;
use crate::plan::program::{Command, Program, Slot, SlotId};
use crate::plan::{Form, Kernel, Tactic};
use std::collections::HashMap;
use std::sync::Arc;

/// Lays the commands, with reorders where a reader wants another layout, and transfers where it reads other memory.
pub(super) struct Emit<'a> {
    program: &'a mut Program,
    slots: HashMap<Slot, SlotId>,
    /// The layout in which a tensor is computed, and by whom.
    home: HashMap<TensorId, (Layout, usize)>,
}

impl<'a> Emit<'a> {
    /// Lays commands into a program that has none yet.
    pub fn new(program: &'a mut Program) -> Self {
        Self {
            program,
            slots: HashMap::new(),
            home: HashMap::new(),
        }
    }

    /// Lays a kernel that took so many nanoseconds.
    ///
    /// # Errors
    /// If an input can't be brought to where it is read.
    pub fn kernel(&mut self, group: Group, form: Form, time: f64) -> Result<()> {
        let candidate = group.candidate;
        let inputs = candidate.inputs.iter().zip(&form.inputs);
        let inputs = inputs.map(|(&t, &l)| self.read(t, l, group.provider));
        let inputs = inputs.collect::<Result<_>>()?;
        let space = self.program.providers[group.provider].space();
        let outputs = candidate.outputs.iter().zip(&form.outputs).map(|(&tensor, &layout)| {
            self.home.insert(tensor, (layout, group.provider));
            self.slot(Slot { tensor, layout, space })
        });
        let outputs = outputs.collect();
        self.program.commands.push(Command {
            provider: group.provider,
            kernel: candidate.kernel,
            form,
            inputs,
            outputs,
            layers: candidate.layers,
            time,
        });
        Ok(())
    }

    fn slot(&mut self, slot: Slot) -> SlotId {
        let slots = &mut self.program.slots;
        *self.slots.entry(slot).or_insert_with(|| {
            slots.push(slot);
            slots.len() - 1
        })
    }

    /// The slot of a tensor in a layout, for a reader: moved and reordered if it is not there yet.
    fn read(&mut self, tensor: TensorId, layout: Layout, reader: usize) -> Result<SlotId> {
        let space = self.program.providers[reader].space();
        let wanted = Slot { tensor, layout, space };
        if let Some(&slot) = self.slots.get(&wanted) {
            return Ok(slot);
        }
        let origin = self.origin(tensor);
        let (from, provider) = if origin == space {
            self.home.get(&tensor).copied().unwrap_or((Layout::Plain, reader))
        } else {
            self.fetch(tensor, origin, reader)?;
            (Layout::Plain, reader)
        };
        let source = self.slot(Slot { layout: from, ..wanted });
        if from == layout {
            return Ok(source);
        }
        let target = self.slot(wanted);
        let kernel = self.program.providers[provider].reorder(from, layout, &self.program.network[tensor].ty);
        self.copy(kernel, provider, source, target);
        Ok(target)
    }

    /// The memory in which a tensor is computed, or in which the caller's array or the constant lies.
    fn origin(&self, tensor: TensorId) -> Space {
        let program = &*self.program;
        if let Some(&(_, provider)) = self.home.get(&tensor) {
            return program.providers[provider].space();
        }
        let input = program.network.inputs().iter().position(|&input| input == tensor);
        input.map_or(Space::Host, |input| program.signature.inputs[input])
    }

    /// Brings a tensor to the memory of a reader, in the plain layout.
    fn fetch(&mut self, tensor: TensorId, origin: Space, reader: usize) -> Result<()> {
        let layout = Layout::Plain;
        let space = self.program.providers[reader].space();
        let giver = match self.home.get(&tensor) {
            Some(&(_, provider)) => provider,
            None => self.program.owner(origin)?,
        };
        let source = self.read(tensor, layout, giver)?;
        let device = if space == Space::Host { giver } else { reader };
        let target = self.slot(Slot { tensor, layout, space });
        let kernel = self.transfer(device)?;
        self.copy(kernel, device, source, target);
        Ok(())
    }

    /// The kernel that copies from and to a device's memory.
    fn transfer(&self, device: usize) -> Result<Arc<dyn Kernel>> {
        let kernel = self.program.providers[device].transfer();
        kernel.ok_or_else(|| Error::internal("a provider with memory of its own copies nothing there"))
    }

    fn copy(&mut self, kernel: Arc<dyn Kernel>, provider: usize, from: SlotId, to: SlotId) {
        let form = Form {
            tactic: Tactic::ONLY,
            inputs: vec![self.program.slots[from].layout],
            outputs: vec![self.program.slots[to].layout],
        };
        self.program.commands.push(Command {
            provider,
            kernel,
            form,
            inputs: vec![from],
            outputs: vec![to],
            layers: vec![],
            time: 0.0,
        });
    }

    /// Results leave in the plain layout in the memory of the caller's arrays, each from a slot of its own that a command writes.
    ///
    /// # Errors
    /// If nobody runs in such a memory.
    pub fn results(&mut self) -> Result<()> {
        let network = self.program.network.clone();
        let spaces = self.program.signature.outputs.clone();
        for (output, space) in network.outputs().iter().zip(spaces) {
            let tensor = output.tensor;
            let reader = match self.home.get(&tensor) {
                Some(&(_, provider)) if self.program.providers[provider].space() == space => provider,
                _ => self.program.owner(space)?,
            };
            let mut slot = self.read(tensor, Layout::Plain, reader)?;
            let computed = matches!(network[tensor].source, Source::Layer(..));
            if !computed || self.program.outputs.contains(&slot) {
                self.program.slots.push(self.program.slots[slot]);
                let own = self.program.slots.len() - 1;
                let kernel = match space {
                    Space::Host => {
                        self.program.providers[reader].reorder(Layout::Plain, Layout::Plain, &network[tensor].ty)
                    }
                    Space::Device(_) => self.transfer(reader)?,
                };
                self.copy(kernel, reader, slot, own);
                slot = own;
            }
            self.program.outputs.push(slot);
        }
        Ok(())
    }
}
