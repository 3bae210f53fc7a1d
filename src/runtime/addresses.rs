//! From offsets to addresses: what each launch reads, writes and works in.

use crate::device::Space;
use crate::plan::Instance;
use crate::plan::placement::{Home, Placement};
use crate::plan::program::{Program, SlotId};
use crate::runtime::bindings::BoundOperand;
use crate::runtime::constants::Fixed;
use crate::runtime::dependencies::{Accesses, Extent};
use crate::runtime::segment::Launch;

/// Where an operand of a launch is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Address {
    /// At this offset of the arena of a memory.
    Arena(Space, usize),
    /// In memory of its own, or nowhere.
    Fixed(*mut u8),
    /// In an array of the caller: another one in each call.
    Caller,
}

/// Where all operands of a launch are.
pub(super) struct Addresses {
    pub inputs: Vec<Address>,
    pub outputs: Vec<Address>,
    pub workspace: Address,
}

/// The first byte of the arena of each memory.
pub(super) type ArenaBases = Vec<(Space, *mut u8)>;

impl Address {
    /// The address, where arenas begin there; `None` for an array of the caller.
    pub fn at(self, bases: &ArenaBases) -> Option<*mut u8> {
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

/// Makes launches out of instances, with the addresses of their operands.
pub(super) struct Linker<'a> {
    pub program: &'a Program,
    pub places: &'a Placement,
    pub fixed: &'a [Option<Fixed>],
    pub launches: Vec<Launch>,
    pub bound: Vec<BoundOperand>,
}

impl Linker<'_> {
    /// Adds the launch of a command, whose workspace is at this offset of its arena.
    pub fn link(&mut self, command: usize, instance: Instance, workspace: usize) {
        let slots = &self.program.commands[command];
        let space = self.program.providers[slots.provider].space();
        let mut accesses = self.accesses(command, instance.pdl.wait_inputs);
        let scratch = Extent::of(Home::Arena(workspace), space, 0, instance.workspace);
        accesses.writes.extend(scratch);
        let addresses = Addresses {
            inputs: self.addresses(&slots.inputs, false),
            outputs: self.addresses(&slots.outputs, true),
            workspace: Address::Arena(space, workspace),
        };
        self.launches.push(Launch::new(command, instance, addresses, accesses));
    }

    /// Where the slots of the next launch are; those in arrays of the caller are noted, to be bound in each call.
    fn addresses(&mut self, slots: &[SlotId], writes: bool) -> Vec<Address> {
        let (places, fixed, launch) = (self.places, self.fixed, self.launches.len());
        let mut addresses = vec![];
        for (operand, &slot) in slots.iter().enumerate() {
            let (home, offset) = (places.homes[slot], places.offsets[slot]);
            addresses.push(match home {
                Home::Arena(start) => Address::Arena(self.program.slots[slot].space, start + offset),
                Home::Fixed => {
                    // A view of a constant lies where the constant does.
                    let held = fixed[slot].as_ref().or(fixed[places.root(slot)].as_ref());
                    Address::Fixed(held.map_or(std::ptr::null_mut(), |held| held.address().wrapping_add(offset)))
                }
                Home::Input(_) | Home::Output(_) => {
                    self.bound.push(BoundOperand {
                        launch,
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

    /// What a command reads and writes in the arenas, inputs from `pdl_wait_inputs` on perhaps before its PDL wait; of a slice, all that
    /// it is a slice of.
    fn accesses(&self, command: usize, pdl_wait_inputs: usize) -> Accesses {
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
        let command = &self.program.commands[command];
        Accesses {
            reads: extents(&command.inputs),
            writes: extents(&command.outputs),
            before_wait: extents(command.inputs.get(pdl_wait_inputs..).unwrap_or_default()),
        }
    }
}
