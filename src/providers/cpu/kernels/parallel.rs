//! Work over the team, for closures that read the addresses of a call.

use crate::error::Result;
use crate::plan::Call;
use crate::providers::cpu::team;
use std::ops::Range;

/// A call whose addresses cross to other threads.
#[derive(Clone, Copy)]
pub struct Shared<'a>(pub &'a Call<'a>);

// SAFETY: kernels write disjoint parts of the outputs from different threads, and only read the inputs.
unsafe impl Send for Shared<'_> {}
// SAFETY: as above.
unsafe impl Sync for Shared<'_> {}

impl<'a> Shared<'a> {
    /// The call.
    pub fn get(&self) -> &'a Call<'a> {
        self.0
    }
}

/// An address that crosses to other threads.
#[derive(Clone, Copy)]
pub struct Address<T>(pub *mut T);

// SAFETY: kernels write disjoint places behind it from different threads.
unsafe impl<T> Send for Address<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Address<T> {}

impl<T> Address<T> {
    /// The address.
    pub fn get(&self) -> *mut T {
        self.0
    }
}

/// Splits `0..n` over the team; `grain` units are the least that is worth a thread.
///
/// # Errors
/// If the body panicked.
pub fn over(n: usize, grain: usize, body: impl Fn(Range<usize>) + Sync) -> Result<()> {
    match n {
        0 => Ok(()),
        _ => team::parallel_for(n, grain.max(1), body),
    }
}
