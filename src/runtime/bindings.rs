//! Bindings of the caller's arrays: where they are, and the staging buffers that they cross where a kernel can't reach them or a
//! copy from there would be slow.

use crate::device::{Memory, Space};
use crate::error::{Error, Result};
use crate::network::guard_pages;
use crate::plan::Provider;
use crate::plan::placement::{Home, Placement};
use crate::plan::program::{Program, SlotId};
use crate::runtime::segment::{CallState, Launch};
use crate::runtime::streams::CallStreams;
use std::collections::HashSet;
use std::sync::Arc;

/// An array of the caller, which the call reads or writes.
#[derive(Debug, Clone, Copy)]
pub struct ArrayAddress {
    /// Its first byte.
    pub address: *mut u8,
    /// The memory that it lies in.
    pub space: Space,
}

impl ArrayAddress {
    /// An array in the processor's memory.
    pub fn host(address: *const u8) -> Self {
        Self {
            address: address.cast_mut(),
            space: Space::Host,
        }
    }
}

/// An operand of a launch that is, or is in, an array of the caller: its address is another one in each call.
pub(super) struct BoundOperand {
    pub launch: usize,
    pub operand: usize,
    pub writes: bool,
    pub home: Home,
    pub offset: usize,
}

/// An address, and the number of the allocation there (0 where it does not matter).
pub(super) type ArrayKey = (usize, u64);

/// All arrays of the caller.
pub(super) struct Bindings {
    /// Each with the number of its array.
    bound: Vec<(usize, BoundOperand)>,
    arrays: Vec<ArrayBinding>,
}

/// One array of the caller.
struct ArrayBinding {
    home: Home,
    bytes: usize,
    /// Whether a kernel reads or writes it where it is, and so in the processor's memory.
    host_accessed: bool,
    /// The number of the provider that copies it.
    copier: Option<usize>,
    /// What its copies go through.
    staging: Option<Box<dyn Memory>>,
    /// How a graph does without the copy between it and the arena.
    elision: Option<CopyElision>,
    /// Where it is in the call that is bound.
    given: Option<ArrayAddress>,
}

/// A copy of fewer bytes than this goes through a staging buffer.
const SMALL: usize = 1 << 20;

impl Bindings {
    pub fn new(program: &Program, launches: &[Launch], places: &Placement, bound: Vec<BoundOperand>) -> Self {
        let mut arrays: Vec<ArrayBinding> = vec![];
        let mut numbered = vec![];
        for operand in bound {
            let slot = match operand.home {
                Home::Output(i) => Some(program.outputs[i]),
                _ => None,
            };
            let command = &program.commands[launches[operand.launch].command];
            let slots = if operand.writes {
                &command.outputs
            } else {
                &command.inputs
            };
            // A kernel may read a part of an input in place.
            let whole = slot.unwrap_or_else(|| places.root(slots[operand.operand]));
            let bytes = places.operands[whole].bytes();
            let known = arrays.iter().position(|array| array.home == operand.home);
            let number = known.unwrap_or(arrays.len());
            if known.is_none() {
                arrays.push(ArrayBinding::new(operand.home, bytes));
            }
            let array = &mut arrays[number];
            match program.providers[command.provider].space() {
                Space::Host => array.host_accessed = true,
                Space::Device(_) => {
                    array.copier = Some(command.provider);
                    array.elision = CopyElision::of(program, launches, places, &operand);
                }
            }
            numbered.push((number, operand));
        }
        Self {
            bound: numbered,
            arrays,
        }
    }

    /// The launches that use an array of the caller.
    pub fn bound(&self) -> impl Iterator<Item = usize> {
        self.bound.iter().map(|(_, operand)| operand.launch)
    }

    /// Where the arrays of the bound call are, if a device reaches all of them and their copies may be captured: a copy in a graph
    /// is one of the allocation that was there, and another one may have the same address later.
    pub fn keys(&self, program: &Program) -> Option<Vec<ArrayKey>> {
        let key = |array: &ArrayBinding| {
            let given = array.given?;
            let allocation = match given.space {
                _ if array.is_staged() => 0,
                Space::Host => return None,
                space => {
                    let known = owner(program, space).ok()?.device().allocation_at(given.address);
                    known.or(array.elidable().map(|_| 0))?
                }
            };
            Some((array.address().addr(), allocation))
        };
        self.arrays.iter().map(key).collect()
    }

    /// Lets the kernels of a graph read and write the caller's arrays themselves, where those are on their device; gives the
    /// launches that have nothing to copy then. [`Bindings::restore_copies`] undoes it.
    pub fn elide_copies(&self, launches: &mut [Launch]) -> HashSet<usize> {
        let elided = self
            .arrays
            .iter()
            .filter_map(|array| Some((array.elidable()?, array.address())));
        elided
            .map(|(elision, address)| {
                elision.point(launches, address);
                elision.copy
            })
            .collect()
    }

    /// Lets all kernels work in the arena again.
    pub fn restore_copies(&self, state: &mut CallState) {
        for elision in self.arrays.iter().filter_map(ArrayBinding::elidable) {
            let users = elision.users.iter();
            users.for_each(|&(launch, ..)| state.launches[launch].rebase(state.bases));
        }
    }

    /// Bytes of staging buffers.
    pub fn bytes(&self) -> usize {
        self.arrays
            .iter()
            .filter_map(|array| array.staging.as_ref())
            .map(|staging| staging.bytes())
            .sum()
    }

    /// Gives the launches the addresses of a call, and brings inputs to where they are read.
    ///
    /// # Errors
    /// If an array is where nobody can fetch it, or a copy fails.
    pub fn bind(&mut self, state: &mut CallState, inputs: &[ArrayAddress], outputs: &[ArrayAddress]) -> Result<()> {
        let (program, streams) = (state.program, state.streams);
        for array in &mut self.arrays {
            let (given, reads) = match array.home {
                Home::Input(i) => (inputs[i], true),
                Home::Output(i) => (outputs[i], false),
                Home::Arena(_) | Home::Fixed => continue,
            };
            if array.bytes > 0 {
                check_address(program, array.home, given)?;
            }
            array.given = Some(given);
            let Some(staging) = array.staging_buffer(program)? else {
                continue;
            };
            match given.space {
                _ if !reads => {}
                // SAFETY: the caller vouches for so many bytes, and the staging buffer has as many.
                Space::Host => unsafe { std::ptr::copy_nonoverlapping(given.address, staging, array.bytes) },
                space => copy(owner(program, space)?, streams, staging, given.address, array.bytes)?,
            }
        }
        for (array, operand) in &self.bound {
            let launch = &mut state.launches[operand.launch];
            let address = self.arrays[*array].address().wrapping_add(operand.offset);
            if operand.writes {
                launch.outputs[operand.operand] = address;
            } else {
                launch.inputs[operand.operand] = address;
            }
        }
        Ok(())
    }

    /// Brings outputs to where the caller wants them, when all the work is done.
    ///
    /// # Errors
    /// If a copy fails.
    pub fn write_back(&mut self, program: &Program, streams: &CallStreams) -> Result<()> {
        for array in &mut self.arrays {
            let (Some(given), true) = (array.given, matches!(array.home, Home::Output(_))) else {
                continue;
            };
            let staging = array.address();
            if staging == given.address {
                continue;
            }
            match given.space {
                // SAFETY: as in `bind`.
                Space::Host => unsafe { std::ptr::copy_nonoverlapping(staging, given.address, array.bytes) },
                space => copy(owner(program, space)?, streams, given.address, staging, array.bytes)?,
            }
        }
        Ok(())
    }

    /// Whether the bound call may return before its work is done: nothing is left to do for [`Bindings::write_back`], and nothing
    /// is read from the caller's memory of the processor, which he may change; what was copied from there waits in staging
    /// buffers, which nobody may write to before.
    pub fn can_be_asynchronous(&self) -> bool {
        let may = |array: &ArrayBinding| {
            array.given.is_some_and(|given| match given.space {
                Space::Host => array.is_staged() && matches!(array.home, Home::Input(_)),
                _ => given.address == array.address(),
            })
        };
        self.arrays.iter().all(may)
    }
}

/// The launches that use the copy of a caller's array.
struct CopyElision {
    /// The launch that copies, and the device that it runs on.
    copy: usize,
    space: Space,
    /// Launches and their operands, and whether they write them.
    users: Vec<(usize, usize, bool)>,
}

impl CopyElision {
    /// `None` where the memory of the copy holds something else, too.
    fn of(program: &Program, launches: &[Launch], places: &Placement, operand: &BoundOperand) -> Option<Self> {
        let command = &program.commands[launches[operand.launch].command];
        if !command.layers.is_empty() || command.inputs.len() != 1 || operand.offset != 0 {
            return None;
        }
        let slot = if operand.writes {
            command.inputs[0]
        } else {
            command.outputs[0]
        };
        let holds = |other: &SlotId| places.root(*other) == slot;
        let alone = (0..program.slots.len()).filter(holds).eq([slot]);
        let users = launches
            .iter()
            .enumerate()
            .filter(|(number, _)| *number != operand.launch);
        let users = users.flat_map(|(number, launch)| {
            let command = &program.commands[launch.command];
            let reads = command.inputs.iter().enumerate().map(|(at, &slot)| (at, slot, false));
            let writes = command.outputs.iter().enumerate().map(|(at, &slot)| (at, slot, true));
            let all = reads.chain(writes).filter(|(_, used, _)| *used == slot);
            all.map(|(at, _, writes)| (number, at, writes)).collect::<Vec<_>>()
        });
        (alone && matches!(places.homes[slot], Home::Arena(_))).then(|| Self {
            copy: operand.launch,
            space: program.providers[command.provider].space(),
            users: users.collect(),
        })
    }

    fn point(&self, launches: &mut [Launch], address: *mut u8) {
        for &(launch, operand, writes) in &self.users {
            if writes {
                launches[launch].outputs[operand] = address;
            } else {
                launches[launch].inputs[operand] = address.cast_const();
            }
        }
    }
}

impl ArrayBinding {
    fn new(home: Home, bytes: usize) -> Self {
        Self {
            home,
            bytes,
            host_accessed: false,
            copier: None,
            staging: None,
            elision: None,
            given: None,
        }
    }

    /// How a graph does without a copy, if the kernels can use the caller's array: on their device, and aligned.
    fn elidable(&self) -> Option<&CopyElision> {
        /// What libraries may ask of addresses.
        const ALIGNMENT: usize = 256;
        let given = self
            .given
            .filter(|given| given.address.addr().is_multiple_of(ALIGNMENT))?;
        self.elision.as_ref().filter(|elision| elision.space == given.space)
    }

    /// Where the call reads or writes the array.
    fn address(&self) -> *mut u8 {
        let given = self.given.map_or(std::ptr::null_mut(), |given| given.address);
        match &self.staging {
            Some(staging) if self.is_staged() => staging.address(),
            _ => given,
        }
    }

    fn is_staged(&self) -> bool {
        match self.given.map(|given| given.space) {
            Some(Space::Host) => guard_pages::placement().is_some() || (!self.host_accessed && self.bytes < SMALL),
            Some(Space::Device(_)) => self.host_accessed,
            None => false,
        }
    }

    /// The memory that stands in for the array in this call, if any does.
    fn staging_buffer(&mut self, program: &Program) -> Result<Option<*mut u8>> {
        if !self.is_staged() {
            return Ok(None);
        }
        if self.staging.is_none() {
            let space = self.given.map_or(Space::Host, |given| given.space);
            let provider = match self.copier {
                Some(copier) => &program.providers[copier],
                None => owner(program, space)?,
            };
            self.staging = Some(provider.device().allocate_staging(self.bytes)?);
        }
        Ok(self.staging.as_ref().map(|staging| staging.address()))
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
fn check_address(program: &Program, home: Home, given: ArrayAddress) -> Result<()> {
    let Some(device) = given.space.device() else {
        return Ok(());
    };
    if owner(program, given.space)?.device().reaches(given.address) {
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
        .got(format!("{:#x}", given.address.addr()))
        .hint("an array of the processor goes without a device; one of a GPU must not have been freed"))
}

/// Copies bytes from or to a device, and waits for it.
fn copy(provider: &Arc<dyn Provider>, streams: &CallStreams, to: *mut u8, from: *const u8, bytes: usize) -> Result<()> {
    let stream = streams.of_caller(&**provider)?;
    // SAFETY: the caller vouches for his array, and the staging buffer has as many bytes.
    unsafe { provider.device().copy(to, from, bytes, &*stream)? };
    stream.synchronize()
}
