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
    /// The work of calls that have returned, which uses the same memory as the next one.
    in_flight: Cell<InFlight>,
    /// Behind that work, where it is recorded.
    done: Box<dyn Event>,
}

/// Where work of calls that have returned may still be under way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InFlight {
    Nowhere,
    /// In the default stream, which is there when somebody wants to wait for it.
    InDefault,
    /// In a stream of the caller's, which may be gone by then: the event is recorded.
    Recorded,
}

impl OwnStream {
    /// Leaves the work of a call in a stream of the caller's.
    fn leave_in(&self, stream: &dyn Stream) -> Result<()> {
        if stream.is_default() {
            self.in_flight.set(InFlight::InDefault);
            return Ok(());
        }
        self.done.record(stream)?;
        self.in_flight.set(InFlight::Recorded);
        Ok(())
    }

    /// Whether there is work under way, which the event is behind then.
    fn record(&self) -> Result<bool> {
        if self.in_flight.get() == InFlight::InDefault {
            self.done.record_default()?;
            self.in_flight.set(InFlight::Recorded);
        }
        Ok(self.in_flight.get() == InFlight::Recorded)
    }

    /// Lets what goes into a stream from now on come behind the work that is under way.
    fn hold(&self, stream: &dyn Stream) -> Result<()> {
        let is_behind = self.in_flight.get() == InFlight::InDefault && stream.is_default();
        // A capture can't wait for what is outside of it; whoever captures has waited before.
        if !is_behind && !stream.is_capturing() && self.record()? {
            self.done.hold(stream)?;
        }
        Ok(())
    }

    /// Waits for the work that is under way.
    fn synchronize(&self) -> Result<()> {
        if self.record()? {
            self.done.synchronize()?;
            self.in_flight.set(InFlight::Nowhere);
        }
        Ok(())
    }
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
                    in_flight: Cell::new(InFlight::Nowhere),
                    done: provider.device().event()?,
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
            if let Some(own) = own {
                own.hold(entered.get(number)?)?;
            }
        }
        Ok(entered)
    }

    /// Waits for the work of calls that have returned.
    ///
    /// # Errors
    /// If some of it failed.
    pub fn synchronize(&self) -> Result<()> {
        self.0.iter().flatten().try_for_each(OwnStream::synchronize)
    }

    /// Waits for everything, the caller's stream included, whether it fails or not.
    pub fn drain(&self, program: &Program, caller: Option<&CallerStream>) {
        for own in self.0.iter().flatten() {
            let _ = own.stream.synchronize();
            let _ = own.synchronize();
            own.in_flight.set(InFlight::Nowhere);
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
                own.leave_in(self.get(number)?)?;
            } else {
                // Done with the call that waited for it, unless this one had no work there.
                own.synchronize()?;
            }
        }
        Ok(())
    }
}
