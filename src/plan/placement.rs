//! The placement of slots in memory: which of them share memory, so that Reshape, Concat and Split need no copy, and their lifetimes.

use crate::device::Space;
use crate::knobs;
use crate::network::array::ALIGNMENT;
use crate::network::{Source, guard_pages};
use crate::plan::Alias;
use crate::plan::arena::{self, Block, Placed};
use crate::plan::layout::{Layout, Operand};
use crate::plan::program::{Command, Program, SlotId};
use crate::plan::windows::windows;

/// The memory that a group of slots shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// At this offset of the arena of its space.
    Arena(usize),
    /// The caller's array for this input.
    Input(usize),
    /// The caller's array for this output.
    Output(usize),
    /// A constant, a symbolic value, or what was computed from these ahead of the run.
    Fixed,
}

/// The position of a slot inside another one.
#[derive(Debug, Clone, Copy)]
struct Inside {
    parent: SlotId,
    offset: usize,
    /// It is a slice along the channels: its rows are as far apart as the parent's.
    sliced: bool,
}

/// The placement of all slots of a program at concrete shapes.
pub struct Placement {
    /// The operand of each slot, with the channels of the tensor that it is a slice of.
    pub operands: Vec<Operand>,
    /// The memory of each slot.
    pub homes: Vec<Home>,
    /// Bytes from the start of that memory.
    pub offsets: Vec<usize>,
    /// Bytes of the arena of each space.
    pub arenas: Vec<(Space, usize)>,
    /// What the arenas hold, when.
    pub blocks: Vec<Placed>,
    inside: Vec<Option<Inside>>,
}

/// A relation of a slot to the command that gives it and the commands that read it.
struct Life {
    given: Option<usize>,
    read: Vec<usize>,
}

struct Placing<'a> {
    program: &'a Program,
    operands: Vec<Operand>,
    homes: Vec<Home>,
    inside: Vec<Option<Inside>>,
    /// The outermost slot around each slot: itself where it lies in no other.
    root: Vec<SlotId>,
    /// For an outermost slot, itself and all slots within.
    family: Vec<Vec<SlotId>>,
    lives: Vec<Life>,
}

/// Places the slots of a program: decides which of them share memory. [`Placement::assign`] then lays out the arenas.
pub fn place(program: &Program, operands: Vec<Operand>) -> Placement {
    let lives = lives(program);
    let homes = homes(program, &lives);
    let slots = 0..operands.len();
    let mut placing = Placing {
        program,
        homes,
        inside: vec![None; operands.len()],
        root: slots.clone().collect(),
        family: slots.map(|slot| vec![slot]).collect(),
        lives,
        operands,
    };
    // Backwards, so that an outer Concat takes in an inner one before the inner one takes its inputs.
    for command in (0..program.commands.len()).rev() {
        match program.commands[command].alias() {
            Alias::Concat(axis) => placing.concat(command, axis),
            Alias::Reshape | Alias::Bitcast(_) => placing.reshape_into_output(command),
            _ => {}
        }
    }
    for command in 0..program.commands.len() {
        match program.commands[command].alias() {
            Alias::Reshape | Alias::Bitcast(_) => placing.reshape(command),
            Alias::Split(axis, ref first) => placing.split(command, axis, first.as_const()),
            _ => placing.in_place(command),
        }
    }
    placing.finish()
}

fn lives(program: &Program) -> Vec<Life> {
    let mut lives: Vec<Life> = program
        .slots
        .iter()
        .map(|_| Life {
            given: None,
            read: vec![],
        })
        .collect();
    for (i, command) in program.commands.iter().enumerate() {
        command.outputs.iter().for_each(|&slot| lives[slot].given = Some(i));
        command.inputs.iter().for_each(|&slot| lives[slot].read.push(i));
    }
    lives
}

fn homes(program: &Program, lives: &[Life]) -> Vec<Home> {
    let network = &program.network;
    let home = |(i, life): (usize, &Life)| {
        if let Some(output) = program.outputs.iter().position(|&slot| slot == i) {
            return Home::Output(output);
        }
        match (life.given, &network[program.slots[i].tensor].source) {
            (Some(command), _) if is_ahead(program, command) => Home::Fixed,
            (Some(_), _) => Home::Arena(0),
            (None, Source::Input) => {
                let tensor = program.slots[i].tensor;
                Home::Input(network.inputs().iter().position(|&t| t == tensor).unwrap_or(0))
            }
            (None, _) => Home::Fixed,
        }
    };
    lives.iter().enumerate().map(home).collect()
}

/// Whether a command only brings constants to another layout, so that it runs once, ahead of all calls.
pub fn is_ahead(program: &Program, command: usize) -> bool {
    let command = &program.commands[command];
    let fixed = |&slot: &SlotId| {
        let source = &program.network[program.slots[slot].tensor].source;
        matches!(source, Source::Constant(_) | Source::Symbolic)
    };
    command.layers.is_empty()
        && command.inputs.iter().all(fixed)
        && !command.outputs.iter().any(|s| program.outputs.contains(s))
}

/// The slots around a slot, the nearest first.
fn around(inside: &[Option<Inside>], slot: SlotId) -> impl Iterator<Item = Inside> {
    std::iter::successors(inside[slot], |within| inside[within.parent])
}

fn root(inside: &[Option<Inside>], slot: SlotId) -> SlotId {
    around(inside, slot).last().map_or(slot, |within| within.parent)
}

impl Placing<'_> {
    /// Puts an outermost slot, with all that lies within it, into another one.
    fn attach(&mut self, slot: SlotId, within: Inside) {
        let root = self.root[within.parent];
        self.inside[slot] = Some(within);
        for member in std::mem::take(&mut self.family[slot]) {
            self.root[member] = root;
            self.family[root].push(member);
        }
    }

    fn takes_slices(&self, command: usize) -> (bool, bool) {
        let command = &self.program.commands[command];
        command.kernel.takes_slices(&command.form)
    }

    /// Whether a slot may become part of another one that is written at its place by the slot's own command.
    fn movable(&self, slot: SlotId) -> bool {
        matches!(self.homes[slot], Home::Arena(_)) && self.inside[slot].is_none()
    }

    /// Whether all who give and read a slot, but for `except`, take it as a slice of a larger tensor.
    fn sliceable(&self, slot: SlotId, except: usize) -> bool {
        let life = &self.lives[slot];
        life.given
            .is_none_or(|command| command == except || self.takes_slices(command).1)
            && life
                .read
                .iter()
                .all(|&command| command == except || self.takes_slices(command).0)
    }

    /// Whether kernels that ask for aligned addresses get such where an outermost slot goes so far into another one.
    fn stays_aligned(&self, slot: SlotId, parent: SlotId, offset: usize) -> bool {
        let within = |slot: SlotId| around(&self.inside, slot).map(|inside| inside.offset).sum::<usize>();
        let start = offset + within(parent);
        self.family[slot].iter().all(|&member| {
            let life = &self.lives[member];
            let mut users = life.given.iter().chain(&life.read);
            let address = start + within(member);
            users.all(|&command| address.is_multiple_of(self.program.commands[command].kernel.alignment()))
        })
    }

    fn concat(&mut self, command: usize, axis: usize) {
        let command_ref = &self.program.commands[command];
        let output = command_ref.outputs[0];
        let inputs = command_ref.inputs.clone();
        let mut start = 0;
        for &input in &inputs {
            let size = self.operands[input].shape[axis];
            let once = inputs.iter().filter(|&&other| other == input).count() == 1;
            if once && self.movable(input) {
                self.put(input, output, axis, start, command);
            }
            start += size;
        }
    }

    /// Puts a slot into its parent from `start` along `axis` on, if the layout and the kernels allow it.
    fn put(&mut self, slot: SlotId, parent: SlotId, axis: usize, start: usize, command: usize) {
        let (small, large) = (&self.operands[slot], &self.operands[parent]);
        if small.layout != large.layout || small.elements() == 0 {
            return;
        }
        let Some((offset, contiguous)) = offset_inside(small, large, axis, start) else {
            return;
        };
        let sliced = !contiguous || self.inside[parent].is_some_and(|i| i.sliced);
        let whole = self.program.slots[self.root[parent]].tensor;
        let apart = axis != 1 || self.program.apart.contains(&whole);
        if sliced && (apart || !self.sliceable(slot, command)) || !self.stays_aligned(slot, parent, offset) {
            return;
        }
        self.attach(slot, Inside { parent, offset, sliced });
    }

    fn reshape_into_output(&mut self, command: usize) {
        let command = &self.program.commands[command];
        let (input, output) = (command.inputs[0], command.outputs[0]);
        let leads_out = matches!(self.homes[output], Home::Output(_)) || self.inside[output].is_some();
        let sliced = self.inside[output].is_some_and(|i| i.sliced);
        if leads_out && !sliced && self.movable(input) && self.stays_aligned(input, output, 0) {
            self.attach(
                input,
                Inside {
                    parent: output,
                    offset: 0,
                    sliced: false,
                },
            );
        }
    }

    fn reshape(&mut self, command: usize) {
        let command = &self.program.commands[command];
        let (input, output) = (command.inputs[0], command.outputs[0]);
        let sliced = self.inside[input].is_some_and(|i| i.sliced);
        let apart = self.root[input] != output;
        if self.movable(output) && !sliced && apart && self.stays_aligned(output, input, 0) {
            self.attach(
                output,
                Inside {
                    parent: input,
                    offset: 0,
                    sliced: false,
                },
            );
        }
    }

    fn split(&mut self, command: usize, axis: usize, first: Option<i64>) {
        let Some(mut start) = first.and_then(|f| usize::try_from(f).ok()) else {
            return;
        };
        let command_ref = &self.program.commands[command];
        let input = command_ref.inputs[0];
        for output in command_ref.outputs.clone() {
            let size = self.operands[output].shape[axis];
            if self.movable(output) {
                self.put(output, input, axis, start, command);
            }
            start += size;
        }
    }

    /// Lets an output take the memory of an input that nobody reads afterwards.
    fn in_place(&mut self, command: usize) {
        let command_ref = &self.program.commands[command];
        for (i, o) in command_ref.kernel.in_place() {
            let (input, output) = (command_ref.inputs[i], command_ref.outputs[o]);
            let root = self.root[input];
            let holds_others = self.family[output].len() > 1;
            let read_later = self.family[root]
                .iter()
                .any(|&s| self.lives[s].read.iter().any(|&r| r > command));
            let read_twice = command_ref.inputs.iter().filter(|&&s| self.root[s] == root).count() > 1;
            let ours = matches!(self.homes[root], Home::Arena(_)) && around(&self.inside, input).all(|i| !i.sliced);
            let (from, to) = (&self.operands[input], &self.operands[output]);
            let same = from.layout == to.layout && from.bytes() == to.bytes() && from.dtype.size() == to.dtype.size();
            let free = ours && self.movable(output) && !holds_others && !read_later && !read_twice;
            if free && same && self.stays_aligned(output, input, 0) {
                self.attach(
                    output,
                    Inside {
                        parent: input,
                        offset: 0,
                        sliced: false,
                    },
                );
                return;
            }
        }
    }

    fn finish(mut self) -> Placement {
        let slots = 0..self.operands.len();
        let offsets = slots
            .clone()
            .map(|slot| around(&self.inside, slot).map(|within| within.offset).sum())
            .collect();
        for slot in slots {
            self.homes[slot] = self.homes[self.root[slot]];
            if let Some(sliced) = around(&self.inside, slot).take_while(|within| within.sliced).last() {
                self.operands[slot].parent_channels = Some(self.operands[sliced.parent].shape[1]);
            }
        }
        let Self {
            homes,
            operands,
            inside,
            ..
        } = self;
        Placement {
            operands,
            homes,
            offsets,
            arenas: vec![],
            blocks: vec![],
            inside,
        }
    }
}

/// Whether dense operands can lie in one another without being slices of larger rows, so that nothing is copied.
pub fn is_free(alias: &Alias, inputs: &[Operand], outputs: &[Operand]) -> bool {
    let runs = |parts: &[Operand], whole: &Operand, axis: usize| {
        let mut start = 0;
        parts.iter().all(|part| {
            let run = offset_inside(part, whole, axis, start).is_some_and(|(_, contiguous)| contiguous);
            start += part.shape[axis];
            run
        })
    };
    match alias {
        Alias::None => false,
        Alias::Reshape | Alias::Bitcast(_) => true,
        Alias::Concat(axis) => runs(inputs, &outputs[0], *axis),
        Alias::Split(axis, _) => runs(outputs, &inputs[0], *axis),
    }
}

/// Byte offset of a part of a tensor, and whether the part is one run of bytes.
fn offset_inside(part: &Operand, whole: &Operand, axis: usize, start: usize) -> Option<(usize, bool)> {
    let size = part.dtype.size();
    let before: usize = whole.shape[..axis].iter().product();
    let after: usize = whole.shape[axis + 1..].iter().product();
    match (part.layout, axis) {
        (Layout::Plain, 0 | 1) => Some((start * after * size, before == 1)),
        (Layout::Plain, _) => (before == 1).then_some((start * after * size, true)),
        (layout, 0) => Some((
            start * layout.padded_channels(whole.shape[1]) * after / whole.shape[1].max(1) * size,
            true,
        )),
        (Layout::ChannelsLast, 1) => Some((start * size, before * after == 1)),
        (Layout::Blocked16, 1) => {
            let whole_blocks = start.is_multiple_of(16)
                && (part.shape[1].is_multiple_of(16) || start + part.shape[1] == whole.shape[1]);
            whole_blocks.then_some((start * after * size, before == 1))
        }
        _ => None,
    }
}

impl Placement {
    /// Whether a slot lies inside `parent`, or the other way round, so that moving data between them is saved.
    pub fn shares(&self, slot: SlotId, other: SlotId) -> bool {
        let within = |a: SlotId, b: SlotId| self.inside[a].is_some_and(|i| i.parent == b);
        within(slot, other) || within(other, slot)
    }

    /// The outermost slot that a slot lies in; itself, if it lies in none.
    pub fn root(&self, slot: SlotId) -> SlotId {
        root(&self.inside, slot)
    }

    /// Assigns the arena: slots by their lifetimes, and a workspace for each command.
    ///
    /// Gives the offset of each workspace.
    pub fn assign(&mut self, program: &Program, workspaces: &[usize]) -> Vec<usize> {
        let lives = lives(program);
        let count = self.operands.len();
        let roots: Vec<SlotId> = (0..count).map(|slot| root(&self.inside, slot)).collect();
        let mut blocks: Vec<Block> = vec![
            Block {
                bytes: 0,
                first: usize::MAX,
                last: 0
            };
            count
        ];
        let windows = windows(program);
        let ends = |command: usize| windows[command].end - 1;
        for (life, &root) in lives.iter().zip(&roots) {
            if matches!(self.homes[root], Home::Arena(_)) {
                let given = life.given.unwrap_or(0);
                let block = &mut blocks[root];
                block.bytes = self.operands[root].bytes();
                block.first = block.first.min(windows[given].start);
                block.last = life
                    .read
                    .iter()
                    .map(|&command| ends(command))
                    .fold(block.last.max(ends(given)), usize::max);
            }
        }
        let commands = workspaces.iter().zip(&windows);
        blocks.extend(commands.map(|(&bytes, window)| Block {
            bytes,
            first: window.start,
            last: window.end - 1,
        }));
        let of_command = |command: &Command| program.providers[command.provider].space();
        let spaces = program.slots.iter().map(|slot| slot.space);
        let spaces: Vec<Space> = spaces.chain(program.commands.iter().map(of_command)).collect();
        let mut offsets = vec![0; blocks.len()];
        for space in program.spaces() {
            let own: Vec<usize> = (0..blocks.len()).filter(|&block| spaces[block] == space).collect();
            let mut own_blocks: Vec<_> = own.iter().map(|&block| blocks[block]).collect();
            // Passes have refused what can't be read.
            if knobs::is_disabled("arena").unwrap_or(false) {
                own_blocks
                    .iter_mut()
                    .for_each(|block| (block.first, block.last) = (0, usize::MAX));
            }
            let (places, total) = match guard_pages::placement().filter(|_| space == Space::Host) {
                Some(placement) => {
                    // An operand is aligned as its elements are; a workspace as all memory of ours is.
                    let workspaces = own_blocks.iter_mut().zip(&own).filter(|(_, number)| **number >= count);
                    workspaces.for_each(|(block, _)| block.bytes = block.bytes.next_multiple_of(ALIGNMENT));
                    arena::assign_apart(&own_blocks, placement)
                }
                None => arena::assign(&own_blocks),
            };
            own.into_iter()
                .zip(places)
                .for_each(|(block, place)| offsets[block] = place);
            self.arenas.push((space, total));
        }
        let mut held = vec![vec![]; blocks.len()];
        roots.iter().enumerate().for_each(|(slot, &root)| held[root].push(slot));
        let placed = |(i, slots)| Placed {
            space: spaces[i],
            offset: offsets[i],
            block: blocks[i],
            slots,
        };
        let all = held.into_iter().enumerate().map(placed);
        self.blocks = all.filter(|placed: &Placed| placed.block.bytes > 0).collect();
        for (home, root) in self.homes.iter_mut().zip(roots) {
            if let Home::Arena(offset) = home {
                *offset = offsets[root];
            }
        }
        offsets[count..].to_vec()
    }

    /// Bytes of all slots that live in the arena, each counted whole.
    pub fn unshared_bytes(&self) -> usize {
        let in_arena = |i: &usize| matches!(self.homes[*i], Home::Arena(_));
        (0..self.operands.len())
            .filter(in_arena)
            .map(|i| self.operands[i].bytes())
            .sum()
    }
}
