//! A GPU as the runtime sees it.

use super::Gpu;
use crate::device::{Device, Event, Memory, Space, Stream};
use crate::error::Result;
use crate::providers::cuda::device::{Arguments, Grid};
use crate::providers::cuda::library::driver::EVENT_UNTIMED;
use std::ffi::c_void;

impl Device for Gpu {
    fn space(&self) -> Space {
        Space::Device(self.device.ordinal)
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>> {
        Ok(Box::new(self.device.allocate(bytes)?))
    }

    fn allocate_staging(&self, bytes: usize) -> Result<Box<dyn Memory>> {
        Ok(Box::new(self.device.allocate_pinned(bytes)?))
    }

    fn stream(&self) -> Result<Box<dyn Stream>> {
        Ok(Box::new(self.device.stream()?))
    }

    unsafe fn adopt(&self, raw: *mut c_void) -> Box<dyn Stream> {
        // SAFETY: the caller's promise.
        Box::new(unsafe { self.device.adopt(raw) })
    }

    fn event(&self) -> Result<Box<dyn Event>> {
        Ok(Box::new(self.device.event(EVENT_UNTIMED)?))
    }

    unsafe fn copy(&self, to: *mut u8, from: *const u8, bytes: usize, stream: &dyn Stream) -> Result<()> {
        let _entered = self.device.enter()?;
        // SAFETY: the caller's promise.
        unsafe { self.device.copy(to as u64, from as u64, bytes, stream.raw()) }
    }

    fn follow_default(&self, stream: &dyn Stream) -> Result<()> {
        let now = self.device.event(EVENT_UNTIMED)?;
        now.record_default()?;
        now.hold(stream)
    }

    /// A kernel that is no dependent launch waits for what is in front of it, and triggers nothing early.
    fn full_barrier(&self, stream: &dyn Stream) -> Result<()> {
        const NOTHING: &str = "extern \"C\" __global__ void nothing() {}\n";
        let function = self.compiler.entry(NOTHING, "nothing", 0);
        // SAFETY: the kernel has no parameters.
        unsafe { function.launch(Grid::over(1, 1)?, &Arguments::default(), stream.raw()) }
    }

    fn allocation_at(&self, address: *const u8) -> Option<u64> {
        self.device.allocation_at(address)
    }

    fn reaches(&self, address: *const u8) -> bool {
        self.device.knows(address)
    }
}
