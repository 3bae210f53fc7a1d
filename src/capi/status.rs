//! Statuses, and the text of a thread's last failure.

use super::arguments::c_string;
use crate::error::{Error, ErrorKind, Result, guarded};
use crate::shutdown;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};

/// What went well.
pub const OK: i32 = 0;

/// Every status, by its number.
pub const NAMES: [&CStr; 12] = [
    c"NRX_OK",
    c"NRX_INVALID_ARGUMENT",
    c"NRX_SHAPE",
    c"NRX_DTYPE",
    c"NRX_UNSUPPORTED",
    c"NRX_FORMAT",
    c"NRX_IO",
    c"NRX_OUT_OF_MEMORY",
    c"NRX_DEVICE",
    c"NRX_PLUGIN",
    c"NRX_CANCELLED",
    c"NRX_INTERNAL",
];

const fn status(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::InvalidArgument => 1,
        ErrorKind::Shape => 2,
        ErrorKind::Type => 3,
        ErrorKind::Unsupported => 4,
        ErrorKind::Format => 5,
        ErrorKind::Io => 6,
        ErrorKind::Memory => 7,
        ErrorKind::Device => 8,
        ErrorKind::Plugin => 9,
        ErrorKind::Interrupted => 10,
        ErrorKind::Internal => 11,
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// The text of the last failure in this thread.
pub fn last_error() -> *const c_char {
    // A thread that is taken down has none any more.
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Does what a function of the API does: no panic passes, a failure becomes a status and a text, and the end of the process waits.
pub fn entry(work: impl FnOnce() -> Result<()>) -> i32 {
    match shutdown::call(|| guarded(work)) {
        Ok(()) => OK,
        Err(error) => failed(&error),
    }
}

fn failed(error: &Error) -> i32 {
    let text = c_string(&error.to_string());
    _ = LAST.try_with(|last| last.replace(text));
    status(error.kind())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_status_of_its_own() {
        let mut statuses: Vec<i32> = ErrorKind::ALL.map(status).into();
        statuses.sort();
        assert!(statuses.into_iter().eq(1..NAMES.len() as i32));
    }

    #[test]
    fn a_panic_is_an_internal_error_with_its_text() {
        assert_eq!(entry(|| panic!("ouch")), status(ErrorKind::Internal));
        // SAFETY: the text stays until the next failure of this thread.
        let text = unsafe { CStr::from_ptr(last_error()) };
        assert!(text.to_str().unwrap().starts_with("ouch\n  hint: this is a defect"));
        assert_eq!(entry(|| Ok(())), OK);
    }
}
