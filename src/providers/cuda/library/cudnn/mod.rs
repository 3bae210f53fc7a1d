//! cuDNN's backend API: graphs of operations that one plan runs (cuDNN Backend API Reference).

mod convolution;
mod descriptor;
mod engines;
mod graph;
mod numbers;
pub mod product;
mod proposals;

pub use convolution::{ALIGNMENT, Activation, After, Convolution, Tensor};
pub use engines::{Dnn, Plan, Problem, Subject};
pub use proposals::Engine;

use super::driver::Handle;
use super::library;
use crate::error::{Error, ErrorKind, Result};
use numbers::status;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

library! {
    /// The library.
    Cudnn from &["libcudnn.so.9"];
    fn cudnnGetVersion() -> usize;
    fn cudnnGetErrorString(c_int) -> *const c_char;
    fn cudnnCreate(*mut Handle) -> c_int;
    fn cudnnSetStream(Handle, Handle) -> c_int;
    fn cudnnBackendCreateDescriptor(c_int, *mut Handle) -> c_int;
    fn cudnnBackendDestroyDescriptor(Handle) -> c_int;
    fn cudnnBackendSetAttribute(Handle, c_int, c_int, i64, *const c_void) -> c_int;
    fn cudnnBackendGetAttribute(Handle, c_int, c_int, i64, *mut i64, *mut c_void) -> c_int;
    fn cudnnBackendFinalize(Handle) -> c_int;
    fn cudnnBackendExecute(Handle, Handle, Handle) -> c_int;
}

/// The library, opened once.
///
/// # Errors
/// If there is none.
pub fn cudnn() -> Result<&'static Cudnn> {
    static LIBRARY: OnceLock<Result<Cudnn>> = OnceLock::new();
    LIBRARY.get_or_init(Cudnn::load).as_ref().map_err(Clone::clone)
}

impl Cudnn {
    /// 10000 x major + 100 x minor + patch.
    pub fn version(&self) -> usize {
        // SAFETY: it only tells a number.
        unsafe { (self.cudnnGetVersion)() }
    }

    fn check(&self, call: &str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the library gives a text for every number.
        let text = unsafe { CStr::from_ptr((self.cudnnGetErrorString)(code)) };
        let message = format!("cuDNN {} failed: {} in {call}", self.version(), text.to_string_lossy());
        Err(match code {
            status::HOST_ALLOCATION_FAILED | status::DEVICE_ALLOCATION_FAILED => Error::memory(message),
            _ => Error::device(message),
        })
    }

    /// As `check`, for what the library may find that it can't do: that is no failure of the device.
    fn able(&self, call: &str, code: c_int) -> Result<()> {
        let beyond = |error: Error| match code {
            status::SUBLIBRARY_LOADING_FAILED | status::BAD_PARAM..=status::LAST_INTERNAL_ERROR
                if error.kind() == ErrorKind::Device =>
            {
                Error::unsupported(error.message())
            }
            _ => error,
        };
        self.check(call, code).map_err(beyond)
    }
}

/// What was found, or nothing where it is not supported; other errors are passed on.
///
/// # Errors
/// Those.
pub fn supported<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(None),
        Err(error) => Err(error),
    }
}
