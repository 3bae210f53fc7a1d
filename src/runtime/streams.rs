//! The streams that a program's work goes into: the context's own, or the caller's.

use crate::device::{Event, Space, Stream};
use crate::error::{Error, Result};
use crate::plan::Provider;
use crate::plan::program::Program;
use crate::runtime::bindings::ArrayAddress;
use crate::runtime::segment::Launch;
use std::cell::Cell;
use std::ffi::c_void;

/// A stream of the caller's: a CUDA stream.
#[derive(Debug, Clone, Copy)]
pub struct CallerStream {
    /// The device that it belongs to.
    pub space: Space,
    /// Its name there.
    pub raw: *mut c_void,
}

// SAFETY: a name, whose owner vouches for it during the call.
unsafe impl Send for CallerStream {}
// SAFETY: as above.
unsafe impl Sync for CallerStream {}

/// The stream of each provider that runs something, by the provider's number.
#[derive(Default)]
pub(super) struct Streams(Vec<Option<OwnStream>>);

struct OwnStream {
    stream: Box<dyn Stream>,
    /// Behind the work of calls that have returned, which uses the same memory as the next one.
    done: Box<dyn Event>,
    /// Whether such work may still be under way.
    busy: Cell<bool>,
}

impl Streams {
    /// Makes those that a program needs and that are not there yet.
    ///
    /// # Errors
    /// If a device has none left.
    pub fn open(&mut self, program: &Program, launches: &[Launch]) -> Result<()> {
        self.0.resize_with(program.providers.len().max(self.0.len()), || None);
        for number in launches.iter().map(|launch| program.lane(launch.command)) {
            let provider = &program.providers[number];
            if self.0[number].is_none() {
                self.0[number] = Some(OwnStream {
                    stream: provider.device().stream()?,
                    done: provider.device().event()?,
                    busy: Cell::new(false),
                });
            }
        }
        Ok(())
    }

    /// The program's own stream of a provider.
    ///
    /// # Errors
    /// If the provider runs nothing.
    pub fn own(&self, provider: usize) -> Result<&dyn Stream> {
        let own = self.0[provider].as_ref().map(|own| &*own.stream);
        own.ok_or_else(|| Error::internal("a provider has no stream"))
    }

    /// The streams of one call.
    ///
    /// # Errors
    /// If a device refuses to let them wait for the call before.
    pub fn enter(&self, program: &Program, caller: Option<&CallerStream>) -> Result<CallStreams<'_>> {
        let of_caller = caller.and_then(|given| {
            let number = program.providers.iter().position(|p| p.space() == given.space)?;
            self.0[number].as_ref()?;
            // SAFETY: whoever calls vouches for his stream.
            Some((number, unsafe { program.providers[number].device().adopt(given.raw) }))
        });
        let entered = CallStreams {
            streams: self,
            given: caller.copied(),
            of_caller,
        };
        for (number, own) in self.0.iter().enumerate() {
            let Some(own) = own.as_ref().filter(|own| own.busy.get()) else {
                continue;
            };
            let stream = entered.get(number)?;
            // A capture can't wait for what is outside of it; whoever captures has waited before.
            if !stream.is_capturing() {
                own.done.hold(stream)?;
            }
        }
        Ok(entered)
    }

    /// Waits for the work of calls that have returned.
    ///
    /// # Errors
    /// If some of it failed.
    pub fn synchronize(&self) -> Result<()> {
        for own in self.0.iter().flatten().filter(|own| own.busy.get()) {
            own.done.synchronize()?;
            own.busy.set(false);
        }
        Ok(())
    }

    /// Waits for everything, the caller's stream included, whether it fails or not.
    pub fn drain(&self, program: &Program, caller: Option<&CallerStream>) {
        for own in self.0.iter().flatten() {
            let _ = own.stream.synchronize();
            let _ = own.done.synchronize();
            own.busy.set(false);
        }
        let callers = self.enter(program, caller).ok().and_then(|entered| entered.of_caller);
        if let Some((_, stream)) = callers.filter(|(_, stream)| !stream.is_capturing()) {
            let _ = stream.synchronize();
        }
    }
}

/// The streams of one call.
pub(super) struct CallStreams<'a> {
    streams: &'a Streams,
    given: Option<CallerStream>,
    /// The caller's, in place of a provider's.
    of_caller: Option<(usize, Box<dyn Stream>)>,
}

impl CallStreams<'_> {
    /// Where the work of a provider goes.
    ///
    /// # Errors
    /// If the provider runs nothing.
    pub fn get(&self, provider: usize) -> Result<&dyn Stream> {
        match &self.of_caller {
            Some((number, stream)) if *number == provider => Ok(&**stream),
            _ => self.streams.own(provider),
        }
    }

    /// Where copies from and to the caller's arrays of a device go: behind what he put into his stream, and before what he
    /// will put there.
    ///
    /// # Errors
    /// If the device has no stream left.
    pub fn of_caller(&self, provider: &dyn Provider) -> Result<Box<dyn Stream>> {
        match self.given.filter(|given| given.space == provider.space()) {
            // SAFETY: whoever calls vouches for his stream.
            Some(given) => Ok(unsafe { provider.device().adopt(given.raw) }),
            None => {
                let stream = provider.device().stream()?;
                provider.device().follow_default(&*stream)?;
                Ok(stream)
            }
        }
    }

    /// Lets the work of the call wait for the default stream of each device that holds an array of a caller who names no stream.
    ///
    /// # Errors
    /// If a device refuses.
    pub fn follow_default(&self, program: &Program, arrays: &[&[ArrayAddress]]) -> Result<()> {
        if self.given.is_some() {
            return Ok(());
        }
        let holds = |space: Space| arrays.iter().copied().flatten().any(|array| array.space == space);
        for (provider, own) in program.providers.iter().zip(&self.streams.0) {
            if let Some(own) = own.as_ref().filter(|_| holds(provider.space())) {
                provider.device().follow_default(&*own.stream)?;
            }
        }
        Ok(())
    }

    /// Where the work of a provider is captured.
    ///
    /// # Errors
    /// If the provider runs nothing.
    pub fn own(&self, provider: usize) -> Result<&dyn Stream> {
        self.streams.own(provider)
    }

    /// The provider whose work goes into the caller's stream.
    pub fn callers_lane(&self) -> Option<usize> {
        self.of_caller.as_ref().map(|(number, _)| *number)
    }

    /// Whether the caller captures the call into a graph of his own.
    pub fn is_capturing(&self) -> bool {
        self.of_caller.as_ref().is_some_and(|(_, stream)| stream.is_capturing())
    }

    /// Ends the call; that of an `asynchronous` one may still be under way in the caller's stream.
    ///
    /// # Errors
    /// If the device refuses, or work of the call before failed.
    pub fn leave(&self, asynchronous: bool) -> Result<()> {
        // What is captured does not run yet: the work of calls before it is still all there is.
        if self.is_capturing() {
            return Ok(());
        }
        for (number, own) in self.streams.0.iter().enumerate() {
            let Some(own) = own else { continue };
            if asynchronous && self.of_caller.as_ref().is_some_and(|(of, _)| *of == number) {
                own.done.record(self.get(number)?)?;
                own.busy.set(true);
            } else if own.busy.get() {
                // Done with the call that waited for it, unless this one had no work there.
                own.done.synchronize()?;
                own.busy.set(false);
            }
        }
        Ok(())
    }
}
