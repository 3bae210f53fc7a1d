//! One GPU: its context, memory, streams and modules. What the driver gives is given back when it is dropped.

mod lanes;
mod map;
pub mod memory;
pub mod module;
pub mod stream;

use super::library::driver::{CAPTURE_RELAXED, Driver, Handle, attribute, driver};
use crate::error::{Error, ErrorKind, Result};
use std::ffi::{CStr, c_int};
use std::sync::Arc;

pub use map::{Boxes, Windows};
pub use memory::{DeviceMemory, Flag};
pub use module::{Arguments, Function, Grid, Module};
pub use stream::Stream;

/// A GPU with its primary context, which PyTorch and others share.
pub struct Device {
    /// Its number among those that the process sees.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// Its compute capability.
    pub capability: (i32, i32),
    /// Number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of its second-level cache.
    pub l2_bytes: usize,
    /// Bytes of shared memory that a block may have.
    pub shared_bytes: usize,
    /// Bytes of its memory.
    pub total_memory: usize,
    /// The driver's version: 1000 x major + 10 x minor.
    pub driver_version: i32,
    driver: &'static Driver,
    context: Handle,
    process: u32,
}

// SAFETY: the driver may be called from any thread; the context is only named here.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// The oldest compute capability that the kernels are written for.
const OLDEST: (i32, i32) = (7, 5);

/// From this compute capability on blocks come in clusters, a kernel may start while the one before it still runs, and a copy
/// engine brings tiles; warpgroups that multiply are in this one alone.
pub const HOPPER: (i32, i32) = (9, 0);

/// How many GPUs there are.
///
/// # Errors
/// If there is no driver.
pub fn count() -> Result<u32> {
    let driver = driver()?;
    let mut count = 0;
    // SAFETY: the number is written.
    driver.check("cuDeviceGetCount", unsafe { (driver.cuDeviceGetCount)(&mut count) })?;
    Ok(count.max(0) as u32)
}

/// The number of the GPU whose context is the thread's current one.
///
/// # Errors
/// If there is none.
pub fn current() -> Result<u32> {
    let driver = driver()?;
    let mut device = 0;
    // SAFETY: the number is written.
    driver.check("cuCtxGetDevice", unsafe { (driver.cuCtxGetDevice)(&mut device) })?;
    // A device is its own number.
    Ok(device.max(0) as u32)
}

impl Device {
    /// Opens a GPU.
    ///
    /// # Errors
    /// If there is no such one, or it is too old.
    pub fn open(ordinal: u32) -> Result<Arc<Self>> {
        let driver = driver()?;
        let there = count()?;
        if ordinal >= there {
            return Err(Error::device(format!("there is no GPU {ordinal}"))
                .expected(format!("0 to {}", i64::from(there) - 1))
                .hint("see that CUDA_VISIBLE_DEVICES does not hide it"));
        }
        let (mut device, mut context, mut total, mut version) = (0, std::ptr::null_mut(), 0, 0);
        let mut name = [0u8; 128];
        // SAFETY: everything that is written is of the type that the driver writes.
        unsafe {
            driver.check("cuDeviceGet", (driver.cuDeviceGet)(&mut device, ordinal as c_int))?;
            let length = name.len() as c_int - 1;
            driver.check(
                "cuDeviceGetName",
                (driver.cuDeviceGetName)(name.as_mut_ptr().cast(), length, device),
            )?;
            driver.check("cuDeviceTotalMem", (driver.cuDeviceTotalMem_v2)(&mut total, device))?;
            driver.check("cuDriverGetVersion", (driver.cuDriverGetVersion)(&mut version))?;
        }
        let read = |which: c_int| -> Result<c_int> {
            let mut value = 0;
            // SAFETY: the number is written.
            let status = unsafe { (driver.cuDeviceGetAttribute)(&mut value, which, device) };
            driver.check("cuDeviceGetAttribute", status).map(|()| value)
        };
        let capability = (read(attribute::CAPABILITY_MAJOR)?, read(attribute::CAPABILITY_MINOR)?);
        let name = CStr::from_bytes_until_nul(&name)
            .map_or("".into(), CStr::to_string_lossy)
            .into_owned();
        if capability < OLDEST {
            return Err(Error::device(format!("GPU {ordinal} ({name}) is too old"))
                .expected(format!("compute capability {}.{} or newer", OLDEST.0, OLDEST.1))
                .got(format!("{}.{}", capability.0, capability.1)));
        }
        // SAFETY: the context is retained for the life of the process: kernels and memory of many engines live in it.
        driver.check("cuDevicePrimaryCtxRetain", unsafe {
            (driver.cuDevicePrimaryCtxRetain)(&mut context, device)
        })?;
        Ok(Arc::new(Self {
            ordinal,
            name,
            capability,
            multiprocessors: read(attribute::MULTIPROCESSORS)? as u32,
            l2_bytes: read(attribute::L2_BYTES)? as usize,
            shared_bytes: read(attribute::SHARED_BYTES_OPTIN)? as usize,
            total_memory: total,
            driver_version: version,
            driver,
            context,
            process: std::process::id(),
        }))
    }

    /// Makes the GPU the thread's current one until the guard is dropped.
    ///
    /// # Errors
    /// In a process that was forked off the one that opened the GPU, or if the driver refuses.
    pub fn enter(&self) -> Result<Entered<'_>> {
        if self.process != std::process::id() {
            return Err(Error::device("CUDA does not survive a fork")
                .hint("start worker processes with multiprocessing.set_start_method(\"spawn\")"));
        }
        let mut current = std::ptr::null_mut();
        // SAFETY: the handle is written.
        let asked = unsafe { (self.driver.cuCtxGetCurrent)(&mut current) };
        let pushed = asked != 0 || current != self.context;
        if pushed {
            // SAFETY: the context lives as long as the process.
            self.check("cuCtxPushCurrent", unsafe {
                (self.driver.cuCtxPushCurrent_v2)(self.context)
            })?;
        }
        let mut mode = CAPTURE_RELAXED;
        // SAFETY: the mode is read and written.
        unsafe { (self.driver.cuThreadExchangeStreamCaptureMode)(&mut mode) };
        Ok(Entered {
            device: self,
            pushed,
            mode,
        })
    }

    fn check(&self, call: &str, status: c_int) -> Result<()> {
        self.driver.check(call, status)
    }

    /// Free and total bytes of memory.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn memory(&self) -> Result<(usize, usize)> {
        let _entered = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are written.
        self.check("cuMemGetInfo", unsafe {
            (self.driver.cuMemGetInfo_v2)(&mut free, &mut total)
        })?;
        Ok((free, total))
    }
}

impl Device {
    /// An error of a library, or rather that the context is lost, where that is why it failed.
    pub fn blame(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::Device {
            return error;
        }
        match self.memory() {
            Err(lost) if lost.kind() == ErrorKind::Device => lost.during(error.message()),
            _ => error,
        }
    }
}

/// While it lives, a GPU is the thread's current one.
pub struct Entered<'a> {
    device: &'a Device,
    /// Whether another one was before, or none: where PyTorch works it mostly is ours.
    pushed: bool,
    /// What the thread may do while somebody captures a stream: in here what allocates, too, since none of it is captured.
    mode: c_int,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let driver = self.device.driver;
        // SAFETY: undoes what `enter` did. A failure leaves nothing to do.
        unsafe { (driver.cuThreadExchangeStreamCaptureMode)(&mut self.mode) };
        if self.pushed {
            let mut before = std::ptr::null_mut();
            // SAFETY: as above.
            unsafe { (driver.cuCtxPopCurrent_v2)(&mut before) };
        }
    }
}
