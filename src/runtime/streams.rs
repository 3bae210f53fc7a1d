//! The streams that a program's work goes into: its own, or the caller's.

use crate::device::{Event, Space, Stream};
use crate::error::{Error, Result};
use crate::plan::Provider;
use crate::plan::program::Program;
use crate::runtime::bindings::ArrayAddress;
use crate::runtime::segment::Run;
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
    fence: Box<dyn Event>,
    behind: Cell<bool>,
}

impl Streams {
    /// Makes those that a program needs and that are not there yet.
    ///
    /// # Errors
    /// If a device has none left.
    pub fn open(&mut self, program: &Program, runs: &[Run]) -> Result<()> {
        self.0.resize_with(program.providers.len().max(self.0.len()), || None);
        for number in runs.iter().map(|run| program.lane(run.step)) {
            let provider = &program.providers[number];
            if self.0[number].is_none() {
                self.0[number] = Some(OwnStream {
                    stream: provider.device().stream()?,
                    fence: provider.device().event()?,
                    behind: Cell::new(false),
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
    pub fn enter(&self, program: &Program, caller: Option<&CallerStream>) -> Result<Entered<'_>> {
        let of_caller = caller.and_then(|foreign| {
            let number = program.providers.iter().position(|p| p.space() == foreign.space)?;
            self.0[number].as_ref()?;
            // SAFETY: whoever calls vouches for his stream.
            Some((number, unsafe { program.providers[number].device().adopt(foreign.raw) }))
        });
        let entered = Entered {
            streams: self,
            foreign: caller.copied(),
            caller: of_caller,
        };
        for (number, own) in self.0.iter().enumerate() {
            let Some(own) = own.as_ref().filter(|own| own.behind.get()) else {
                continue;
            };
            let stream = entered.get(number)?;
            // Nothing outside of a recording may be waited for in it; whoever records has waited for it before.
            if !stream.is_capturing() {
                own.fence.hold(stream)?;
            }
        }
        Ok(entered)
    }

    /// Waits for it.
    ///
    /// # Errors
    /// If some of it failed.
    pub fn finish(&self) -> Result<()> {
        for own in self.0.iter().flatten().filter(|own| own.behind.get()) {
            own.fence.synchronize()?;
            own.behind.set(false);
        }
        Ok(())
    }

    /// Waits for everything, the caller's stream included, whether it fails or not.
    pub fn settle(&self, program: &Program, caller: Option<&CallerStream>) {
        for own in self.0.iter().flatten() {
            let _ = own.stream.synchronize();
            let _ = own.fence.synchronize();
            own.behind.set(false);
        }
        let callers = self.enter(program, caller).ok().and_then(|entered| entered.caller);
        if let Some((_, stream)) = callers.filter(|(_, stream)| !stream.is_capturing()) {
            let _ = stream.synchronize();
        }
    }
}

/// The streams of one call.
pub(super) struct Entered<'a> {
    streams: &'a Streams,
    foreign: Option<CallerStream>,
    /// The caller's, in place of a provider's.
    caller: Option<(usize, Box<dyn Stream>)>,
}

impl Entered<'_> {
    /// Where the work of a provider goes.
    ///
    /// # Errors
    /// If the provider runs nothing.
    pub fn get(&self, provider: usize) -> Result<&dyn Stream> {
        match &self.caller {
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
        match self.foreign.filter(|foreign| foreign.space == provider.space()) {
            // SAFETY: whoever calls vouches for his stream.
            Some(foreign) => Ok(unsafe { provider.device().adopt(foreign.raw) }),
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
        if self.foreign.is_some() {
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

    /// Where the work of a provider is recorded.
    ///
    /// # Errors
    /// If the provider runs nothing.
    pub fn own(&self, provider: usize) -> Result<&dyn Stream> {
        self.streams.own(provider)
    }

    /// Whether the caller records the call.
    pub fn is_capturing(&self) -> bool {
        self.caller.as_ref().is_some_and(|(_, stream)| stream.is_capturing())
    }

    /// Ends the call, whose work in the caller's stream goes on where it `lasts`.
    ///
    /// # Errors
    /// If the device refuses, or work of the call before failed.
    pub fn leave(&self, lasts: bool) -> Result<()> {
        // What is recorded does not run yet: the work of calls before it is still all there is.
        if self.is_capturing() {
            return Ok(());
        }
        for (number, own) in self.streams.0.iter().enumerate() {
            let Some(own) = own else { continue };
            if lasts && self.caller.as_ref().is_some_and(|(of, _)| *of == number) {
                own.fence.record(self.get(number)?)?;
                own.behind.set(true);
            } else if own.behind.get() {
                // Done with the call that waited for it, unless this one had no work there.
                own.fence.synchronize()?;
                own.behind.set(false);
            }
        }
        Ok(())
    }
}
