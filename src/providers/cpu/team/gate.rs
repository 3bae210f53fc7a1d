//! Who may run: as many threads at once as the machine has for us, first come, first served.
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, Thread},
};

use super::worker::Worker;
use crate::error::Result;
use crate::interrupt;

/// Lets no more than `capacity` threads run at a time.
pub(super) struct Gate {
    capacity: usize,
    state: Mutex<State>,
}

struct State {
    free: usize,
    queue: VecDeque<Arc<Waiter>>,
    idle: Vec<Arc<Worker>>,
}

struct Waiter {
    threads: usize,
    granted: AtomicBool,
    thread: Thread,
}

impl Gate {
    pub(super) fn new(capacity: usize) -> Self {
        let state = State {
            free: capacity,
            queue: VecDeque::new(),
            idle: Vec::new(),
        };
        Self {
            capacity,
            state: Mutex::new(state),
        }
    }

    /// Waits for its turn to run `threads` threads.
    ///
    /// # Errors
    /// If the caller ends the wait.
    pub(super) fn enter(&self, threads: usize) -> Result<Turn<'_>> {
        let share = threads.min(self.capacity);
        let mut state = self.lock();
        if state.queue.is_empty() && state.free >= share {
            state.free -= share;
        } else {
            let granted = AtomicBool::new(false);
            let waiter = Arc::new(Waiter {
                threads: share,
                granted,
                thread: thread::current(),
            });
            state.queue.push_back(waiter.clone());
            drop(state);
            while !waiter.granted.load(Ordering::Acquire) {
                interrupt::park();
                interrupt::poll().inspect_err(|_| self.leave(&waiter))?;
            }
        }
        Ok(Turn { gate: self, share })
    }

    /// Waits no longer; gives back what was granted meanwhile.
    fn leave(&self, waiter: &Arc<Waiter>) {
        let mut state = self.lock();
        state.queue.retain(|other| !Arc::ptr_eq(other, waiter));
        let granted = waiter.granted.load(Ordering::Acquire);
        state.give_back(if granted { waiter.threads } else { 0 });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to run some threads; given back on drop.
pub(super) struct Turn<'a> {
    gate: &'a Gate,
    share: usize,
}

impl Turn<'_> {
    /// Runs `work` on an idle worker with a team of `threads`, or on a new one, and waits for it.
    pub(super) fn hand_over(&self, threads: usize, work: &mut (dyn FnMut() + Send)) -> Result<()> {
        let mut state = self.gate.lock();
        let idle = state.idle.iter().position(|worker| worker.threads() == threads);
        let worker = idle.map(|at| state.idle.swap_remove(at));
        drop(state);
        let worker = worker.map_or_else(|| Worker::start(threads), Ok)?;
        worker.execute(work);
        self.gate.lock().idle.push(worker);
        Ok(())
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.gate.lock().give_back(self.share);
    }
}

impl State {
    /// Frees threads, and lets those run who wait for no more than are free.
    fn give_back(&mut self, threads: usize) {
        self.free += threads;
        while let Some(next) = self.queue.front()
            && next.threads <= self.free
            && let Some(next) = self.queue.pop_front()
        {
            self.free -= next.threads;
            next.granted.store(true, Ordering::Release);
            next.thread.unpark();
        }
    }
}
