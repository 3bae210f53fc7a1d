//! Messages to whoever uses the library.

use super::arguments::c_string;
use crate::knobs::{self, LogLevel};
use std::ffi::{c_char, c_void};
use std::sync::{PoisonError, RwLock};

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Level {
    /// Something is slower or otherwise than asked for.
    Warning = 2,
    /// Something that may be of interest.
    Info = 3,
}

/// A function of C's that takes messages.
pub type Log = unsafe extern "C" fn(*mut c_void, i32, *const c_char);

/// A function, and what it is given as its first argument.
#[derive(Clone, Copy)]
struct Receiver {
    log: Log,
    user: *mut c_void,
}

// SAFETY: the header says that the function is called from every thread, and what it does with `user` is its own affair.
unsafe impl Send for Receiver {}
// SAFETY: as above.
unsafe impl Sync for Receiver {}

static RECEIVER: RwLock<Option<Receiver>> = RwLock::new(None);

/// Says who gets messages.
pub fn set(log: Option<Log>, user: *mut c_void) {
    *RECEIVER.write().unwrap_or_else(PoisonError::into_inner) = log.map(|log| Receiver { log, user });
}

/// Gives a message to whoever gets them.
pub fn tell(level: Level, text: &str) {
    // The function is called without the lock: it may set another one.
    let receiver = *RECEIVER.read().unwrap_or_else(PoisonError::into_inner);
    match receiver {
        // SAFETY: the header says how the function must be; the text lives as long as the call.
        Some(Receiver { log, user }) => unsafe { log(user, level as i32, c_string(text).as_ptr()) },
        None if is_shown(level) => eprintln!("neurenix: {text}"),
        None => {}
    }
}

fn is_shown(level: Level) -> bool {
    let least = knobs::LOG.get().unwrap_or(LogLevel::Warning);
    match level {
        Level::Warning => matches!(least, LogLevel::Warning | LogLevel::Info | LogLevel::Debug),
        Level::Info => matches!(least, LogLevel::Info | LogLevel::Debug),
    }
}
