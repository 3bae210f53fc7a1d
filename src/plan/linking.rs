//! From places to addresses: what each kernel of an instance reads, writes and works in.

use crate::plan::boundary::Patch;
use crate::plan::fixed::Fixed;
use crate::plan::layout::Space;
use crate::plan::order::{Touched, extent};
use crate::plan::place::{Home, Places};
use crate::plan::program::{Program, SlotId};
use crate::plan::stretch::Run;
use crate::plan::{Instance, Memory};

/// Gives each run its addresses.
pub(super) struct Linking<'a> {
    pub program: &'a Program,
    pub places: &'a Places,
    pub fixed: &'a [Option<Fixed>],
    pub arenas: &'a [(Space, Box<dyn Memory>)],
    pub runs: Vec<Run>,
    pub patches: Vec<Patch>,
}

impl Linking<'_> {
    fn arena(&self, space: Space) -> *mut u8 {
        let arena = self.arenas.iter().find(|(of, _)| *of == space);
        arena.map_or(std::ptr::null_mut(), |(_, memory)| memory.address())
    }

    /// Adds the run of a step, whose workspace lies at this offset of its arena.
    pub fn link(&mut self, step: usize, instance: Box<dyn Instance>, workspace: usize) {
        let (places, fixed) = (self.places, self.fixed);
        let run = self.runs.len();
        let mut patches = vec![];
        let mut address = |slots: &[SlotId], writes: bool| -> Vec<*mut u8> {
            let one = |(operand, &slot): (usize, &SlotId)| {
                let (home, offset) = (places.homes[slot], places.offsets[slot]);
                match home {
                    Home::Arena(start) => self.arena(self.program.slots[slot].space).wrapping_add(start + offset),
                    Home::Fixed => {
                        // A view of a constant lies where the constant does.
                        let held = fixed[slot].as_ref().or(fixed[places.root(slot)].as_ref());
                        held.map_or(std::ptr::null_mut(), |held| held.address().wrapping_add(offset))
                    }
                    Home::Input(_) | Home::Output(_) => {
                        patches.push(Patch {
                            run,
                            operand,
                            writes,
                            home,
                            offset,
                        });
                        std::ptr::null_mut()
                    }
                }
            };
            slots.iter().enumerate().map(one).collect()
        };
        let slots = &self.program.steps[step];
        let inputs = address(&slots.inputs, false)
            .into_iter()
            .map(|p| p.cast_const())
            .collect();
        let outputs = address(&slots.outputs, true);
        let provider = &self.program.providers[self.program.steps[step].provider];
        let (scratch, space) = (instance.workspace(), provider.space());
        let mut touched = self.touched(step);
        touched
            .writes
            .extend(extent(Home::Arena(workspace), self.arena(space), 0, scratch));
        let workspace = self.arena(space).wrapping_add(workspace);
        self.patches.extend(patches);
        self.runs.push(Run {
            step,
            instance,
            inputs,
            outputs,
            workspace,
            touched,
        });
    }

    /// What a step reads and writes in the arenas; of a slice, all that it is a slice of.
    fn touched(&self, step: usize) -> Touched {
        let places = self.places;
        let ranges = |slots: &[SlotId]| {
            let one = |&slot: &SlotId| {
                let whole = places.operands[slot].parent_channels.is_some();
                let (slot, offset) = if whole {
                    (places.root(slot), 0)
                } else {
                    (slot, places.offsets[slot])
                };
                let arena = self.arena(self.program.slots[slot].space);
                extent(places.homes[slot], arena, offset, places.operands[slot].bytes())
            };
            slots.iter().filter_map(one).collect()
        };
        let step = &self.program.steps[step];
        Touched {
            reads: ranges(&step.inputs),
            writes: ranges(&step.outputs),
        }
    }
}
