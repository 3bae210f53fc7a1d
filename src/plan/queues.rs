//! The queues that a program's work goes into: its own, or the caller's.

use crate::error::{Error, Result};
use crate::plan::boundary::Place;
use crate::plan::layout::Space;
use crate::plan::program::Program;
use crate::plan::stretch::Run;
use crate::plan::{Fence, Provider, Queue};
use std::cell::Cell;
use std::ffi::c_void;

/// A queue of the caller's: a CUDA stream.
#[derive(Debug, Clone, Copy)]
pub struct Foreign {
    /// The device that it belongs to.
    pub space: Space,
    /// Its name there.
    pub raw: *mut c_void,
}

// SAFETY: a name, whose owner vouches for it during the call.
unsafe impl Send for Foreign {}
// SAFETY: as above.
unsafe impl Sync for Foreign {}

/// The queue of each provider that runs something, by the provider's number.
#[derive(Default)]
pub(super) struct Queues(Vec<Option<Own>>);

struct Own {
    queue: Box<dyn Queue>,
    /// Behind the work of calls that have returned, which uses the same memory as the next one.
    fence: Box<dyn Fence>,
    behind: Cell<bool>,
}

impl Queues {
    /// Makes those that a program needs and that are not there yet.
    ///
    /// # Errors
    /// If a device has none left.
    pub fn open(&mut self, program: &Program, runs: &[Run]) -> Result<()> {
        self.0.resize_with(program.providers.len().max(self.0.len()), || None);
        for number in runs.iter().map(|run| program.lane(run.step)) {
            let provider = &program.providers[number];
            if self.0[number].is_none() {
                self.0[number] = Some(Own {
                    queue: provider.queue()?,
                    fence: provider.fence()?,
                    behind: Cell::new(false),
                });
            }
        }
        Ok(())
    }

    /// The program's own queue of a provider.
    ///
    /// # Errors
    /// If the provider runs nothing.
    pub fn own(&self, provider: usize) -> Result<&dyn Queue> {
        let own = self.0[provider].as_ref().map(|own| &*own.queue);
        own.ok_or_else(|| Error::internal("a provider has no queue"))
    }

    /// The queues of one call.
    ///
    /// # Errors
    /// If a device refuses to let them wait for the call before.
    pub fn enter(&self, program: &Program, caller: Option<&Foreign>) -> Result<Entered<'_>> {
        let of_caller = caller.and_then(|foreign| {
            let number = program.providers.iter().position(|p| p.space() == foreign.space)?;
            self.0[number].as_ref()?;
            // SAFETY: whoever calls vouches for his queue.
            Some((number, unsafe { program.providers[number].adopt(foreign.raw) }))
        });
        let entered = Entered {
            queues: self,
            foreign: caller.copied(),
            caller: of_caller,
        };
        for (number, own) in self.0.iter().enumerate() {
            let Some(own) = own.as_ref().filter(|own| own.behind.get()) else {
                continue;
            };
            let queue = entered.get(number)?;
            // Nothing outside of a recording may be waited for in it; whoever records has waited for it before.
            if !queue.is_recording() {
                own.fence.hold(queue)?;
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
            own.fence.finish()?;
            own.behind.set(false);
        }
        Ok(())
    }

    /// Waits for everything, the caller's queue included, whether it fails or not.
    pub fn settle(&self, program: &Program, caller: Option<&Foreign>) {
        for own in self.0.iter().flatten() {
            let _ = own.queue.finish();
            let _ = own.fence.finish();
            own.behind.set(false);
        }
        let callers = self.enter(program, caller).ok().and_then(|entered| entered.caller);
        if let Some((_, queue)) = callers.filter(|(_, queue)| !queue.is_recording()) {
            let _ = queue.finish();
        }
    }
}

/// The queues of one call.
pub(super) struct Entered<'a> {
    queues: &'a Queues,
    foreign: Option<Foreign>,
    /// The caller's, in place of a provider's.
    caller: Option<(usize, Box<dyn Queue>)>,
}

impl Entered<'_> {
    /// Where the work of a provider goes.
    ///
    /// # Errors
    /// If the provider runs nothing.
    pub fn get(&self, provider: usize) -> Result<&dyn Queue> {
        match &self.caller {
            Some((number, queue)) if *number == provider => Ok(&**queue),
            _ => self.queues.own(provider),
        }
    }

    /// Where copies from and to the caller's arrays of a device go: behind what he put into his queue, and before what he
    /// will put there.
    ///
    /// # Errors
    /// If the device has no queue left.
    pub fn of_caller(&self, provider: &dyn Provider) -> Result<Box<dyn Queue>> {
        match self.foreign.filter(|foreign| foreign.space == provider.space()) {
            // SAFETY: whoever calls vouches for his queue.
            Some(foreign) => Ok(unsafe { provider.adopt(foreign.raw) }),
            None => {
                let queue = provider.queue()?;
                provider.follow_default(&*queue)?;
                Ok(queue)
            }
        }
    }

    /// Lets the work of the call wait for the default queue of each device that holds an array of a caller who names no queue.
    ///
    /// # Errors
    /// If a device refuses.
    pub fn follow_default(&self, program: &Program, arrays: &[&[Place]]) -> Result<()> {
        if self.foreign.is_some() {
            return Ok(());
        }
        let holds = |space: Space| arrays.iter().copied().flatten().any(|array| array.space == space);
        for (provider, own) in program.providers.iter().zip(&self.queues.0) {
            if let Some(own) = own.as_ref().filter(|_| holds(provider.space())) {
                provider.follow_default(&*own.queue)?;
            }
        }
        Ok(())
    }

    /// Where the work of a provider is recorded.
    ///
    /// # Errors
    /// If the provider runs nothing.
    pub fn own(&self, provider: usize) -> Result<&dyn Queue> {
        self.queues.own(provider)
    }

    /// Whether the caller records the call.
    pub fn is_recording(&self) -> bool {
        self.caller.as_ref().is_some_and(|(_, queue)| queue.is_recording())
    }

    /// Ends the call, whose work in the caller's queue goes on where it `lasts`.
    ///
    /// # Errors
    /// If the device refuses, or work of the call before failed.
    pub fn leave(&self, lasts: bool) -> Result<()> {
        // What is recorded does not run yet: the work of calls before it is still all there is.
        if self.is_recording() {
            return Ok(());
        }
        for (number, own) in self.queues.0.iter().enumerate() {
            let Some(own) = own else { continue };
            if lasts && self.caller.as_ref().is_some_and(|(of, _)| *of == number) {
                own.fence.set(self.get(number)?)?;
                own.behind.set(true);
            } else if own.behind.get() {
                // Done with the call that waited for it, unless this one had no work there.
                own.fence.finish()?;
                own.behind.set(false);
            }
        }
        Ok(())
    }
}
