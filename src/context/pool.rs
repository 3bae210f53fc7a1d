//! Contexts lent to any thread that calls.

use crate::context::ExecutionContext;
use crate::engine::Engine;
use crate::error::Result;
use crate::interrupt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Lends contexts of one engine; at most so many exist, who comes later waits.
pub struct ContextPool {
    engine: Arc<Engine>,
    limit: usize,
    state: Mutex<State>,
    returned: Condvar,
}

struct State {
    idle: Vec<ExecutionContext>,
    /// Those whose calls a caller captured: his graphs go on working in their memory.
    captured: Vec<ExecutionContext>,
    lent: usize,
    process: u32,
}

/// A borrowed context; it goes back when it is dropped.
pub struct Lent<'p> {
    pool: &'p ContextPool,
    context: Option<ExecutionContext>,
    process: u32,
}

impl ContextPool {
    /// A pool of at most `limit` contexts.
    pub fn new(engine: Arc<Engine>, limit: usize) -> Self {
        let state = State {
            idle: vec![],
            captured: vec![],
            lent: 0,
            process: std::process::id(),
        };
        Self {
            engine,
            limit: limit.max(1),
            state: Mutex::new(state),
            returned: Condvar::new(),
        }
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// A context; waits until one is free.
    ///
    /// # Errors
    /// If the caller ends the wait.
    pub fn lend(&self) -> Result<Lent<'_>> {
        let mut state = self.lock();
        loop {
            if let Some(lent) = self.take(&mut state) {
                return Ok(lent);
            }
            state = match interrupt::every() {
                Some(every) => {
                    let waited = self.returned.wait_timeout(state, every);
                    drop(waited.unwrap_or_else(PoisonError::into_inner));
                    interrupt::poll()?;
                    self.lock()
                }
                None => self.returned.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// A context, when one is free now.
    pub fn try_lend(&self) -> Option<Lent<'_>> {
        self.take(&mut self.lock())
    }

    /// Waits for the work of calls that have returned.
    ///
    /// # Errors
    /// If some of it failed, or something was wrong with its data; names the layer.
    pub fn finish(&self) -> Result<()> {
        let mut state = self.lock();
        let State { idle, captured, .. } = &mut *state;
        idle.iter_mut().chain(captured).try_for_each(ExecutionContext::finish)
    }

    fn take(&self, state: &mut State) -> Option<Lent<'_>> {
        let process = std::process::id();
        if state.process != process {
            // After a fork: the threads that held the others do not exist here.
            (state.process, state.lent) = (process, 0);
        }
        let context = match state.idle.pop() {
            Some(context) => context,
            None if state.lent < self.limit => ExecutionContext::new(self.engine.clone()),
            None => return None,
        };
        state.lent += 1;
        Some(Lent {
            pool: self,
            context: Some(context),
            process,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is whole before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        match self.context.take() {
            Some(context) if context.is_captured() => state.captured.push(context),
            context => state.idle.extend(context),
        }
        if state.process == self.process {
            state.lent -= 1;
        }
        self.pool.returned.notify_one();
    }
}

impl Deref for Lent<'_> {
    type Target = ExecutionContext;
    fn deref(&self) -> &ExecutionContext {
        self.context
            .as_ref()
            .expect("a lent context is there until it is dropped")
    }
}

impl DerefMut for Lent<'_> {
    fn deref_mut(&mut self) -> &mut ExecutionContext {
        self.context
            .as_mut()
            .expect("a lent context is there until it is dropped")
    }
}
