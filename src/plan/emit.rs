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
        let home = self.home.get(&tensor).copied();
        let origin = home.map_or(Space::Host, |(_, provider)| self.program.providers[provider].space());
        let (from, provider) = if origin == space {
            home.unwrap_or((Layout::Plain, reader))
        } else {
            self.fetch(tensor, origin, home, reader)?;
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

    /// Brings a tensor to the memory of a reader, in the plain layout.
    fn fetch(&mut self, tensor: TensorId, origin: Space, home: Option<(Layout, usize)>, reader: usize) -> Result<()> {
        let layout = Layout::Plain;
        let space = self.program.providers[reader].space();
        let source = match home {
            Some((_, provider)) => self.read(tensor, layout, provider)?,
            None => self.slot(Slot {
                tensor,
                layout,
                space: origin,
            }),
        };
        let device = if space == Space::Host {
            home.map_or(reader, |(_, provider)| provider)
        } else {
            reader
        };
        let kernel = self.program.providers[device].transfer();
        let kernel = kernel.ok_or_else(|| Error::internal("a provider with memory of its own copies nothing there"))?;
        let target = self.slot(Slot { tensor, layout, space });
        self.copy(kernel, device, source, target);
        Ok(())
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

    /// Results leave in the plain layout in the processor's memory, each from a slot of its own that a command writes.
    ///
    /// # Errors
    /// If nobody runs on the processor.
    pub fn results(&mut self) -> Result<()> {
        let network = self.program.network.clone();
        let host = self.program.providers.iter().position(|p| p.space() == Space::Host);
        let host = host.ok_or_else(|| Error::internal("no provider runs on the processor"))?;
        for output in network.outputs() {
            let tensor = output.tensor;
            let ours = |&(_, provider): &(Layout, usize)| self.program.providers[provider].space() == Space::Host;
            let reader = self
                .home
                .get(&tensor)
                .filter(|home| ours(home))
                .map_or(host, |(_, provider)| *provider);
            let mut slot = self.read(tensor, Layout::Plain, reader)?;
            let computed = matches!(network[tensor].source, Source::Layer(..));
            if !computed || self.program.outputs.contains(&slot) {
                self.program.slots.push(self.program.slots[slot]);
                let own = self.program.slots.len() - 1;
                let kernel = self.program.providers[reader].reorder(Layout::Plain, Layout::Plain, &network[tensor].ty);
                self.copy(kernel, reader, slot, own);
                slot = own;
            }
            self.program.outputs.push(slot);
        }
        Ok(())
    }
}
