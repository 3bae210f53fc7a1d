//! From places to addresses: what each kernel of an instance reads, writes and works in.

use crate::device::Space;
use crate::plan::Instance;
use crate::plan::placement::{Home, Placement};
use crate::plan::program::{Program, SlotId};
use crate::runtime::bindings::ArrayOperand;
use crate::runtime::constants::Fixed;
use crate::runtime::dependencies::{Extent, Touched};
use crate::runtime::segment::Run;

/// Where an operand lies.
#[derive(Debug, Clone, Copy)]
pub(super) enum Address {
    /// So far into the arena of a memory.
    Arena(Space, usize),
    /// In memory of its own, or nowhere.
    Fixed(*mut u8),
    /// In an array of the caller, which each call tells.
    Caller,
}

/// Where all operands of a run lie.
pub(super) struct Addresses {
    pub inputs: Vec<Address>,
    pub outputs: Vec<Address>,
    pub workspace: Address,
}

/// The first byte of the arena of each memory.
pub(super) type Bases = Vec<(Space, *mut u8)>;

impl Address {
    /// Its address; `None` where only a call tells it.
    pub fn address(self, bases: &Bases) -> Option<*mut u8> {
        match self {
            Address::Arena(space, offset) => {
                let base = bases.iter().find(|(of, _)| *of == space);
                base.map(|(_, base)| base.wrapping_add(offset))
            }
            Address::Fixed(address) => Some(address),
            Address::Caller => None,
        }
    }
}

/// Tells each run where its operands lie.
pub(super) struct Linker<'a> {
    pub program: &'a Program,
    pub places: &'a Placement,
    pub fixed: &'a [Option<Fixed>],
    pub runs: Vec<Run>,
    pub operands_of_arrays: Vec<ArrayOperand>,
}

impl Linker<'_> {
    /// Adds the run of a step, whose workspace lies at this offset of its arena.
    pub fn link(&mut self, step: usize, instance: Box<dyn Instance>, workspace: usize) {
        let slots = &self.program.steps[step];
        let space = self.program.providers[slots.provider].space();
        let mut touched = self.touched(step, instance.pdl_wait_inputs());
        let scratch = Extent::of(Home::Arena(workspace), space, 0, instance.workspace());
        touched.writes.extend(scratch);
        let addresses = Addresses {
            inputs: self.addresses(&slots.inputs, false),
            outputs: self.addresses(&slots.outputs, true),
            workspace: Address::Arena(space, workspace),
        };
        self.runs.push(Run::new(step, instance, addresses, touched));
    }

    /// Where the slots of the next run lie; the arrays of the caller among them are to be patched.
    fn addresses(&mut self, slots: &[SlotId], writes: bool) -> Vec<Address> {
        let (places, fixed, run) = (self.places, self.fixed, self.runs.len());
        let mut addresses = vec![];
        for (operand, &slot) in slots.iter().enumerate() {
            let (home, offset) = (places.homes[slot], places.offsets[slot]);
            addresses.push(match home {
                Home::Arena(start) => Address::Arena(self.program.slots[slot].space, start + offset),
                Home::Fixed => {
                    // A view of a constant lies where the constant does.
                    let resources = fixed[slot].as_ref().or(fixed[places.root(slot)].as_ref());
                    Address::Fixed(resources.map_or(std::ptr::null_mut(), |resources| {
                        resources.address().wrapping_add(offset)
                    }))
                }
                Home::Input(_) | Home::Output(_) => {
                    self.operands_of_arrays.push(ArrayOperand {
                        run,
                        operand,
                        writes,
                        home,
                        offset,
                    });
                    Address::Caller
                }
            });
        }
        addresses
    }

    /// What a step reads and writes in the arenas, the inputs behind some early; of a slice, all that it is a slice of.
    fn touched(&self, step: usize, waits_for: usize) -> Touched {
        let places = self.places;
        let extents = |slots: &[SlotId]| {
            let one = |&slot: &SlotId| {
                let whole = places.operands[slot].parent_channels.is_some();
                let (slot, offset) = if whole {
                    (places.root(slot), 0)
                } else {
                    (slot, places.offsets[slot])
                };
                let space = self.program.slots[slot].space;
                Extent::of(places.homes[slot], space, offset, places.operands[slot].bytes())
            };
            slots.iter().filter_map(one).collect()
        };
        let step = &self.program.steps[step];
        Touched {
            reads: extents(&step.inputs),
            writes: extents(&step.outputs),
            early: extents(step.inputs.get(waits_for..).unwrap_or_default()),
        }
    }
}
