//! Scratch memory of the threads that run a kernel, so that kernels allocate nothing while they run.

use crate::network::array::{ALIGNMENT, Buffer};
use crate::network::guard_pages;
use std::cell::RefCell;
use std::sync::{Mutex, PoisonError};

thread_local! {
    static KEPT: RefCell<Buffer> = RefCell::new(Buffer::zeroed(0));
}

/// A thread keeps no more than this between calls.
const MOST_KEPT: usize = 1 << 20;

/// Runs `body` with `bytes` of this thread's memory (64-byte aligned, contents left over from before): for kernels that
/// need a few tiles, whatever the shapes are. Where the bytes grow with the shapes, see [`Scratch`].
pub fn with<R>(bytes: usize, body: impl FnOnce(*mut u8) -> R) -> R {
    let bytes = bytes.next_multiple_of(ALIGNMENT);
    KEPT.with(|kept| match kept.try_borrow_mut() {
        Ok(mut buffer) => {
            let fits = match guard_pages::placement() {
                None => buffer.len() >= bytes,
                // What is not asked for must not be there.
                Some(_) => buffer.len() == bytes,
            };
            if !fits {
                let room = guard_pages::placement().map_or(bytes.next_power_of_two(), |_| bytes);
                *buffer = Buffer::zeroed(room);
            }
            body(buffer.as_ptr())
        }
        // Somebody up the stack holds it.
        Err(_) => body(Buffer::zeroed(bytes).as_ptr()),
    })
}

/// Scratch memory of a kernel's threads whose bytes grow with the shapes: little lies in the threads' own memory, more in
/// the kernel's workspace, which the plan counts.
pub struct Scratch {
    /// Of one thread.
    bytes: usize,
    rooms: usize,
    /// The shares of the workspace that no thread is in.
    free: Mutex<Vec<usize>>,
}

impl Scratch {
    /// So many bytes for each of so many threads, which have so many tasks in all.
    pub fn new(bytes: usize, threads: usize, tasks: usize) -> Self {
        let bytes = bytes.next_multiple_of(ALIGNMENT);
        let rooms = if bytes > MOST_KEPT { threads.min(tasks) } else { 0 };
        let free = Mutex::new((0..rooms).collect());
        Self { bytes, rooms, free }
    }

    /// Bytes of the workspace that it takes.
    pub fn workspace(&self) -> usize {
        self.bytes * self.rooms
    }

    /// Runs `body` with the memory of one thread (64-byte aligned, contents left over from before), given where in the
    /// workspace of the call the bytes of [`Scratch::workspace`] begin.
    pub fn with<R>(&self, workspace: *mut u8, body: impl FnOnce(*mut u8) -> R) -> R {
        let lock = || self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let room = lock().pop();
        let Some(room) = room else {
            return with(self.bytes, body);
        };
        /// Leaves the room, also if the body panics.
        struct Leave<'a>(&'a Mutex<Vec<usize>>, usize);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                self.0.lock().unwrap_or_else(PoisonError::into_inner).push(self.1);
            }
        }
        let _leave = Leave(&self.free, room);
        body(workspace.wrapping_add(room * self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_large_lies_in_the_workspace_and_in_no_other_threads_share() {
        assert_eq!(Scratch::new(MOST_KEPT, 4, 100).workspace(), 0);
        assert_eq!(Scratch::new(2 * MOST_KEPT, 4, 1).workspace(), 2 * MOST_KEPT);
        let scratch = Scratch::new(MOST_KEPT + 1, 3, 100);
        assert_eq!(scratch.workspace(), 3 * (MOST_KEPT + ALIGNMENT));
        let base = std::ptr::without_provenance_mut(1 << 30);
        let mut places = scratch.with(base, |a| {
            scratch.with(base, |b| {
                scratch.with(base, |c| [a, b, c].map(|p: *mut u8| p.addr() - base.addr()))
            })
        });
        places.sort();
        assert_eq!(places, [0, 1, 2].map(|i| i * (MOST_KEPT + ALIGNMENT)));
        // Each room is free again.
        assert_eq!(scratch.free.lock().unwrap().len(), 3);
    }
}
