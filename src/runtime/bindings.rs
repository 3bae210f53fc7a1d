//! Bindings of the caller's arrays: where they are, and the staging buffers that they cross where a kernel can't reach them or a
//! copy from there would be slow.

use crate::device::{Memory, Space};
use crate::error::{Error, Result};
use crate::network::guard_pages;
use crate::plan::Provider;
use crate::plan::io_signature::IoSignature;
use crate::plan::placement::{Home, Placement};
use crate::plan::program::Program;
use crate::runtime::segment::{CallState, Launch};
use crate::runtime::streams::CallStreams;
use std::sync::Arc;

/// An array of the caller, which the call reads or writes.
#[derive(Debug, Clone, Copy)]
pub struct ArrayAddress {
    /// Its first byte.
    pub address: *mut u8,
    /// The memory that it lies in.
    pub space: Space,
    /// Whether a framework holds that memory for it, as PyTorch does for its tensors: the device is not asked then.
    pub is_held: bool,
}

impl ArrayAddress {
    /// An array in the processor's memory.
    pub fn host(address: *const u8) -> Self {
        Self {
            address: address.cast_mut(),
            space: Space::Host,
            is_held: true,
        }
    }

    /// The memory that a program is made for where it is to take this array: kernels of a device use one of its arrays where it
    /// is, unless libraries might ask for another alignment; one that they can't use is copied, as those of the processor are.
    fn signature(self, program: &Program) -> Space {
        /// What libraries may ask of addresses.
        const ALIGNMENT: usize = 256;
        let usable = self.space != Space::Host && self.address.addr().is_multiple_of(ALIGNMENT);
        match usable && program.owner(self.space).is_ok() {
            true => self.space,
            false => Space::Host,
        }
    }
}

/// The signature of a program that takes these arrays.
pub(crate) fn signature(program: &Program, inputs: &[ArrayAddress], outputs: &[ArrayAddress]) -> IoSignature {
    let of = |arrays: &[ArrayAddress]| arrays.iter().map(|array| array.signature(program)).collect();
    IoSignature {
        inputs: of(inputs),
        outputs: of(outputs),
    }
}

/// Whether a program is one for these arrays.
pub(crate) fn takes(program: &Program, inputs: &[ArrayAddress], outputs: &[ArrayAddress]) -> bool {
    let all = |arrays: &[ArrayAddress], spaces: &[Space]| {
        let mut pairs = arrays.iter().zip(spaces);
        pairs.all(|(array, space)| array.signature(program) == *space)
    };
    let IoSignature {
        inputs: from,
        outputs: to,
    } = &program.signature;
    all(inputs, from) && all(outputs, to)
}

/// An operand of a launch that is, or is in, an array of the caller: its address is another one in each call.
pub(super) struct BoundOperand {
    pub launch: usize,
    pub operand: usize,
    pub writes: bool,
    pub home: Home,
    pub offset: usize,
}

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
    /// Whether it is copied, and no graph can be without the number of the allocation that it is in.
    copied: bool,
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
                    array.copied |= !launches[operand.launch].instance.capturable;
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

    /// Where the arrays of the bound call are, if a device reaches all of them.
    pub fn addresses(&self) -> Option<Vec<usize>> {
        let address = |array: &ArrayBinding| {
            let reached = array.given?.space != Space::Host || array.is_staged();
            reached.then(|| array.address().addr())
        };
        self.arrays.iter().map(address).collect()
    }

    /// The numbers of the allocations that these are in (0: nobody can tell, or it is ours), if their copies may be captured: a copy
    /// in a graph is one of the allocation that was there, and another one may have the same address later.
    pub fn allocations(&self, program: &Program) -> Option<Vec<u64>> {
        let allocation = |array: &ArrayBinding| match array.given? {
            _ if array.is_staged() => Some(0),
            given => {
                let device = program.provider_of(given.space).ok()?.device();
                let known = device.allocation_at(given.address);
                known.or((!array.copied).then_some(0))
            }
        };
        self.arrays.iter().map(allocation).collect()
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
                space => copy(
                    program.provider_of(space)?,
                    streams,
                    staging,
                    given.address,
                    array.bytes,
                )?,
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
                space => copy(
                    program.provider_of(space)?,
                    streams,
                    given.address,
                    staging,
                    array.bytes,
                )?,
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

impl ArrayBinding {
    fn new(home: Home, bytes: usize) -> Self {
        Self {
            home,
            bytes,
            host_accessed: false,
            copier: None,
            staging: None,
            copied: false,
            given: None,
        }
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
                None => program.provider_of(space)?,
            };
            self.staging = Some(provider.device().allocate_staging(self.bytes)?);
        }
        Ok(self.staging.as_ref().map(|staging| staging.address()))
    }
}

/// What a device can tell of the address of an input or output before it would fail for good.
fn check_address(program: &Program, home: Home, given: ArrayAddress) -> Result<()> {
    let Some(device) = given.space.device() else {
        return Ok(());
    };
    let is_there = match given.is_held {
        // The memory of a tensor may have been taken away from it.
        true => !given.address.is_null(),
        false => program.provider_of(given.space)?.device().reaches(given.address),
    };
    if is_there {
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
