//! The caller's arrays: where they lie, and through which memory they cross where a kernel can't reach them or a copy from
//! there would be slow.

use crate::error::{Error, Result};
use crate::network::dtype::DType;
use crate::network::guard_pages;
use crate::plan::layout::{Layout, Operand, Space};
use crate::plan::place::{Home, Places};
use crate::plan::program::{Program, SlotId};
use crate::plan::queues::Entered;
use crate::plan::stretch::{Run, Running};
use crate::plan::{Call, Form, Memory, Provider, Request};
use std::collections::HashSet;
use std::sync::Arc;

/// An array of the caller, which the call reads or writes.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// Its first byte.
    pub address: *mut u8,
    /// The memory that it lies in.
    pub space: Space,
}

impl Place {
    /// An array in the processor's memory.
    pub fn host(address: *const u8) -> Self {
        Self {
            address: address.cast_mut(),
            space: Space::Host,
        }
    }
}

/// An address of a run that changes from call to call: that of the caller's array.
pub(super) struct Patch {
    pub run: usize,
    pub operand: usize,
    pub writes: bool,
    pub home: Home,
    pub offset: usize,
}

/// An address, and the number of the allocation there (0 where it does not matter).
pub(super) type Spot = (usize, u64);

/// All arrays of the caller.
pub(super) struct Boundary {
    /// Each with the number of its port.
    patches: Vec<(usize, Patch)>,
    ports: Vec<Port>,
}

/// One array of the caller.
struct Port {
    home: Home,
    bytes: usize,
    /// Whether a kernel reads or writes it where it is, and so in the processor's memory.
    touched: bool,
    /// The number of the provider that copies it.
    copier: Option<usize>,
    /// What stands in for it.
    near: Option<Box<dyn Memory>>,
    /// How a recording does without the copy between it and the arena.
    bypass: Option<Bypass>,
    /// Where it lies in the call that runs.
    place: Option<Place>,
}

/// A copy of fewer bytes than this goes through memory that the device reaches fast.
const SMALL: usize = 1 << 20;

impl Boundary {
    pub fn new(program: &Program, runs: &[Run], places: &Places, patches: Vec<Patch>) -> Self {
        let mut ports: Vec<Port> = vec![];
        let mut numbered = vec![];
        for patch in patches {
            let slot = match patch.home {
                Home::Output(i) => Some(program.outputs[i]),
                _ => None,
            };
            let step = &program.steps[runs[patch.run].step];
            let slots = if patch.writes { &step.outputs } else { &step.inputs };
            // A kernel may read a part of an input where it lies.
            let whole = slot.unwrap_or_else(|| places.root(slots[patch.operand]));
            let bytes = places.operands[whole].bytes();
            let known = ports.iter().position(|port| port.home == patch.home);
            let number = known.unwrap_or(ports.len());
            if known.is_none() {
                ports.push(Port::new(patch.home, bytes));
            }
            let port = &mut ports[number];
            match program.providers[step.provider].space() {
                Space::Host => port.touched = true,
                Space::Device(_) => {
                    port.copier = Some(step.provider);
                    port.bypass = Bypass::of(program, runs, places, &patch);
                }
            }
            numbered.push((number, patch));
        }
        Self {
            patches: numbered,
            ports,
        }
    }

    /// The runs whose addresses change.
    pub fn patched(&self) -> impl Iterator<Item = usize> {
        self.patches.iter().map(|(_, patch)| patch.run)
    }

    /// Where the arrays of the call that entered lie, if a device reaches all of them and what is copied from and to may be
    /// recorded: a copy in a recording is one of the allocation that was there, which may have left its address to another.
    pub fn spots(&self, program: &Program) -> Option<Vec<Spot>> {
        let spot = |port: &Port| {
            let place = port.place?;
            let allocation = match place.space {
                _ if port.stands_in() => 0,
                Space::Host => return None,
                space => {
                    let known = owner(program, space).ok()?.allocation_at(place.address);
                    known.or(port.bypassable().map(|_| 0))?
                }
            };
            Some((port.address().addr(), allocation))
        };
        self.ports.iter().map(spot).collect()
    }

    /// Lets the kernels of a recording read and write the caller's arrays themselves, where those lie on their device; gives
    /// the runs that have nothing to copy then. [`Boundary::part`] undoes it.
    pub fn join(&self, runs: &mut [Run]) -> HashSet<usize> {
        let bypassed = self
            .ports
            .iter()
            .filter_map(|port| Some((port.bypassable()?, port.address())));
        bypassed
            .map(|(bypass, address)| {
                bypass.point(runs, address);
                bypass.copy
            })
            .collect()
    }

    /// Lets all kernels work in the arena again.
    pub fn part(&self, running: &mut Running) {
        for bypass in self.ports.iter().filter_map(Port::bypassable) {
            let users = bypass.users.iter();
            users.for_each(|&(run, ..)| running.runs[run].settle(running.bases));
        }
    }

    /// Bytes of what stands in for the caller's arrays.
    pub fn bytes(&self) -> usize {
        self.ports
            .iter()
            .filter_map(|port| port.near.as_ref())
            .map(|near| near.bytes())
            .sum()
    }

    /// Gives the runs the addresses of a call, and brings inputs to where they are read.
    ///
    /// # Errors
    /// If an array lies where nobody can fetch it, or a copy fails.
    pub fn enter(&mut self, running: &mut Running, inputs: &[Place], outputs: &[Place]) -> Result<()> {
        let (program, queues) = (running.program, running.queues);
        for port in &mut self.ports {
            let (place, reads) = match port.home {
                Home::Input(i) => (inputs[i], true),
                Home::Output(i) => (outputs[i], false),
                Home::Arena(_) | Home::Fixed => continue,
            };
            if port.bytes > 0 {
                check_address(program, port.home, place)?;
            }
            port.place = Some(place);
            let Some(near) = port.stand_in(program)? else {
                continue;
            };
            match place.space {
                _ if !reads => {}
                // SAFETY: the caller vouches for so many bytes, and what stands in has as many.
                Space::Host => unsafe { std::ptr::copy_nonoverlapping(place.address, near, port.bytes) },
                space => copy(owner(program, space)?, queues, near, place.address, port.bytes)?,
            }
        }
        for (port, patch) in &self.patches {
            let run = &mut running.runs[patch.run];
            let address = self.ports[*port].address().wrapping_add(patch.offset);
            if patch.writes {
                run.outputs[patch.operand] = address;
            } else {
                run.inputs[patch.operand] = address;
            }
        }
        Ok(())
    }

    /// Brings outputs to where the caller wants them, when all the work is done.
    ///
    /// # Errors
    /// If a copy fails.
    pub fn leave(&mut self, program: &Program, queues: &Entered) -> Result<()> {
        for port in &mut self.ports {
            let (Some(place), true) = (port.place, matches!(port.home, Home::Output(_))) else {
                continue;
            };
            let near = port.address();
            if near == place.address {
                continue;
            }
            match place.space {
                // SAFETY: as in `enter`.
                Space::Host => unsafe { std::ptr::copy_nonoverlapping(near, place.address, port.bytes) },
                space => copy(owner(program, space)?, queues, place.address, near, port.bytes)?,
            }
        }
        Ok(())
    }

    /// Whether the work of the call that entered may go on when it has returned: nothing is left to do for
    /// [`Boundary::leave`], and nothing is read from memory that the caller may change.
    pub fn lasts(&self) -> bool {
        let far = |port: &Port| {
            port.place
                .is_some_and(|place| place.space != Space::Host && place.address == port.address())
        };
        self.ports.iter().all(far)
    }
}

/// The runs that use the copy of a caller's array.
struct Bypass {
    /// The run that copies, and the device that it runs on.
    copy: usize,
    space: Space,
    /// Runs and their operands, and whether they write them.
    users: Vec<(usize, usize, bool)>,
}

impl Bypass {
    /// `None` where the memory of the copy holds something else, too.
    fn of(program: &Program, runs: &[Run], places: &Places, patch: &Patch) -> Option<Self> {
        let run = &runs[patch.run];
        let step = &program.steps[run.step];
        if !step.layers.is_empty() || step.inputs.len() != 1 || patch.offset != 0 {
            return None;
        }
        let slot = if patch.writes { step.inputs[0] } else { step.outputs[0] };
        let holds = |other: &SlotId| places.root(*other) == slot;
        let alone = (0..program.slots.len()).filter(holds).eq([slot]);
        let users = runs.iter().enumerate().filter(|(number, _)| *number != patch.run);
        let users = users.flat_map(|(number, run)| {
            let step = &program.steps[run.step];
            let reads = step.inputs.iter().enumerate().map(|(at, &slot)| (at, slot, false));
            let writes = step.outputs.iter().enumerate().map(|(at, &slot)| (at, slot, true));
            let all = reads.chain(writes).filter(|(_, used, _)| *used == slot);
            all.map(|(at, _, writes)| (number, at, writes)).collect::<Vec<_>>()
        });
        (alone && matches!(places.homes[slot], Home::Arena(_))).then(|| Self {
            copy: patch.run,
            space: program.providers[step.provider].space(),
            users: users.collect(),
        })
    }

    fn point(&self, runs: &mut [Run], address: *mut u8) {
        for &(run, operand, writes) in &self.users {
            if writes {
                runs[run].outputs[operand] = address;
            } else {
                runs[run].inputs[operand] = address.cast_const();
            }
        }
    }
}

impl Port {
    fn new(home: Home, bytes: usize) -> Self {
        Self {
            home,
            bytes,
            touched: false,
            copier: None,
            near: None,
            bypass: None,
            place: None,
        }
    }

    /// How a recording does without a copy, if the kernels can use the caller's array: on their device, and aligned.
    fn bypassable(&self) -> Option<&Bypass> {
        /// What libraries may ask of addresses.
        const ALIGNMENT: usize = 256;
        let place = self
            .place
            .filter(|place| place.address.addr().is_multiple_of(ALIGNMENT))?;
        self.bypass.as_ref().filter(|bypass| bypass.space == place.space)
    }

    /// Where the call reads or writes the array.
    fn address(&self) -> *mut u8 {
        let place = self.place.map_or(std::ptr::null_mut(), |place| place.address);
        match &self.near {
            Some(near) if self.stands_in() => near.address(),
            _ => place,
        }
    }

    fn stands_in(&self) -> bool {
        match self.place.map(|place| place.space) {
            Some(Space::Host) => guard_pages::placement().is_some() || (!self.touched && self.bytes < SMALL),
            Some(Space::Device(_)) => self.touched,
            None => false,
        }
    }

    /// The memory that stands in for the array in this call, if any does.
    fn stand_in(&mut self, program: &Program) -> Result<Option<*mut u8>> {
        if !self.stands_in() {
            return Ok(None);
        }
        if self.near.is_none() {
            let space = self.place.map_or(Space::Host, |place| place.space);
            let provider = match self.copier {
                Some(copier) => &program.providers[copier],
                None => owner(program, space)?,
            };
            self.near = Some(provider.allocate_near(self.bytes)?);
        }
        Ok(self.near.as_ref().map(|near| near.address()))
    }
}

fn owner(program: &Program, space: Space) -> Result<&Arc<dyn Provider>> {
    program.providers.iter().find(|p| p.space() == space).ok_or_else(|| {
        Error::invalid("an array lies in memory that no provider of this engine reaches")
            .got(format!("{space:?}"))
            .hint("copy it to the processor, or build the engine with device= the number of that GPU")
    })
}

/// What a device can tell of the address of an input or output before it would fail for good.
fn check_address(program: &Program, home: Home, place: Place) -> Result<()> {
    let Some(device) = place.space.device() else {
        return Ok(());
    };
    if owner(program, place.space)?.reaches(place.address) {
        return Ok(());
    }
    let network = &program.network;
    let error = Error::invalid("the address of a tensor lies in no memory of the device");
    let error = match home {
        Home::Input(i) => error.tensor(&network[network.inputs()[i]].name),
        Home::Output(i) => error.tensor(&network.outputs()[i].name),
        Home::Arena(_) | Home::Fixed => error,
    };
    Err(error
        .expected(format!("memory of GPU {device}"))
        .got(format!("{:#x}", place.address.addr()))
        .hint("an array of the processor goes without a device; one of a GPU must not have been freed"))
}

/// Copies bytes from or to a device, and waits for it.
fn copy(provider: &Arc<dyn Provider>, queues: &Entered, to: *mut u8, from: *const u8, bytes: usize) -> Result<()> {
    let kernel = provider
        .transfer()
        .ok_or_else(|| Error::internal("a provider with memory of its own copies nothing there"))?;
    let operand = [Operand::dense(DType::UInt8, vec![1, bytes], Layout::Plain)];
    let request = Request {
        form: &Form {
            tactic: 0,
            inputs: vec![Layout::Plain],
            outputs: vec![Layout::Plain],
        },
        inputs: &operand,
        outputs: &operand,
        binding: &Default::default(),
        threads: 1,
    };
    let queue = queues.of_caller(&**provider)?;
    let mut instance = kernel.instantiate(&request)?;
    let workspace = provider.allocate(instance.workspace())?;
    instance.run(&Call {
        inputs: &[from],
        outputs: &[to],
        workspace: workspace.address(),
        queue: queue.raw(),
    })?;
    queue.finish()
}
