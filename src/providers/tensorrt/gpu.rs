//! The GPU, as far as the choice of a library depends on it.

use crate::error::{Error, Result};
use libloading::os::unix::Library;
use std::ffi::c_int;

/// NVIDIA's driver.
const DRIVER: &str = "libcuda.so.1";
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR`.
const CAPABILITY: [c_int; 2] = [75, 76];

/// The compute capability of the GPU of this number.
///
/// # Errors
/// If there is no driver, or no such GPU.
pub fn capability(ordinal: u32) -> Result<(i32, i32)> {
    let missing = |what: String| Error::device(format!("no NVIDIA GPU ({what})"));
    // SAFETY: NVIDIA's driver does nothing but set itself up when it is opened.
    let driver = unsafe { Library::new(DRIVER) }.map_err(|_| missing(format!("{DRIVER} not found")))?;
    let failed = |what: &str, code: c_int| match code {
        0 => Ok(()),
        code => Err(missing(format!("{what} gives error {code}"))),
    };
    let lacks = |_| missing(format!("{DRIVER} is too old"));
    let ordinal = c_int::try_from(ordinal).map_err(|_| missing("no such number".into()))?;
    let (mut device, mut found) = (0, [0; 2]);
    // SAFETY: the types are those of cuda.h, and every pointer is that of a live integer.
    unsafe {
        let init = driver
            .get::<unsafe extern "C" fn(u32) -> c_int>(b"cuInit\0")
            .map_err(lacks)?;
        failed("cuInit", init(0))?;
        type Get = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
        let get = driver.get::<Get>(b"cuDeviceGet\0").map_err(lacks)?;
        failed("cuDeviceGet", get(&mut device, ordinal))?;
        type Ask = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int;
        let ask = driver.get::<Ask>(b"cuDeviceGetAttribute\0").map_err(lacks)?;
        for (value, attribute) in found.iter_mut().zip(CAPABILITY) {
            failed("cuDeviceGetAttribute", ask(value, attribute, device))?;
        }
    }
    Ok((found[0], found[1]))
}

/// The number of the GPU whose context is current in this thread.
///
/// # Errors
/// If there is none.
pub fn current() -> Result<u32> {
    let missing = || Error::device("no GPU is current in this thread");
    // SAFETY: NVIDIA's driver does nothing but set itself up when it is opened.
    let driver = unsafe { Library::new(DRIVER) }.map_err(|_| missing())?;
    let mut device: c_int = -1;
    // SAFETY: the type is that of cuda.h, and the pointer that of a live integer.
    let code = unsafe {
        let get = driver.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"cuCtxGetDevice\0");
        get.map_err(|_| missing())?(&mut device)
    };
    // A device is its own number.
    u32::try_from(device).ok().filter(|_| code == 0).ok_or_else(missing)
}
