//! The caller's arrays: where they lie, and through which memory they cross where a kernel can't reach them or a copy from
//! there would be slow.

use crate::device::{Memory, Space};
use crate::error::{Error, Result};
use crate::network::dtype::DType;
use crate::network::guard_pages;
use crate::plan::layout::{Layout, Operand};
use crate::plan::placement::{Home, Placement};
use crate::plan::program::{Program, SlotId};
use crate::plan::{Call, Form, Provider, Request};
use crate::runtime::segment::{CallState, Run};
use crate::runtime::streams::Entered;
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

/// An address of a run that changes from call to call: that of the caller's array.
pub(super) struct ArrayOperand {
    pub run: usize,
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
    operands_of_arrays: Vec<(usize, ArrayOperand)>,
    arrays: Vec<ArrayBinding>,
}

/// One array of the caller.
struct ArrayBinding {
    home: Home,
    bytes: usize,
    /// Whether a kernel reads or writes it where it is, and so in the processor's memory.
    touched: bool,
    /// The number of the provider that copies it.
    copier: Option<usize>,
    /// What stands in for it.
    staging: Option<Box<dyn Memory>>,
    /// How a recording does without the copy between it and the arena.
    elision: Option<CopyElision>,
    /// Where it lies in the call that runs.
    place: Option<ArrayAddress>,
}

/// A copy of fewer bytes than this goes through memory that the device reaches fast.
const SMALL: usize = 1 << 20;

impl Bindings {
    pub fn new(program: &Program, runs: &[Run], places: &Placement, operands_of_arrays: Vec<ArrayOperand>) -> Self {
        let mut arrays: Vec<ArrayBinding> = vec![];
        let mut numbered = vec![];
        for patch in operands_of_arrays {
            let slot = match patch.home {
                Home::Output(i) => Some(program.outputs[i]),
                _ => None,
            };
            let step = &program.steps[runs[patch.run].step];
            let slots = if patch.writes { &step.outputs } else { &step.inputs };
            // A kernel may read a part of an input where it lies.
            let whole = slot.unwrap_or_else(|| places.root(slots[patch.operand]));
            let bytes = places.operands[whole].bytes();
            let known = arrays.iter().position(|array| array.home == patch.home);
            let number = known.unwrap_or(arrays.len());
            if known.is_none() {
                arrays.push(ArrayBinding::new(patch.home, bytes));
            }
            let array = &mut arrays[number];
            match program.providers[step.provider].space() {
                Space::Host => array.touched = true,
                Space::Device(_) => {
                    array.copier = Some(step.provider);
                    array.elision = CopyElision::of(program, runs, places, &patch);
                }
            }
            numbered.push((number, patch));
        }
        Self {
            operands_of_arrays: numbered,
            arrays,
        }
    }

    /// The runs whose addresses change.
    pub fn patched(&self) -> impl Iterator<Item = usize> {
        self.operands_of_arrays.iter().map(|(_, patch)| patch.run)
    }

    /// Where the arrays of the call that entered lie, if a device reaches all of them and what is copied from and to may be
    /// recorded: a copy in a recording is one of the allocation that was there, which may have left its address to another.
    pub fn keys(&self, program: &Program) -> Option<Vec<ArrayKey>> {
        let key = |array: &ArrayBinding| {
            let place = array.place?;
            let allocation = match place.space {
                _ if array.stands_in() => 0,
                Space::Host => return None,
                space => {
                    let known = owner(program, space).ok()?.device().allocation_at(place.address);
                    known.or(array.bypassable().map(|_| 0))?
                }
            };
            Some((array.address().addr(), allocation))
        };
        self.arrays.iter().map(key).collect()
    }

    /// Lets the kernels of a recording read and write the caller's arrays themselves, where those lie on their device; gives
    /// the runs that have nothing to copy then. [`Bindings::part`] undoes it.
    pub fn join(&self, runs: &mut [Run]) -> HashSet<usize> {
        let bypassed = self
            .arrays
            .iter()
            .filter_map(|array| Some((array.bypassable()?, array.address())));
        bypassed
            .map(|(elision, address)| {
                elision.point(runs, address);
                elision.copy
            })
            .collect()
    }

    /// Lets all kernels work in the arena again.
    pub fn part(&self, state: &mut CallState) {
        for elision in self.arrays.iter().filter_map(ArrayBinding::bypassable) {
            let users = elision.users.iter();
            users.for_each(|&(run, ..)| state.runs[run].settle(state.bases));
        }
    }

    /// Bytes of what stands in for the caller's arrays.
    pub fn bytes(&self) -> usize {
        self.arrays
            .iter()
            .filter_map(|array| array.staging.as_ref())
            .map(|staging| staging.bytes())
            .sum()
    }

    /// Gives the runs the addresses of a call, and brings inputs to where they are read.
    ///
    /// # Errors
    /// If an array lies where nobody can fetch it, or a copy fails.
    pub fn enter(&mut self, state: &mut CallState, inputs: &[ArrayAddress], outputs: &[ArrayAddress]) -> Result<()> {
        let (program, streams) = (state.program, state.streams);
        for array in &mut self.arrays {
            let (place, reads) = match array.home {
                Home::Input(i) => (inputs[i], true),
                Home::Output(i) => (outputs[i], false),
                Home::Arena(_) | Home::Fixed => continue,
            };
            if array.bytes > 0 {
                check_address(program, array.home, place)?;
            }
            array.place = Some(place);
            let Some(staging) = array.stand_in(program)? else {
                continue;
            };
            match place.space {
                _ if !reads => {}
                // SAFETY: the caller vouches for so many bytes, and what stands in has as many.
                Space::Host => unsafe { std::ptr::copy_nonoverlapping(place.address, staging, array.bytes) },
                space => copy(owner(program, space)?, streams, staging, place.address, array.bytes)?,
            }
        }
        for (array, patch) in &self.operands_of_arrays {
            let run = &mut state.runs[patch.run];
            let address = self.arrays[*array].address().wrapping_add(patch.offset);
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
    pub fn leave(&mut self, program: &Program, streams: &Entered) -> Result<()> {
        for array in &mut self.arrays {
            let (Some(place), true) = (array.place, matches!(array.home, Home::Output(_))) else {
                continue;
            };
            let staging = array.address();
            if staging == place.address {
                continue;
            }
            match place.space {
                // SAFETY: as in `enter`.
                Space::Host => unsafe { std::ptr::copy_nonoverlapping(staging, place.address, array.bytes) },
                space => copy(owner(program, space)?, streams, place.address, staging, array.bytes)?,
            }
        }
        Ok(())
    }

    /// Whether the work of the call that entered may go on when it has returned: nothing is left to do for
    /// [`Bindings::leave`], and nothing is read from memory that the caller may change.
    pub fn lasts(&self) -> bool {
        let far = |array: &ArrayBinding| {
            array
                .place
                .is_some_and(|place| place.space != Space::Host && place.address == array.address())
        };
        self.arrays.iter().all(far)
    }
}

/// The runs that use the copy of a caller's array.
struct CopyElision {
    /// The run that copies, and the device that it runs on.
    copy: usize,
    space: Space,
    /// Runs and their operands, and whether they write them.
    users: Vec<(usize, usize, bool)>,
}

impl CopyElision {
    /// `None` where the memory of the copy holds something else, too.
    fn of(program: &Program, runs: &[Run], places: &Placement, patch: &ArrayOperand) -> Option<Self> {
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

impl ArrayBinding {
    fn new(home: Home, bytes: usize) -> Self {
        Self {
            home,
            bytes,
            touched: false,
            copier: None,
            staging: None,
            elision: None,
            place: None,
        }
    }

    /// How a recording does without a copy, if the kernels can use the caller's array: on their device, and aligned.
    fn bypassable(&self) -> Option<&CopyElision> {
        /// What libraries may ask of addresses.
        const ALIGNMENT: usize = 256;
        let place = self
            .place
            .filter(|place| place.address.addr().is_multiple_of(ALIGNMENT))?;
        self.elision.as_ref().filter(|elision| elision.space == place.space)
    }

    /// Where the call reads or writes the array.
    fn address(&self) -> *mut u8 {
        let place = self.place.map_or(std::ptr::null_mut(), |place| place.address);
        match &self.staging {
            Some(staging) if self.stands_in() => staging.address(),
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
        if self.staging.is_none() {
            let space = self.place.map_or(Space::Host, |place| place.space);
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
fn check_address(program: &Program, home: Home, place: ArrayAddress) -> Result<()> {
    let Some(device) = place.space.device() else {
        return Ok(());
    };
    if owner(program, place.space)?.device().reaches(place.address) {
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
fn copy(provider: &Arc<dyn Provider>, streams: &Entered, to: *mut u8, from: *const u8, bytes: usize) -> Result<()> {
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
    let stream = streams.of_caller(&**provider)?;
    let mut instance = kernel.instantiate(&request)?;
    let workspace = provider.device().allocate(instance.workspace())?;
    instance.run(&Call {
        inputs: &[from],
        outputs: &[to],
        workspace: workspace.address(),
        stream: stream.raw(),
    })?;
    stream.synchronize()
}
