//! Memory: the GPU's, and the processor's that the GPU reaches.

use super::Device;
use super::stream::Stream;
use crate::device::{Memory, Stream as _};
use crate::error::Result;

use crate::providers::cuda::library::driver::{self, Handle};
use std::ffi::{c_uint, c_void};
use std::sync::Arc;

impl Device {
    /// Memory of the GPU; its contents are undefined.
    ///
    /// # Errors
    /// If there is not so much; says how much is free.
    pub fn allocate(self: &Arc<Self>, bytes: usize) -> Result<DeviceMemory> {
        let _entered = self.enter()?;
        let mut pointer = 0;
        // SAFETY: the address is written.
        let status = unsafe { (self.driver.cuMemAlloc_v2)(&mut pointer, bytes.max(1)) };
        self.check("cuMemAlloc", status).map_err(|error| {
            let free = self
                .memory()
                .map_or("unknown".into(), |(free, _)| format!("{free} bytes free"));
            error
                .expected(format!("{bytes} bytes on GPU {}", self.ordinal))
                .got(free)
        })?;
        Ok(DeviceMemory {
            device: self.clone(),
            pointer,
            bytes,
        })
    }

    /// Memory of the GPU with these bytes.
    ///
    /// # Errors
    /// If there is not so much, or the copy fails.
    pub fn upload(self: &Arc<Self>, bytes: &[u8]) -> Result<DeviceMemory> {
        let memory = self.allocate(bytes.len())?;
        let stream = self.stream()?;
        // SAFETY: source and target have so many bytes, and outlive the copy.
        unsafe { self.copy(memory.pointer, bytes.as_ptr() as u64, bytes.len(), stream.raw())? };
        stream.synchronize()?;
        Ok(memory)
    }

    /// Memory of the processor that the GPU reaches at the same addresses; its pages stay where they are.
    ///
    /// # Errors
    /// If there is not so much.
    pub fn allocate_pinned(self: &Arc<Self>, bytes: usize) -> Result<Pinned> {
        let _entered = self.enter()?;
        let mut address: *mut c_void = std::ptr::null_mut();
        // SAFETY: the address is written.
        let status = unsafe { (self.driver.cuMemHostAlloc)(&mut address, bytes.max(1), driver::HOST_SHARED) };
        self.check("cuMemHostAlloc", status)
            .map_err(|error| error.expected(format!("{bytes} bytes of the processor's memory")))?;
        Ok(Pinned {
            device: self.clone(),
            address: address.cast(),
            bytes,
        })
    }

    /// A word that kernels write and the processor reads.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn flag(self: &Arc<Self>) -> Result<Flag> {
        let flag = Flag(self.allocate_pinned(size_of::<i64>())?);
        // SAFETY: it was allocated just now.
        unsafe { flag.word().write_volatile(Flag::LOWERED) };
        Ok(flag)
    }

    /// The number of the allocation around an address, which no other one ever gets.
    pub fn allocation_at(&self, address: *const u8) -> Option<u64> {
        let mut number = 0u64;
        let to = (&raw mut number).cast();
        // SAFETY: this attribute is a number of 64 bits; any address may be asked for.
        let status = unsafe { (self.driver.cuPointerGetAttribute)(to, driver::POINTER_BUFFER_ID, address as u64) };
        (status == 0).then_some(number)
    }

    /// Whether an address lies in memory that the driver manages: pageable memory of the processor and freed memory do not,
    /// and a kernel that touches them spoils the whole context.
    pub fn knows(&self, address: *const u8) -> bool {
        let mut kind: c_uint = 0;
        let to = (&raw mut kind).cast();
        // SAFETY: this attribute is a number of 32 bits; any address may be asked for.
        let status = unsafe { (self.driver.cuPointerGetAttribute)(to, driver::POINTER_MEMORY_TYPE, address as u64) };
        status == 0
    }

    /// Copies bytes in a stream; either side may be the processor's memory.
    ///
    /// # Safety
    /// Both addresses must hold so many bytes until the stream has run the copy.
    ///
    /// # Errors
    /// If the driver refuses.
    pub unsafe fn copy(&self, to: u64, from: u64, bytes: usize, stream: Handle) -> Result<()> {
        let _entered = self.enter()?;
        // SAFETY: the caller vouches for the addresses; where each lies follows from it (unified addressing).
        self.check("cuMemcpyAsync", unsafe {
            (self.driver.cuMemcpyAsync)(to, from, bytes, stream)
        })
    }

    /// Sets every byte of some memory, in a stream.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn fill(&self, memory: &DeviceMemory, byte: u8, stream: &Stream) -> Result<()> {
        let _entered = self.enter()?;
        // SAFETY: the memory is ours, and outlives the stream's work: freeing it waits.
        let status = unsafe { (self.driver.cuMemsetD8Async)(memory.pointer, byte, memory.bytes, stream.raw()) };
        self.check("cuMemsetD8Async", status)
    }
}

/// Memory of a GPU.
pub struct DeviceMemory {
    device: Arc<Device>,
    pointer: u64,
    bytes: usize,
}

impl Memory for DeviceMemory {
    fn address(&self) -> *mut u8 {
        self.pointer as *mut u8
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        let Ok(_entered) = self.device.enter() else { return };
        // SAFETY: it was allocated and not freed yet; the driver waits for work that uses it.
        unsafe { (self.device.driver.cuMemFree_v2)(self.pointer) };
    }
}

/// Memory of the processor whose pages stay where they are.
pub struct Pinned {
    device: Arc<Device>,
    address: *mut u8,
    bytes: usize,
}

// SAFETY: the address never changes; whoever uses the memory vouches for the order of reads and writes.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Memory for Pinned {
    fn address(&self) -> *mut u8 {
        self.address
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let Ok(_entered) = self.device.enter() else { return };
        // SAFETY: it was allocated and not freed yet; the driver waits for copies that use it.
        unsafe { (self.device.driver.cuMemFreeHost)(self.address.cast()) };
    }
}

/// A word of the processor's memory in which kernels leave what they find wrong with the data.
pub struct Flag(Pinned);

impl Flag {
    /// What stands there while nothing is wrong.
    const LOWERED: i64 = i64::MIN;

    fn word(&self) -> *mut i64 {
        self.0.address.cast()
    }

    /// Where kernels reach it.
    pub fn address(&self) -> *const u8 {
        self.0.address
    }

    /// What a kernel left there since it was asked last. The work must be done.
    pub fn take(&self) -> Option<i64> {
        // SAFETY: the word is ours; a kernel that writes it meanwhile writes another fault of the same data.
        let found = unsafe { self.word().read_volatile() };
        if found == Self::LOWERED {
            return None;
        }
        // SAFETY: as above.
        unsafe { self.word().write_volatile(Self::LOWERED) };
        Some(found)
    }
}
