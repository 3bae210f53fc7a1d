//! Scratch memory of a thread: kept between calls, so that kernels allocate nothing while they run.

use crate::network::array::Buffer;
use std::cell::RefCell;

thread_local! {
    static SCRATCH: RefCell<Buffer> = RefCell::new(Buffer::zeroed(0));
}

/// Runs `body` with `bytes` of this thread's scratch memory (64-byte aligned, contents left over from before).
pub fn with<R>(bytes: usize, body: impl FnOnce(*mut u8) -> R) -> R {
    SCRATCH.with(|scratch| match scratch.try_borrow_mut() {
        Ok(mut buffer) => {
            if buffer.len() < bytes {
                *buffer = Buffer::zeroed(bytes.next_power_of_two());
            }
            body(buffer.as_ptr())
        }
        // Somebody up the stack holds it.
        Err(_) => body(Buffer::zeroed(bytes).as_ptr()),
    })
}
