//! Memory for results whose size only the run tells.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// Gives memory for a result while the network runs.
pub trait Allocator: Send {
    /// Memory of at least so many bytes, for what is ordered on this stream; null where there is none. `current` is what was
    /// given before, and is not used any more; zero bytes want an address all the same.
    fn allocate(&mut self, current: *mut c_void, bytes: usize, alignment: usize, stream: *mut c_void) -> *mut c_void;

    /// Told the shape of the result, before or after its memory is asked for.
    fn shape(&mut self, dims: &[i64]);
}

/// What C++ holds of an allocator.
pub struct Collector(Box<dyn Allocator>);

impl Collector {
    /// Hands an allocator over.
    pub(super) fn new(allocator: Box<dyn Allocator>) -> Self {
        Self(allocator)
    }
}

/// What C++ calls for memory. A panic ends here and gives none: it must not unwind through foreign frames.
pub(super) fn reallocate(
    collector: &mut Collector,
    current: usize,
    bytes: u64,
    alignment: u64,
    stream: usize,
) -> usize {
    let Ok(bytes) = usize::try_from(bytes) else { return 0 };
    let alignment = usize::try_from(alignment).unwrap_or(1).max(1);
    let ask = AssertUnwindSafe(|| {
        let (current, stream) = (current as *mut c_void, stream as *mut c_void);
        collector.0.allocate(current, bytes, alignment, stream)
    });
    let given = catch_unwind(ask).unwrap_or(ptr::null_mut());
    // TensorRT writes there at this alignment.
    if (given as usize).is_multiple_of(alignment) {
        given as usize
    } else {
        0
    }
}

/// What C++ calls with the shape.
pub(super) fn tell_shape(collector: &mut Collector, dims: &[i64]) {
    let _ = catch_unwind(AssertUnwindSafe(|| collector.0.shape(dims)));
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Odd(usize);

    impl Allocator for Odd {
        fn allocate(&mut self, _: *mut c_void, bytes: usize, _: usize, _: *mut c_void) -> *mut c_void {
            assert!(bytes < 100, "too much");
            self.0 as *mut c_void
        }

        fn shape(&mut self, _: &[i64]) {
            panic!("shape");
        }
    }

    #[test]
    fn panics_and_odd_addresses_are_no_memory() {
        let mut collector = Collector::new(Box::new(Odd(512)));
        assert_eq!(reallocate(&mut collector, 0, 8, 256, 0), 512);
        assert_eq!(reallocate(&mut collector, 0, 8, 1024, 0), 0);
        assert_eq!(reallocate(&mut collector, 0, 100, 1, 0), 0);
        tell_shape(&mut collector, &[1]);
    }
}
