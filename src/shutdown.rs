//! The end of the process: what other threads do here comes to an end before libraries are taken down under it.

use crate::error::{Error, Result};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The end waits no longer for work that goes on.
const PATIENCE: Duration = Duration::from_secs(3);
/// A call that comes when the process ends waits so long for that. Then it fails: somebody may wait for its thread.
const LINGER: Duration = Duration::from_secs(10);

/// Calls under way of one thread. Slots are never freed, and taken over by other threads: they can be read at any time, even
/// in a child that forked while another thread had a lock.
struct Slot {
    /// Calls within one another.
    depth: AtomicU32,
    /// The process of the thread that has it; 0 where none has.
    owner: AtomicU32,
    next: *const Slot,
}

static SLOTS: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());
static ENDING: AtomicBool = AtomicBool::new(false);

thread_local! {
    static SLOT: Own = const { Own(Cell::new(None)) };
    /// Whether the current thread is the one that ends the process.
    static ENDS: Cell<bool> = const { Cell::new(false) };
}

/// The slot of a thread, which others may have when the thread is over.
struct Own(Cell<Option<&'static Slot>>);

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(slot) = self.0.get().filter(|slot| slot.depth.load(Ordering::Relaxed) == 0) {
            slot.owner.store(0, Ordering::Release);
        }
    }
}

fn slots() -> impl Iterator<Item = &'static Slot> {
    let mut next = SLOTS.load(Ordering::Acquire).cast_const();
    std::iter::from_fn(move || {
        // SAFETY: null at the end, and else a slot that was leaked whole.
        let slot = unsafe { next.as_ref() }?;
        next = slot.next;
        Some(slot)
    })
}

/// The slot of the current thread; none while the thread is taken down.
fn slot() -> Option<&'static Slot> {
    SLOT.try_with(|own| {
        let slot = own.0.get().unwrap_or_else(new_slot);
        own.0.set(Some(slot));
        slot
    })
    .ok()
}

fn new_slot() -> &'static Slot {
    let process = std::process::id();
    let free = |slot: &&Slot| {
        let taken = slot
            .owner
            .compare_exchange(0, process, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok()
    };
    slots().find(free).unwrap_or_else(|| {
        let slot = Box::leak(Box::new(Slot {
            depth: AtomicU32::new(0),
            owner: AtomicU32::new(process),
            next: SLOTS.load(Ordering::Acquire),
        }));
        while let Err(first) = SLOTS.compare_exchange(
            slot.next.cast_mut(),
            ptr::from_mut(slot),
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            slot.next = first;
        }
        slot
    })
}

/// A call under way.
struct Call(Option<&'static Slot>);

impl Call {
    fn enter() -> Self {
        let slot = slot();
        if let Some(slot) = slot {
            // Ordered before the look at ENDING, as `end` stores that before it looks here.
            slot.depth.fetch_add(1, Ordering::SeqCst);
        }
        Self(slot)
    }

    fn is_outermost(&self) -> bool {
        self.0.is_none_or(|slot| slot.depth.load(Ordering::Relaxed) == 1)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(slot) = self.0 {
            slot.depth.fetch_sub(1, Ordering::Release);
        }
    }
}

/// Whether the process ends, and the current thread is not the one that ends it.
fn is_over() -> bool {
    ENDING.load(Ordering::SeqCst) && !ENDS.get()
}

/// Fails when the process ends.
///
/// # Errors
/// That it does; never on the thread that ends it.
pub fn poll() -> Result<()> {
    match is_over() {
        true => Err(Error::interrupted("the process ends")),
        false => Ok(()),
    }
}

/// Does work for which the end of the process waits. Must not be called with a lock that the end needs.
///
/// # Errors
/// That of the work. When the process ends: that it does, if that takes long.
pub fn call<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    let (done, outermost) = {
        let call = Call::enter();
        let outermost = call.is_outermost();
        match poll() {
            Err(over) if outermost => (Err(over), true),
            _ => (work(), outermost),
        }
    };
    if done.is_err() && outermost && is_over() {
        // Nobody is interested any more, so nobody is told either.
        thread::sleep(LINGER);
    }
    done
}

/// Whether other threads have calls under way.
fn is_busy() -> bool {
    let (process, own) = (std::process::id(), slot().map(ptr::from_ref));
    slots().any(|slot| {
        let ours = slot.owner.load(Ordering::Acquire) == process && Some(ptr::from_ref(slot)) != own;
        ours && slot.depth.load(Ordering::SeqCst) > 0
    })
}

/// Says that the process ends, and waits for the calls of other threads. Where one goes on for long the process will end
/// without taking libraries down.
pub fn end() {
    ENDS.set(true);
    ENDING.store(true, Ordering::SeqCst);
    let until = Instant::now() + PATIENCE;
    while is_busy() {
        if Instant::now() > until {
            // SAFETY: the handler may be called whenever the process ends.
            unsafe { on_exit(Some(leave), ptr::null_mut()) };
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Runs before all that were registered earlier.
extern "C" fn leave(status: c_int, _argument: *mut c_void) {
    if is_busy() {
        // SAFETY: null means all streams.
        unsafe { libc::fflush(ptr::null_mut()) };
        // SAFETY: ends the process.
        unsafe { libc::_exit(status) };
    }
}

unsafe extern "C" {
    fn on_exit(handler: Option<extern "C" fn(c_int, *mut c_void)>, argument: *mut c_void) -> c_int;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_other_threads_count_and_slots_are_taken_over() {
        let (inside, over) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                call(|| {
                    assert!(!Call::enter().is_outermost());
                    inside.wait();
                    over.wait();
                    Ok(())
                })
            });
            inside.wait();
            assert!(is_busy());
            over.wait();
        });
        assert!(!is_busy());
        let before = slots().count();
        (0..9).for_each(|_| thread::spawn(|| call(|| Ok(()))).join().unwrap().unwrap());
        assert!(slots().count() <= before + 1);
    }
}
