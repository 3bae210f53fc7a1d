//! Proves of a program at concrete shapes that each kernel reads what was computed for it: no memory is written anew while
//! somebody still reads it, views lie where their data does, and launches that touch common memory are ordered.
//!
//! Each byte of memory gets a tag that says which byte of which tensor it holds. The commands are gone through in order: what
//! they read is compared with what they mean to read, what they write gets new tags. Debug builds do so for every program,
//! others where `NEURENIX_VERIFY=1` asks for it.

use crate::error::{Error, Result};
use crate::plan::Alias;
use crate::plan::placement::{Home, Placement};
use crate::plan::program::{Command, Program, SlotId};
use crate::runtime::dependencies::{self, Region};
use crate::runtime::segment::Launch;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Programs whose commands touch more bytes than this are not checked.
const LARGEST: usize = 32 << 20;
/// The order of more launches than this is not checked: each pair is looked at.
const LONGEST: usize = 600;

/// An element of a slot.
type Element = (SlotId, usize);

/// Checks a program whose slots have their places; `scratch` has the offset and the bytes of each command's workspace.
///
/// # Errors
/// The first read of something else than what was computed; names the tensor.
pub(super) fn check(
    program: &Program,
    places: &Placement,
    launches: &[Launch],
    scratch: &[(usize, usize)],
) -> Result<()> {
    let accesses = program
        .commands
        .iter()
        .flat_map(|command| command.inputs.iter().chain(&command.outputs));
    if accesses.map(|&slot| places.operands[slot].bytes()).sum::<usize>() > LARGEST {
        return Ok(());
    }
    let mut memory = Memory {
        program,
        places,
        origins: HashMap::new(),
        tags: HashMap::new(),
    };
    let given = |slot: &SlotId| matches!(places.homes[*slot], Home::Input(_)) && places.root(*slot) == *slot;
    (0..program.slots.len())
        .filter(given)
        .for_each(|slot| memory.write(slot));
    let launched: HashSet<usize> = launches.iter().map(|launch| launch.command).collect();
    for (number, command) in program.commands.iter().enumerate() {
        memory.derive(command);
        if launched.contains(&number) {
            memory.run(command, scratch[number])?;
        }
    }
    program.outputs.iter().try_for_each(|&slot| memory.read(slot))?;
    ordered(program, places, launches, scratch)
}

/// What every byte of arenas and of the caller's arrays holds.
struct Memory<'a> {
    program: &'a Program,
    places: &'a Placement,
    /// Of slots whose commands only move data: the element that each element is.
    origins: HashMap<SlotId, Vec<Element>>,
    tags: HashMap<Region, Vec<u64>>,
}

impl Memory<'_> {
    /// Says of the outputs of a command that only moves data what they hold.
    fn derive(&mut self, command: &Command) {
        let same = command.layers.is_empty() || command.alias() == Alias::Reshape;
        match command.alias() {
            _ if same => {
                let origins = self.origins_of(command.inputs[0]);
                self.origins.insert(command.outputs[0], origins);
            }
            Alias::Bitcast(ref perm) => {
                let moved = self.transposed(command.inputs[0], perm);
                self.origins.insert(command.outputs[0], moved);
            }
            Alias::Concat(axis) => {
                let parts: Vec<_> = command
                    .inputs
                    .iter()
                    .map(|&slot| (slot, self.origins_of(slot)))
                    .collect();
                let joined = self.join(axis, &parts);
                self.origins.insert(command.outputs[0], joined);
            }
            Alias::Split(axis, ref first) => {
                let mut start = first
                    .as_const()
                    .and_then(|first| usize::try_from(first).ok())
                    .unwrap_or(0);
                let whole = self.origins_of(command.inputs[0]);
                for &output in &command.outputs {
                    let part = self.part(axis, &whole, command.inputs[0], output, start);
                    self.origins.insert(output, part);
                    start += self.places.operands[output].shape[axis];
                }
            }
            _ => {}
        }
    }

    fn origins_of(&self, slot: SlotId) -> Vec<Element> {
        let own = || {
            (0..self.places.operands[slot].elements())
                .map(|element| (slot, element))
                .collect()
        };
        self.origins.get(&slot).cloned().unwrap_or_else(own)
    }

    /// Extents before, at and behind an axis.
    fn around(&self, slot: SlotId, axis: usize) -> [usize; 3] {
        let shape = &self.places.operands[slot].shape;
        [
            shape[..axis].iter().product(),
            shape[axis],
            shape[axis + 1..].iter().product(),
        ]
    }

    /// The elements of a slot in the order of a Transpose's result.
    fn transposed(&self, slot: SlotId, perm: &[usize]) -> Vec<Element> {
        let shape = &self.places.operands[slot].shape;
        let (origins, mut order) = (self.origins_of(slot), vec![0]);
        for &axis in perm {
            let stride: usize = shape[axis + 1..].iter().product();
            let along = |start: &usize| (0..shape[axis]).map(|at| start + at * stride).collect::<Vec<_>>();
            order = order.iter().flat_map(along).collect();
        }
        order.into_iter().map(|element| origins[element]).collect()
    }

    fn join(&self, axis: usize, parts: &[(SlotId, Vec<Element>)]) -> Vec<Element> {
        let Some([before, ..]) = parts.first().map(|(slot, _)| self.around(*slot, axis)) else {
            return vec![];
        };
        let rows = |row: usize| {
            parts.iter().flat_map(move |(slot, elements)| {
                let [_, extent, behind] = self.around(*slot, axis);
                elements[row * extent * behind..][..extent * behind].iter().copied()
            })
        };
        (0..before).flat_map(rows).collect()
    }

    fn part(&self, axis: usize, whole: &[Element], from: SlotId, to: SlotId, start: usize) -> Vec<Element> {
        let [before, all, behind] = self.around(from, axis);
        let [_, extent, _] = self.around(to, axis);
        if extent == 0 || whole.is_empty() {
            // A Slice may begin behind the end, and then gives nothing.
            return vec![];
        }
        let row = |row: usize| &whole[(row * all + start) * behind..][..extent * behind];
        (0..before).flat_map(row).copied().collect()
    }

    /// What a kernel reads must be there; what it works in and what it writes is something else from then on.
    fn run(&mut self, command: &Command, (offset, bytes): (usize, usize)) -> Result<()> {
        for &slot in &command.inputs {
            self.read(slot)?;
        }
        let space = self.program.providers[command.provider].space();
        self.room(Region::Arena(space), offset + bytes)[offset..]
            .iter_mut()
            .take(bytes)
            .for_each(|tag| *tag = 0);
        command.outputs.iter().for_each(|&slot| self.write(slot));
        // A kernel may write its outputs in any order.
        command.outputs.iter().try_for_each(|&slot| self.read(slot))
    }

    fn region(&self, slot: SlotId) -> Option<(Region, usize)> {
        region(self.program, self.places, slot)
    }

    fn room(&mut self, region: Region, bytes: usize) -> &mut Vec<u64> {
        let tags = self.tags.entry(region).or_default();
        tags.resize(tags.len().max(bytes), 0);
        tags
    }

    /// Each byte of a slot with the tag that it should bear.
    fn tags_of(&self, slot: SlotId) -> Vec<(Range<usize>, Element)> {
        let Some((_, start)) = self.region(slot) else {
            return vec![];
        };
        let operand = &self.places.operands[slot];
        let size = operand.dtype.size();
        let bytes = operand
            .places()
            .into_iter()
            .map(|place| start + place * size..start + (place + 1) * size);
        bytes.zip(self.origins_of(slot)).collect()
    }

    fn write(&mut self, slot: SlotId) {
        let Some((region, _)) = self.region(slot) else { return };
        for (bytes, element) in self.tags_of(slot) {
            let room = self.room(region, bytes.end);
            for (number, tag) in room[bytes].iter_mut().enumerate() {
                *tag = tag_of(element, number);
            }
        }
    }

    fn read(&mut self, slot: SlotId) -> Result<()> {
        let Some((region, _)) = self.region(slot) else {
            return Ok(());
        };
        for (bytes, element) in self.tags_of(slot) {
            let room = &self.room(region, bytes.end)[bytes.clone()];
            let holds = |(number, tag): (usize, &u64)| *tag == tag_of(element, number);
            if !room.iter().enumerate().all(holds) {
                let name = &self.program.network[self.program.slots[slot].tensor].name;
                return Err(Error::internal("memory holds something else than what is read from it")
                    .tensor(name)
                    .got(format!("bytes {bytes:?} of {region:?}")));
            }
        }
        Ok(())
    }
}

/// Never 0, which is what nobody wrote.
fn tag_of((slot, element): Element, byte: usize) -> u64 {
    1 + (((slot as u64) << 40) | ((element as u64) << 4) | byte as u64)
}

/// Where a slot begins.
fn region(program: &Program, places: &Placement, slot: SlotId) -> Option<(Region, usize)> {
    Region::of(places.homes[slot], program.slots[slot].space, places.offsets[slot])
}

/// What a launch accesses, byte by byte.
struct Bytes {
    reads: Vec<(Region, Range<usize>)>,
    writes: Vec<(Region, Range<usize>)>,
}

impl Bytes {
    fn of(program: &Program, places: &Placement, launch: &Launch, (offset, bytes): (usize, usize)) -> Self {
        let command = &program.commands[launch.command];
        let ranges = |slots: &[SlotId]| slots.iter().flat_map(|&slot| rows(program, places, slot)).collect();
        let mut accesses = Self {
            reads: ranges(&command.inputs),
            writes: ranges(&command.outputs),
        };
        let arena = Region::Arena(program.providers[command.provider].space());
        accesses.writes.push((arena, offset..offset + bytes));
        accesses
    }

    fn meets(&self, other: &Self) -> bool {
        let both = |a: &[(Region, Range<usize>)], b: &[(Region, Range<usize>)]| {
            a.iter()
                .any(|(of, a)| b.iter().any(|(at, b)| of == at && a.start < b.end && b.start < a.end))
        };
        both(&self.writes, &other.writes) || both(&self.writes, &other.reads) || both(&self.reads, &other.writes)
    }
}

/// The bytes of a slot that change between calls, run by run.
fn rows(program: &Program, places: &Placement, slot: SlotId) -> Vec<(Region, Range<usize>)> {
    let Some((region, start)) = region(program, places, slot) else {
        return vec![];
    };
    let operand = &places.operands[slot];
    let size = operand.dtype.size();
    let mut at: Vec<usize> = operand.places().into_iter().map(|place| start + place * size).collect();
    at.sort_unstable();
    let mut rows: Vec<(Region, Range<usize>)> = vec![];
    for byte in at {
        match rows.last_mut() {
            Some((_, row)) if row.end == byte => row.end += size,
            _ => rows.push((region, byte..byte + size)),
        }
    }
    rows
}

/// Launches that access common bytes depend on each other, directly or through others, when they are captured.
fn ordered(program: &Program, places: &Placement, launches: &[Launch], scratch: &[(usize, usize)]) -> Result<()> {
    if launches.len() > LONGEST {
        return Ok(());
    }
    let accesses: Vec<Bytes> = launches
        .iter()
        .map(|launch| Bytes::of(program, places, launch, scratch[launch.command]))
        .collect();
    let mut before: Vec<HashSet<usize>> = vec![];
    for (number, direct) in dependencies::predecessors(launches).into_iter().enumerate() {
        let mut all: HashSet<usize> = direct.iter().flat_map(|&other| before[other].clone()).collect();
        all.extend(direct);
        let free = |other: &usize| !all.contains(other) && accesses[number].meets(&accesses[*other]);
        if let Some(other) = (0..number).find(free) {
            let name = |launch: usize| program.commands[launches[launch].command].kernel.name();
            return Err(
                Error::internal("two kernels that touch common memory may run beside each other").expected(format!(
                    "{} waits for {}",
                    name(number),
                    name(other)
                )),
            );
        }
        before.push(all);
    }
    Ok(())
}
