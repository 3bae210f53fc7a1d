//! What a device is: memory, streams, events, captured graphs and copies between them, without a word of who has kernels for it.

mod host;

pub use host::Host;

use crate::error::Result;
use crate::network::array::Buffer;
use std::ffi::c_void;
use std::time::Instant;

/// Where memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Space {
    /// The processor's memory.
    Host,
    /// The memory of an accelerator.
    Device(u32),
}

impl Space {
    /// The number of the accelerator.
    pub fn device(self) -> Option<u32> {
        match self {
            Space::Host => None,
            Space::Device(number) => Some(number),
        }
    }
}

/// An allocation.
pub trait Memory: Send + Sync {
    /// The address of the first byte, in the space that it was allocated in.
    fn address(&self) -> *mut u8;

    /// The number of bytes.
    fn bytes(&self) -> usize;
}

impl Memory for Buffer {
    fn address(&self) -> *mut u8 {
        self.as_ptr()
    }

    fn bytes(&self) -> usize {
        self.len()
    }
}

/// An ordered sequence of work on a device: a CUDA stream. On a processor work is done when it returns.
pub trait Stream: Send {
    /// The handle that kernels launch into.
    fn raw(&self) -> *mut c_void {
        std::ptr::null_mut()
    }

    /// Waits until all work in it is done.
    ///
    /// # Errors
    /// If some of it failed.
    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    /// Nanoseconds that the device takes for what a job puts into it; waits for that.
    ///
    /// # Errors
    /// What the job returns, or if some of the work failed.
    fn time(&self, job: &mut dyn FnMut() -> Result<()>) -> Result<u64> {
        let start = Instant::now();
        job()?;
        self.synchronize()?;
        Ok(start.elapsed().as_nanos() as u64)
    }

    /// Whether it is the device's default stream, which is there as long as the device.
    fn is_default(&self) -> bool {
        false
    }

    /// Whether its owner captures it: nobody may wait for it, and no graph may be launched into it.
    fn is_capturing(&self) -> bool {
        false
    }

    /// What captures work in place of running it, if the device can.
    fn capture(&self) -> Option<&dyn Capture> {
        None
    }
}

/// A point in a stream.
pub trait Event: Send {
    /// Moves it behind the work that is in a stream now.
    ///
    /// # Errors
    /// If the device refuses.
    fn record(&self, _stream: &dyn Stream) -> Result<()> {
        Ok(())
    }

    /// Moves it behind the work that is in the device's default stream now, and in all streams that synchronize with that one.
    ///
    /// # Errors
    /// If the device refuses.
    fn record_default(&self) -> Result<()> {
        Ok(())
    }

    /// Lets what goes into a stream from now on wait for it.
    ///
    /// # Errors
    /// If the device refuses.
    fn hold(&self, _stream: &dyn Stream) -> Result<()> {
        Ok(())
    }

    /// Waits for it on the calling thread.
    ///
    /// # Errors
    /// If some of the work before it failed.
    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}

/// Puts the job of a number into a stream.
pub type NumberedJob<'a> = &'a mut dyn FnMut(usize, &dyn Stream) -> Result<()>;

/// A stream that captures graphs.
pub trait Capture {
    /// The graph of what some jobs put into a stream that each is given. `after` lists for each job the numbers of those before it
    /// that it depends on.
    ///
    /// # Errors
    /// What a job returns, or if it can't be captured.
    fn graph(&self, after: &[Vec<usize>], job: NumberedJob) -> Result<Box<dyn Graph>>;
}

/// The dependencies of so many jobs of which each depends on the one before it.
pub fn in_sequence(count: usize) -> Vec<Vec<usize>> {
    (0..count)
        .map(|number| number.checked_sub(1).into_iter().collect())
        .collect()
}

/// Captured work, at fixed addresses.
pub trait Graph: Send {
    /// Puts it into a stream of the device that captured it.
    ///
    /// # Errors
    /// If the device refuses.
    fn launch(&mut self, stream: &dyn Stream) -> Result<()>;

    /// Whether it has nothing but kernels, which use what lies at their addresses when they run. A copy or a fill stands for the
    /// allocation that was there when it was captured.
    fn has_only_kernels(&self) -> bool;
}

/// A processor or an accelerator.
pub trait Device: Send + Sync {
    /// Where its memory is.
    fn space(&self) -> Space;

    /// Memory in its space.
    ///
    /// # Errors
    /// If there is not so much.
    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>>;

    /// Memory of the processor that its copies reach fastest: page-locked.
    ///
    /// # Errors
    /// If there is not so much.
    fn allocate_staging(&self, bytes: usize) -> Result<Box<dyn Memory>>;

    /// A stream of its own.
    ///
    /// # Errors
    /// If the device has none left.
    fn stream(&self) -> Result<Box<dyn Stream>>;

    /// A stream of the caller's, for one call.
    ///
    /// # Safety
    /// It must be a stream of this device, and live until the call has returned.
    unsafe fn adopt(&self, raw: *mut c_void) -> Box<dyn Stream>;

    /// An event.
    ///
    /// # Errors
    /// If the device has none left.
    fn event(&self) -> Result<Box<dyn Event>>;

    /// Copies bytes within its memory, or between its memory and that of the processor or of another device of its kind.
    ///
    /// # Safety
    /// Both ranges must hold so many bytes, and not be freed before the stream is synchronized.
    ///
    /// # Errors
    /// If the device refuses.
    unsafe fn copy(&self, to: *mut u8, from: *const u8, bytes: usize, stream: &dyn Stream) -> Result<()>;

    /// Lets what goes into a stream from now on wait for what the device's default stream holds: the arrays of a caller who
    /// names no stream may be written there.
    ///
    /// # Errors
    /// If the device refuses.
    fn follow_default(&self, stream: &dyn Stream) -> Result<()>;

    /// Lets what goes into a stream from now on start only when all work in front of it is complete, programmatic dependent
    /// launch or not.
    ///
    /// # Errors
    /// If the device refuses.
    fn full_barrier(&self, stream: &dyn Stream) -> Result<()>;

    /// A number that the allocation around an address has as long as it lives, and that no other one ever gets; `None` where
    /// nobody can tell.
    fn allocation_at(&self, address: *const u8) -> Option<u64>;

    /// Whether kernels and copies may use an address of which a caller says that it is in this memory.
    fn reaches(&self, address: *const u8) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_sequence_each_depends_on_the_one_before() {
        assert_eq!(in_sequence(3), [vec![], vec![0], vec![1]]);
    }
}
