//! The team of threads that everything on the CPU runs on.
//!
//! OpenMP makes a team for every thread that opens a parallel region, so 64 callers would mean 64 teams. Here the
//! first callers lead a team each, which spares them any hand-over, and everybody else hands work over to a long-lived
//! worker and waits. One gate lets no more threads run at a time than there are cores. Work that is too small to
//! share runs on the caller's thread alone.
mod gate;
mod leader;
mod seats;
mod worker;

use std::{
    any::Any,
    cell::Cell,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
    sync::{
        Mutex, Once, PoisonError,
        atomic::{AtomicPtr, Ordering},
    },
};

use self::gate::Gate;
use super::bridge::ffi;
use crate::error::{Error, Result};
use crate::threads::default_threads;

thread_local! {
    /// How many threads share the work that the current thread was given; 0 outside of any.
    static SIZE: Cell<usize> = const { Cell::new(0) };
}

/// The process's gate. A forked child starts with a new one, since no team survives a fork.
static GATE: AtomicPtr<Gate> = AtomicPtr::new(ptr::null_mut());

/// How many threads [`parallel_for`] would use here.
pub fn size() -> usize {
    SIZE.get().max(1)
}

/// Runs `work` on a team of `threads` threads and waits for it. Runs it in place where the caller is on a team
/// already, and alone where `threads` is 1. A panic in `work` comes back as an error.
pub fn run<T: Send>(threads: usize, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    if size() > 1 {
        return caught(work);
    }
    if threads <= 1 {
        return run_alone(work);
    }
    let turn = gate().enter(threads)?;
    if leader::is_leader() {
        let _member = Member::of(threads);
        seats::leave_to_leader(threads)?;
        return caught(work);
    }
    let mut result = None;
    let mut work = Some(work);
    turn.hand_over(threads, &mut || result = work.take().map(caught))?;
    result.unwrap_or_else(|| Err(Error::internal("a worker of the CPU team dropped its work")))
}

/// Runs `work` on the calling thread, which shares it with nobody. A panic in `work` comes back as an error.
pub fn run_alone<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    let _member = Member::of(1);
    caught(work)
}

/// Splits `0..n` into contiguous ranges, whose bounds are multiples of `grain`, over the team that the caller is on,
/// and calls `body` with each. Outside of [`run`] the calling thread does it all.
pub fn parallel_for(n: usize, grain: usize, body: impl Fn(Range<usize>) + Sync) -> Result<()> {
    if size() == 1 || n <= grain {
        return caught(|| {
            body(0..n);
            Ok(())
        });
    }
    let share = Share {
        n,
        grain: grain.max(1),
        body: &body,
        failed: Mutex::new(None),
    };
    ffi::each_member(size(), ptr::from_ref(&share) as usize);
    let failed = share.failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.map_or(Ok(()), Err)
}

/// What the threads of one `parallel_for` share.
struct Share<'a> {
    n: usize,
    grain: usize,
    body: &'a (dyn Fn(Range<usize>) + Sync),
    failed: Mutex<Option<Error>>,
}

impl Share<'_> {
    /// The range of one part: whole grains, spread as evenly as they go.
    fn range(&self, part: usize, parts: usize) -> Range<usize> {
        let grains = self.n.div_ceil(self.grain);
        let bound = |part: usize| (grains * part / parts * self.grain).min(self.n);
        bound(part)..bound(part + 1)
    }
}

/// Called from C++ on each thread of the team.
pub(super) fn team_part(context: usize, part: usize, parts: usize) {
    // SAFETY: `parallel_for` passes the address of a `Share` that outlives the parallel region.
    let share = unsafe { &*(context as *const Share) };
    let range = share.range(part, parts);
    let done = caught(|| {
        if !range.is_empty() {
            (share.body)(range);
        }
        Ok(())
    });
    if let Err(error) = done {
        share
            .failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(error);
    }
}

/// Makes the current thread the first of a team of some size, for as long as this lives.
struct Member {
    size: usize,
    openmp: usize,
}

impl Member {
    fn of(size: usize) -> Self {
        Self {
            size: SIZE.replace(size),
            openmp: ffi::set_team_size(size),
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        SIZE.set(self.size);
        ffi::set_team_size(self.openmp);
    }
}

fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(Error::internal(text(&*panic))))
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or(panic.downcast_ref::<&str>().copied());
    format!("a CPU kernel panicked: {}", text.unwrap_or("(no message)"))
}

fn gate() -> &'static Gate {
    let mut gate = GATE.load(Ordering::Acquire);
    if gate.is_null() {
        forget_after_fork();
        let new = Box::into_raw(Box::new(Gate::new(default_threads())));
        match GATE.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => gate = new,
            Err(winner) => {
                // SAFETY: `new` came from `Box::into_raw` above and nobody else has seen it.
                drop(unsafe { Box::from_raw(new) });
                gate = winner;
            }
        }
    }
    // SAFETY: once in GATE, a gate is never freed: after a fork the child just forgets it.
    unsafe { &*gate }
}

fn forget_after_fork() {
    extern "C" fn in_child() {
        GATE.store(ptr::null_mut(), Ordering::Release);
        SIZE.set(0);
        leader::forget();
    }
    static REGISTERED: Once = Once::new();
    // SAFETY: the handler only stores to atomics and plain thread locals, which is allowed between fork and exec.
    REGISTERED.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    });
}

#[cfg(test)]
mod tests;
