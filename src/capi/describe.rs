//! Structures that say what an engine, a tensor, an output or a context is.

use super::arguments::Versioned;
use super::engine::{OpenEngine, Port};
use super::{HOST, dtypes};
use crate::device::Space;
use std::ffi::c_char;

/// `nrx_engine_info`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EngineInfo {
    struct_size: usize,
    name: *const c_char,
    precision: *const c_char,
    notes: *const c_char,
    devices: *const i32,
    device_count: u32,
    inputs: u32,
    outputs: u32,
    profiles: u32,
    calls: u32,
    shapes_by_data: i32,
}

/// `nrx_tensor_info`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TensorInfo {
    struct_size: usize,
    name: *const c_char,
    dims: *const i64,
    symbols: *const *const c_char,
    rank: u32,
    dtype: i32,
}

/// `nrx_array_info`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ArrayInfo {
    pub struct_size: usize,
    pub data: *mut u8,
    pub dims: *const i64,
    pub bytes: usize,
    pub rank: u32,
    pub dtype: i32,
    pub device: i32,
}

/// `nrx_context_info`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ContextInfo {
    pub struct_size: usize,
    pub profile: i32,
    pub inside: i32,
    pub memory: usize,
}

// SAFETY: `repr(C)`, the size first, and zeros are numbers and null pointers.
unsafe impl Versioned for EngineInfo {
    const NAME: &str = "nrx_engine_info";
}
// SAFETY: as above.
unsafe impl Versioned for TensorInfo {
    const NAME: &str = "nrx_tensor_info";
}
// SAFETY: as above.
unsafe impl Versioned for ArrayInfo {
    const NAME: &str = "nrx_array_info";
}
// SAFETY: as above.
unsafe impl Versioned for ContextInfo {
    const NAME: &str = "nrx_context_info";
}

impl EngineInfo {
    /// Of an engine.
    pub fn of(engine: &OpenEngine) -> Self {
        Self {
            struct_size: 0,
            name: engine.name.as_ptr(),
            precision: engine.precision().as_ptr(),
            notes: engine.notes.as_ptr(),
            devices: engine.devices.as_ptr(),
            device_count: engine.devices.len() as u32,
            inputs: engine.inputs.len() as u32,
            outputs: engine.outputs.len() as u32,
            profiles: engine.engine.profiles().count() as u32,
            calls: engine.engine.calls() as u32,
            shapes_by_data: (!engine.engine.stages.is_empty()).into(),
        }
    }
}

impl TensorInfo {
    /// Of an input or output.
    pub fn of(port: &Port) -> Self {
        Self {
            struct_size: 0,
            name: port.name.as_ptr(),
            dims: port.dims.as_ptr(),
            symbols: port.symbols(),
            rank: port.dims.len() as u32,
            dtype: dtypes::number(port.dtype),
        }
    }
}

/// The number of a memory.
pub fn device(space: Space) -> i32 {
    space.device().map_or(HOST, |device| device as i32)
}
