//! A context with the arrays that are bound to it.

use super::engine::{OpenEngine, Port, no_such};
use crate::context::ExecutionContext;
use crate::device::Space;
use crate::error::{Error, Result};
use crate::interrupt::Scope;
use crate::network::array::{Array, Buffer};
use crate::network::dtype::DType;
use crate::runtime::bindings::ArrayAddress;
use crate::runtime::streams::CallerStream;
use crate::shutdown;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// How often the end of the process is asked for; nothing is waited for meanwhile.
const POLL: Duration = Duration::from_millis(100);

/// A context, which does one thing at a time.
pub struct Context {
    /// The engine.
    pub engine: Arc<OpenEngine>,
    state: Mutex<State>,
    /// What it does now, for whoever ends it.
    scope: Mutex<Option<Scope>>,
}

/// Where an array lies: its address is a number, since nothing here follows it but a call that C's side vouches for.
#[derive(Clone, Copy)]
pub struct Place {
    /// The address; 0 for none.
    pub address: usize,
    /// The bytes there.
    pub bytes: usize,
    /// The memory.
    pub space: Space,
}

impl Place {
    fn array(self) -> ArrayAddress {
        ArrayAddress {
            address: std::ptr::with_exposed_provenance_mut(self.address),
            space: self.space,
            is_held: false,
        }
    }

    /// Whether it has bytes in common with another one.
    fn overlaps(self, other: Self) -> bool {
        let (end, others) = (self.address + self.bytes, other.address + other.bytes);
        self.space == other.space && self.address < others && other.address < end
    }
}

/// What a context works on.
pub struct State {
    context: ExecutionContext,
    inputs: Vec<Option<Input>>,
    outputs: Vec<Output>,
}

struct Input {
    shape: Vec<usize>,
    place: Place,
}

/// An output: where it is to go, and what it is.
#[derive(Default)]
pub struct Output {
    bound: Option<Place>,
    /// Memory of the context's own, where none is bound.
    own: Option<Buffer>,
    /// As `own`, of an engine whose sizes depend on data.
    given: Option<Array>,
    /// Its extents, once they are known.
    pub dims: Option<Vec<i64>>,
    /// Bytes of its elements.
    pub bytes: usize,
    ran: bool,
}

impl Output {
    /// Where it is; 0 as long as it is not.
    pub fn address(&self) -> (usize, Space) {
        match (&self.bound, &self.given, &self.own) {
            (Some(place), ..) => (place.address, place.space),
            (None, Some(array), _) if self.ran => (array.bytes().as_ptr().expose_provenance(), Space::Host),
            (None, None, Some(buffer)) if self.ran => (buffer.as_ptr().expose_provenance(), Space::Host),
            _ => (0, Space::Host),
        }
    }
}

impl Context {
    /// A context of an engine.
    pub fn new(engine: Arc<OpenEngine>) -> Self {
        let state = State {
            context: ExecutionContext::new(engine.engine.clone()),
            inputs: engine.inputs.iter().map(|_| None).collect(),
            outputs: engine.outputs.iter().map(|_| Output::default()).collect(),
        };
        Self {
            engine,
            state: Mutex::new(state),
            scope: Mutex::new(None),
        }
    }

    /// What it works on.
    ///
    /// # Errors
    /// If another thread uses it.
    pub fn lock(&self) -> Result<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Ok(state),
            Err(TryLockError::Poisoned(state)) => Ok(state.into_inner()),
            Err(TryLockError::WouldBlock) => {
                Err(Error::invalid("the context is in use by another thread").hint("use one context per thread"))
            }
        }
    }

    /// Ends what it does now.
    pub fn cancel(&self) {
        let scope = self.scope.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(scope) = &*scope {
            scope.end(Error::interrupted("the call was cancelled"));
        }
    }

    /// Waits for what it does.
    pub fn wait(&self) {
        drop(self.state.lock());
    }

    /// Work that [`Context::cancel`] ends.
    fn cancellable<T>(&self, work: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let mut state = self.lock()?;
        let scope = Scope::new(POLL, shutdown::poll);
        let set = |scope| *self.scope.lock().unwrap_or_else(PoisonError::into_inner) = scope;
        set(Some(scope.clone()));
        let done = scope.run(|| work(&mut state));
        set(None);
        done
    }

    /// Gets ready for the shapes of the inputs.
    ///
    /// # Errors
    /// As [`ExecutionContext::prepare`], or if an input has no shape yet.
    pub fn prepare(&self) -> Result<()> {
        self.cancellable(|state| {
            state.describe(&self.engine)?;
            state.prepare()
        })
    }

    /// Runs on the arrays that are bound, with a stream of the caller's where there is one.
    ///
    /// # Safety
    /// The arrays are where they were said to be, until the work is done.
    ///
    /// # Errors
    /// As [`ExecutionContext::run`], or if an array is missing or does not fit.
    pub unsafe fn run(&self, stream: Option<&CallerStream>) -> Result<()> {
        let inside = self.cancellable(|state| {
            // SAFETY: as the caller says.
            unsafe { state.run(&self.engine, stream) }?;
            Ok(state.profile().is_none_or(|(_, inside)| inside))
        })?;
        self.engine.tell_of_call(inside);
        Ok(())
    }

    /// Waits for work in streams.
    ///
    /// # Errors
    /// If some of it failed.
    pub fn synchronize(&self) -> Result<()> {
        self.cancellable(|state| state.context.finish())
    }
}

fn named(error: Error, port: &Port) -> Error {
    error.tensor(port.name.to_string_lossy())
}

impl State {
    /// Binds an input.
    ///
    /// # Errors
    /// If there is none of this number, or the array does not fit.
    pub fn set_input(&mut self, engine: &OpenEngine, at: usize, shape: Vec<usize>, place: Place) -> Result<()> {
        let count = self.inputs.len();
        let input = self.inputs.get_mut(at).ok_or_else(|| no_such("input", at, count))?;
        check_place(&engine.inputs[at], place)?;
        *input = Some(Input { shape, place });
        Ok(())
    }

    /// Binds an output; without a place it comes into memory of the context's.
    ///
    /// # Errors
    /// As [`State::set_input`].
    pub fn set_output(&mut self, engine: &OpenEngine, at: usize, place: Option<Place>) -> Result<()> {
        let output = self.output(at)?;
        if let Some(place) = place {
            check_place(&engine.outputs[at], place)?;
        }
        (output.bound, output.ran) = (place, false);
        Ok(())
    }

    /// An output.
    ///
    /// # Errors
    /// If there is none of this number.
    pub fn output(&mut self, at: usize) -> Result<&mut Output> {
        let count = self.outputs.len();
        self.outputs.get_mut(at).ok_or_else(|| no_such("output", at, count))
    }

    /// The profile of the shapes that it was prepared for, and whether they lie inside.
    pub fn profile(&self) -> Option<(usize, bool)> {
        self.context.profile()
    }

    /// Bytes of activations and workspaces at these shapes.
    pub fn memory(&self) -> usize {
        self.context.arena_bytes()
    }

    /// Gets ready for arrays where they are bound; outputs that are not will lie in the processor's memory.
    fn prepare(&mut self) -> Result<()> {
        let inputs: Vec<_> = self.inputs.iter().flatten().map(|input| input.place.array()).collect();
        let unbound = ArrayAddress::host(std::ptr::null());
        let outputs = self
            .outputs
            .iter()
            .map(|output| output.bound.map_or(unbound, Place::array));
        self.context.prepare_for(&inputs, &outputs.collect::<Vec<_>>())
    }

    /// Says of the outputs what they are at the shapes of the inputs.
    fn describe(&mut self, engine: &OpenEngine) -> Result<()> {
        let mut types = Vec::with_capacity(self.inputs.len());
        for (input, port) in self.inputs.iter().zip(&engine.inputs) {
            let missing = || Error::invalid("an input is missing").expected("nrx_context_set_input before");
            let input = input.as_ref().ok_or_else(|| named(missing(), port))?;
            types.push((port.dtype, input.shape.as_slice()));
        }
        let specs = self.context.specs(&types)?;
        for (output, spec) in self.outputs.iter_mut().zip(specs) {
            output.describe(spec.dtype, &spec.shape);
        }
        Ok(())
    }

    unsafe fn run(&mut self, engine: &OpenEngine, stream: Option<&CallerStream>) -> Result<()> {
        self.check_inputs(engine)?;
        if self.context.is_staged() {
            // SAFETY: as the caller says.
            return unsafe { self.run_stages(engine) };
        }
        self.describe(engine)?;
        let inputs: Vec<Place> = self.inputs.iter().flatten().map(|input| input.place).collect();
        let mut outputs: Vec<Place> = Vec::with_capacity(self.outputs.len());
        for (output, port) in self.outputs.iter_mut().zip(&engine.outputs) {
            let place = output.place().map_err(|e| named(e, port))?;
            let taken = inputs.iter().chain(&outputs).any(|other| other.overlaps(place));
            if taken {
                let error = Error::invalid("an output lies over another array of the call");
                return Err(named(error, port).expected("memory of its own"));
            }
            outputs.push(place);
        }
        let arrays = |places: Vec<Place>| places.into_iter().map(Place::array).collect::<Vec<_>>();
        let (inputs, outputs) = (arrays(inputs), arrays(outputs));
        // SAFETY: the caller vouches for the inputs and what is bound; the rest is ours. All have the prepared sizes.
        unsafe { self.context.run(&inputs, &outputs, stream) }?;
        self.outputs.iter_mut().for_each(|output| output.ran = true);
        Ok(())
    }

    fn check_inputs(&self, engine: &OpenEngine) -> Result<()> {
        for (input, port) in self.inputs.iter().zip(&engine.inputs) {
            let there = input
                .as_ref()
                .is_some_and(|i| i.place.address != 0 || i.place.bytes == 0);
            if !there {
                return Err(named(Error::invalid("an input has no array"), port)
                    .expected("an address by nrx_context_set_input")
                    .got(if input.is_some() { "NULL" } else { "none" }));
            }
        }
        Ok(())
    }

    /// Runs an engine whose sizes depend on data: arrays go in and come out as copies.
    unsafe fn run_stages(&mut self, engine: &OpenEngine) -> Result<()> {
        let mut arrays = Vec::with_capacity(self.inputs.len());
        for (input, port) in self.inputs.iter().flatten().zip(&engine.inputs) {
            if input.place.space != Space::Host {
                return Err(named(
                    Error::unsupported("sizes of this engine depend on data, and an input lies on a GPU"),
                    port,
                )
                .expected("an array in the processor's memory (NRX_HOST)"));
            }
            let bytes = match input.place.bytes {
                0 => &[],
                // SAFETY: the caller vouches for the input.
                count => unsafe {
                    std::slice::from_raw_parts(std::ptr::with_exposed_provenance(input.place.address), count)
                },
            };
            arrays.push(Array::from_bytes(port.dtype, input.shape.clone(), bytes)?);
        }
        let made = self.context.evaluate(&arrays)?;
        for ((output, array), port) in self.outputs.iter_mut().zip(made).zip(&engine.outputs) {
            output.describe(array.dtype(), array.shape());
            // SAFETY: the caller vouches for what is bound.
            unsafe { output.take(array) }.map_err(|e| named(e, port))?;
        }
        Ok(())
    }
}

impl Output {
    fn describe(&mut self, dtype: DType, shape: &[usize]) {
        let same = self
            .dims
            .as_ref()
            .is_some_and(|dims| dims.iter().map(|&d| d as usize).eq(shape.iter().copied()));
        if !same {
            self.dims = Some(shape.iter().map(|&extent| extent as i64).collect());
            self.ran = false;
        }
        self.bytes = dtype.size() * shape.iter().product::<usize>();
    }

    /// Where a run writes it.
    fn place(&mut self) -> Result<Place> {
        let need = self.bytes;
        if let Some(bound) = self.bound {
            return match bound.bytes >= need {
                true => Ok(Place { bytes: need, ..bound }),
                false => Err(too_small(need, bound.bytes)),
            };
        }
        if self.own.as_ref().is_none_or(|buffer| buffer.len() < need) {
            self.own = None;
            self.own = Some(Buffer::try_zeroed(need)?);
        }
        Ok(Place {
            address: self
                .own
                .as_ref()
                .map_or(0, |buffer| buffer.as_ptr().expose_provenance()),
            bytes: need,
            space: Space::Host,
        })
    }

    /// Takes an array: as a copy where room is bound.
    unsafe fn take(&mut self, array: Array) -> Result<()> {
        let Some(bound) = self.bound else {
            (self.given, self.ran) = (Some(array), true);
            return Ok(());
        };
        if bound.space != Space::Host {
            return Err(
                Error::unsupported("sizes of this engine depend on data, and an output lies on a GPU")
                    .expected("room in the processor's memory (NRX_HOST)"),
            );
        }
        if bound.bytes < self.bytes {
            return Err(too_small(self.bytes, bound.bytes));
        }
        let from = array.bytes();
        let to = std::ptr::with_exposed_provenance_mut::<u8>(bound.address);
        // SAFETY: the caller vouches for the room, which is enough and, being his, not ours.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
        self.ran = true;
        Ok(())
    }
}

fn too_small(need: usize, have: usize) -> Error {
    Error::shape("the room for an output is too small")
        .expected(format!("{need} bytes or more"))
        .got(format!("{have} bytes"))
}

/// Checks what can be told of an address without following it.
fn check_place(port: &Port, place: Place) -> Result<()> {
    let alignment = port.dtype.size();
    if place.address.checked_add(place.bytes).is_none() {
        return Err(named(Error::invalid("an array goes beyond the last address"), port));
    }
    if !place.address.is_multiple_of(alignment) {
        return Err(named(Error::invalid("the address of an array is not aligned"), port)
            .expected(format!("a multiple of {alignment}"))
            .got(format!("{:#x}", place.address)));
    }
    Ok(())
}
