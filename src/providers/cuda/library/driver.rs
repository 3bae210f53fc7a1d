//! The CUDA driver API (CUDA Driver API Reference Manual): functions and the few types and numbers that we use.

use super::library;
use crate::error::{Error, Result};
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;

/// An address on a device.
pub type DevicePtr = u64;
/// A context, stream, event, module, function, graph: opaque.
pub type Handle = *mut c_void;

/// `CUtensorMap`: opaque.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
pub struct TensorMap(pub [u64; 16]);

/// `CUlaunchAttribute`: which one, padding, and a union of 64 bytes.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(8))]
pub struct LaunchAttribute {
    /// `CUlaunchAttributeID`.
    pub id: c_int,
    /// Padding.
    pub padding: c_int,
    /// The value, in the first of them.
    pub value: [c_int; 16],
}

/// `CUlaunchConfig`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct LaunchConfig {
    /// Blocks along x, y and z.
    pub blocks: [c_uint; 3],
    /// Threads of a block along x, y and z.
    pub threads: [c_uint; 3],
    /// Bytes of shared memory beside the kernel's own.
    pub shared_bytes: c_uint,
    /// The stream.
    pub stream: Handle,
    /// How it is launched.
    pub attributes: *const LaunchAttribute,
    /// The number of attributes.
    pub count: c_uint,
}

/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`: a kernel may be started while what is before it in its stream
/// still runs, and waits itself for the end of that (CUDA Programming Guide, "Programmatic Dependent Launch").
pub const STARTS_AHEAD: LaunchAttribute = LaunchAttribute {
    id: 6,
    padding: 0,
    value: [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
};

/// `CU_STREAM_NON_BLOCKING`: it does not wait for the default stream.
pub const STREAM_NON_BLOCKING: c_uint = 1;
/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`: every GPU reaches it, at the same address.
pub const HOST_SHARED: c_uint = 3;
/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: other threads may do what they like meanwhile.
pub const CAPTURE_THREAD_LOCAL: c_uint = 1;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: a thread that somebody captures a stream on may allocate memory all the same.
pub const CAPTURE_RELAXED: c_int = 2;
/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`.
pub const POINTER_MEMORY_TYPE: c_int = 2;
/// `CU_POINTER_ATTRIBUTE_BUFFER_ID`.
pub const POINTER_BUFFER_ID: c_int = 7;
/// `CU_EVENT_DISABLE_TIMING`.
pub const EVENT_UNTIMED: c_uint = 2;
/// `CU_STREAM_LEGACY`.
pub const STREAM_LEGACY: Handle = std::ptr::without_provenance_mut(1);
/// `CU_GRAPH_NODE_TYPE_KERNEL`.
pub const NODE_KERNEL: c_int = 0;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub const OUT_OF_MEMORY: c_int = 2;
/// The errors of kernels and hardware after which every call in the context fails: `CUDA_ERROR_ILLEGAL_ADDRESS`,
/// `CUDA_ERROR_LAUNCH_TIMEOUT`, and from `CUDA_ERROR_HARDWARE_STACK_ERROR` to `CUDA_ERROR_LAUNCH_FAILED`.
const fn is_lasting(status: c_int) -> bool {
    matches!(status, 700 | 702 | 714..=719)
}
/// `CU_DEVICE_ATTRIBUTE_*`.
pub mod attribute {
    #![allow(missing_docs)]
    use std::ffi::c_int;
    pub const MULTIPROCESSORS: c_int = 16;
    pub const L2_BYTES: c_int = 38;
    pub const CAPABILITY_MAJOR: c_int = 75;
    pub const CAPABILITY_MINOR: c_int = 76;
    pub const SHARED_BYTES_OPTIN: c_int = 97;
}
/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
pub const FUNCTION_SHARED_BYTES: c_int = 8;

library! {
    /// The driver.
    Driver from &["libcuda.so.1"];
    fn cuInit(c_uint) -> c_int;
    fn cuGetErrorName(c_int, *mut *const c_char) -> c_int;
    fn cuGetErrorString(c_int, *mut *const c_char) -> c_int;
    fn cuDriverGetVersion(*mut c_int) -> c_int;
    fn cuDeviceGetCount(*mut c_int) -> c_int;
    fn cuDeviceGet(*mut c_int, c_int) -> c_int;
    fn cuDeviceGetName(*mut c_char, c_int, c_int) -> c_int;
    fn cuDeviceGetAttribute(*mut c_int, c_int, c_int) -> c_int;
    fn cuDeviceTotalMem_v2(*mut usize, c_int) -> c_int;
    fn cuDevicePrimaryCtxRetain(*mut Handle, c_int) -> c_int;
    fn cuCtxGetCurrent(*mut Handle) -> c_int;
    fn cuCtxPushCurrent_v2(Handle) -> c_int;
    fn cuCtxGetDevice(*mut c_int) -> c_int;
    fn cuCtxPopCurrent_v2(*mut Handle) -> c_int;
    fn cuMemGetInfo_v2(*mut usize, *mut usize) -> c_int;
    fn cuMemAlloc_v2(*mut DevicePtr, usize) -> c_int;
    fn cuMemFree_v2(DevicePtr) -> c_int;
    fn cuMemHostAlloc(*mut *mut c_void, usize, c_uint) -> c_int;
    fn cuMemFreeHost(*mut c_void) -> c_int;
    fn cuPointerGetAttribute(*mut c_void, c_int, DevicePtr) -> c_int;
    fn cuMemcpyAsync(DevicePtr, DevicePtr, usize, Handle) -> c_int;
    fn cuMemsetD8Async(DevicePtr, u8, usize, Handle) -> c_int;
    fn cuStreamCreate(*mut Handle, c_uint) -> c_int;
    fn cuStreamDestroy_v2(Handle) -> c_int;
    fn cuStreamSynchronize(Handle) -> c_int;
    fn cuStreamWaitEvent(Handle, Handle, c_uint) -> c_int;
    fn cuStreamIsCapturing(Handle, *mut c_int) -> c_int;
    fn cuThreadExchangeStreamCaptureMode(*mut c_int) -> c_int;
    fn cuStreamBeginCapture_v2(Handle, c_uint) -> c_int;
    fn cuStreamEndCapture(Handle, *mut Handle) -> c_int;
    fn cuGraphGetNodes(Handle, *mut Handle, *mut usize) -> c_int;
    fn cuGraphNodeGetType(Handle, *mut c_int) -> c_int;
    fn cuGraphInstantiateWithFlags(*mut Handle, Handle, c_ulonglong) -> c_int;
    fn cuGraphLaunch(Handle, Handle) -> c_int;
    fn cuGraphExecDestroy(Handle) -> c_int;
    fn cuGraphDestroy(Handle) -> c_int;
    fn cuEventCreate(*mut Handle, c_uint) -> c_int;
    fn cuEventDestroy_v2(Handle) -> c_int;
    fn cuEventRecord(Handle, Handle) -> c_int;
    fn cuEventSynchronize(Handle) -> c_int;
    fn cuEventElapsedTime(*mut f32, Handle, Handle) -> c_int;
    fn cuModuleLoadData(*mut Handle, *const c_void) -> c_int;
    fn cuModuleUnload(Handle) -> c_int;
    fn cuModuleGetFunction(*mut Handle, Handle, *const c_char) -> c_int;
    fn cuFuncSetAttribute(Handle, c_int, c_int) -> c_int;
    fn cuLaunchKernelEx(*const LaunchConfig, Handle, *mut *mut c_void, *mut *mut c_void) -> c_int;
    fn cuTensorMapEncodeTiled(
        *mut TensorMap, c_int, c_uint, DevicePtr, *const u64, *const u64, *const c_uint, *const c_uint, c_int, c_int, c_int, c_int,
    ) -> c_int;
    fn cuTensorMapEncodeIm2col(
        *mut TensorMap, c_int, c_uint, DevicePtr, *const u64, *const u64, *const c_int, *const c_int, c_uint, c_uint,
        *const c_uint, c_int, c_int, c_int, c_int,
    ) -> c_int;
}

/// The driver, initialised.
///
/// # Errors
/// If there is none, or it finds no device.
pub fn driver() -> Result<&'static Driver> {
    static DRIVER: OnceLock<Result<Driver>> = OnceLock::new();
    let open = || {
        let driver = Driver::load()?;
        // SAFETY: any number of threads may initialise the driver.
        driver.check("cuInit", unsafe { (driver.cuInit)(0) })?;
        Ok(driver)
    };
    DRIVER.get_or_init(open).as_ref().map_err(Clone::clone)
}

impl Driver {
    /// Turns the status of a call into an error that names it.
    ///
    /// # Errors
    /// If the call failed.
    pub fn check(&self, call: &str, status: c_int) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let text = |ask: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int| {
            let mut text = std::ptr::null();
            // SAFETY: the driver gives a text that lives as long as it does, or null.
            unsafe {
                ask(status, &mut text);
                (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
            }
        };
        let name = text(self.cuGetErrorName).unwrap_or_else(|| format!("error {status}"));
        let meaning = text(self.cuGetErrorString).unwrap_or_default();
        let message = format!("CUDA failed: {name} in {call}: {meaning}");
        Err(match status {
            OUT_OF_MEMORY => Error::memory(message),
            _ if is_lasting(status) => Error::device(message).hint(
                "the GPU's context is lost, and with it all that this process has on the GPU (PyTorch's tensors too): start \
                 the process anew; the cpu provider still runs",
            ),
            _ => Error::device(message),
        })
    }
}
