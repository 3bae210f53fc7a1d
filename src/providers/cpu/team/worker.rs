//! A long-lived thread that owns one OpenMP team and runs what is handed to it.
use std::{
    hint,
    mem::transmute,
    ptr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicPtr, Ordering},
    },
    thread::{self, Thread},
};

use super::{Member, seats};
use crate::error::{Error, Result};
use crate::interrupt::{self, Scope};

/// How often a waiting thread looks before it parks: a few microseconds, since its core is wanted by the team.
const SPINS: usize = 50;

type Work<'a> = dyn FnMut() + Send + 'a;

/// One piece of work, on the stack of the caller that waits for it.
struct Job {
    work: *mut Work<'static>,
    done: AtomicBool,
    caller: Thread,
}

/// The mailbox of one worker thread.
pub(super) struct Worker {
    threads: usize,
    mailbox: AtomicPtr<Job>,
    thread: OnceLock<Thread>,
}

impl Worker {
    pub(super) fn start(threads: usize) -> Result<Arc<Self>> {
        let worker = Arc::new(Self {
            threads,
            mailbox: AtomicPtr::new(ptr::null_mut()),
            thread: OnceLock::new(),
        });
        let serving = worker.clone();
        let handle = thread::Builder::new()
            .name("neurenix-team".into())
            .spawn(move || serving.serve());
        let handle = handle.map_err(|error| Error::device(format!("cannot start a thread: {error}")))?;
        worker.thread.get_or_init(|| handle.thread().clone());
        Ok(worker)
    }

    pub(super) fn threads(&self) -> usize {
        self.threads
    }

    /// Hands `work`, which must not panic, to the worker and waits until it is done. One caller at a time. The worker is part
    /// of what the caller does, and the caller looks now and then whether that is to end.
    pub(super) fn execute(&self, work: &mut Work<'_>) {
        let scope = interrupt::current();
        let mut work = || {
            let _part = scope.as_ref().map(Scope::join);
            work();
        };
        let work: &mut Work<'_> = &mut work;
        // SAFETY: only the lifetime changes, and this call returns after the worker is through with `work`.
        let work = unsafe { transmute::<*mut Work<'_>, *mut Work<'static>>(work) };
        let job = Job {
            work,
            done: AtomicBool::new(false),
            caller: thread::current(),
        };
        self.mailbox.store(ptr::from_ref(&job).cast_mut(), Ordering::Release);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
        let done = || job.done.load(Ordering::Acquire).then_some(());
        wait(done, || {
            interrupt::park();
            // What ends the work stays: the worker learns it.
            _ = interrupt::poll();
        });
    }

    fn serve(&self) {
        let _member = Member::of(self.threads);
        loop {
            let mail = || ptr::NonNull::new(self.mailbox.swap(ptr::null_mut(), Ordering::Acquire));
            let job = wait(mail, thread::park);
            // Only a panic is reported here, and it costs time alone.
            let _ = seats::leave_to_leader(self.threads);
            // SAFETY: `execute` keeps the job alive until `done`, and `work` is its caller's closure, used here alone.
            let caller = unsafe {
                (*job.as_ref().work)();
                job.as_ref().caller.clone()
            };
            // SAFETY: as above; after this store the job may be gone.
            unsafe { job.as_ref() }.done.store(true, Ordering::Release);
            caller.unpark();
        }
    }
}

/// Waits until `ready` gives something: looks a while, then parks between looks.
fn wait<T>(ready: impl Fn() -> Option<T>, park: impl Fn()) -> T {
    for _ in 0..SPINS {
        if let Some(found) = ready() {
            return found;
        }
        hint::spin_loop();
    }
    loop {
        if let Some(found) = ready() {
            return found;
        }
        park();
    }
}
