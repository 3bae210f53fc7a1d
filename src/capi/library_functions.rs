//! The functions of the header on the library as a whole.

use super::arguments::path;
use super::log::{self, Log};
use super::status::{NAMES, entry, last_error};
use super::{ABI_VERSION, dtypes};
use crate::providers::plugin::library;
use std::ffi::{c_char, c_void};
use std::ptr;

#[unsafe(no_mangle)]
extern "C" fn nrx_abi_version() -> u32 {
    ABI_VERSION
}

#[unsafe(no_mangle)]
extern "C" fn nrx_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

#[unsafe(no_mangle)]
extern "C" fn nrx_status_name(status: i32) -> *const c_char {
    let name = usize::try_from(status).ok().and_then(|status| NAMES.get(status));
    name.map_or(ptr::null(), |name| name.as_ptr())
}

#[unsafe(no_mangle)]
extern "C" fn nrx_dtype_name(dtype: i32) -> *const c_char {
    dtypes::find(dtype).map_or(ptr::null(), |(_, name)| name.as_ptr())
}

#[unsafe(no_mangle)]
extern "C" fn nrx_dtype_size(dtype: i32) -> usize {
    dtypes::find(dtype).map_or(0, |(dtype, _)| dtype.size())
}

#[unsafe(no_mangle)]
extern "C" fn nrx_last_error() -> *const c_char {
    last_error()
}

#[unsafe(no_mangle)]
extern "C" fn nrx_set_log(function: Option<Log>, user: *mut c_void) -> i32 {
    entry(|| {
        log::set(function, user);
        Ok(())
    })
}

/// # Safety
/// The path is null, or ends with NUL.
#[unsafe(no_mangle)]
unsafe extern "C" fn nrx_load_plugins(file: *const c_char) -> i32 {
    entry(|| {
        // SAFETY: as the caller says.
        let file = unsafe { path(file, "path") }?;
        library::load(file).map(drop)
    })
}
