//! The processor as a device: memory is the process's own, and work is done when it returns.

use super::{Device, Event, Memory, Space, Stream};
use crate::error::Result;
use crate::network::array::Buffer;
use std::ffi::c_void;

/// The processor, with its stream and the points in it.
pub struct Host;

impl Stream for Host {}

impl Event for Host {}

impl Device for Host {
    fn space(&self) -> Space {
        Space::Host
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>> {
        Ok(Box::new(Buffer::try_zeroed(bytes)?))
    }

    fn allocate_staging(&self, bytes: usize) -> Result<Box<dyn Memory>> {
        self.allocate(bytes)
    }

    fn stream(&self) -> Result<Box<dyn Stream>> {
        Ok(Box::new(Host))
    }

    unsafe fn adopt(&self, _raw: *mut c_void) -> Box<dyn Stream> {
        Box::new(Host)
    }

    fn event(&self) -> Result<Box<dyn Event>> {
        Ok(Box::new(Host))
    }

    unsafe fn copy(&self, to: *mut u8, from: *const u8, bytes: usize, _stream: &dyn Stream) -> Result<()> {
        // SAFETY: the caller's promise; ranges may overlap.
        unsafe { std::ptr::copy(from, to, bytes) };
        Ok(())
    }

    fn follow_default(&self, _stream: &dyn Stream) -> Result<()> {
        Ok(())
    }

    fn full_barrier(&self, _stream: &dyn Stream) -> Result<()> {
        Ok(())
    }

    fn allocation_at(&self, _address: *const u8) -> Option<u64> {
        None
    }

    fn reaches(&self, _address: *const u8) -> bool {
        true
    }
}
