//! The functions of the header on engines.

use super::arguments::{fill, path, text, write};
use super::describe::{EngineInfo, TensorInfo};
use super::engine::{Bound, OpenEngine, Port, no_such};
use super::handles;
use super::open::{Options, RawOptions};
use super::status::entry;
use crate::engine::Saved;
use crate::error::{Error, Result};
use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::Arc;

type Handle = *mut c_void;

/// # Safety
/// Path and options are as the header says.
#[unsafe(no_mangle)]
unsafe extern "C" fn nrx_engine_open(file: *const c_char, options: *const RawOptions, made: *mut Handle) -> i32 {
    entry(|| {
        // SAFETY: as the caller says.
        unsafe {
            write(made, "engine", ptr::null_mut())?;
            let file = path(file, "path")?;
            let engine = Options::read(options)?.open(Saved::open(file)?)?;
            write(made, "engine", handles::open(engine))
        }
    })
}

/// # Safety
/// There are so many bytes, and the options are as the header says.
#[unsafe(no_mangle)]
unsafe extern "C" fn nrx_engine_open_memory(
    data: *const u8,
    bytes: usize,
    options: *const RawOptions,
    made: *mut Handle,
) -> i32 {
    entry(|| {
        // SAFETY: as the caller says.
        unsafe {
            write(made, "engine", ptr::null_mut())?;
            let data = super::arguments::elements(data, bytes, isize::MAX as usize, "data")?;
            let engine = Options::read(options)?.open(Saved::copy_of(data)?)?;
            write(made, "engine", handles::open(engine))
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn nrx_engine_close(engine: Handle) -> i32 {
    entry(|| handles::close::<OpenEngine>(engine).map(drop))
}

/// # Safety
/// The structure is as large as it says.
#[unsafe(no_mangle)]
unsafe extern "C" fn nrx_engine_get_info(engine: Handle, info: *mut EngineInfo) -> i32 {
    entry(|| {
        let engine: Arc<OpenEngine> = handles::find(engine)?;
        // SAFETY: as the caller says.
        unsafe { fill(info, EngineInfo::of(&engine)) }
    })
}

/// The inputs or the outputs, and what one is called.
fn side(engine: &OpenEngine, side: i32) -> Result<(&[Port], &'static str)> {
    match side {
        0 => Ok((&engine.inputs, "input")),
        1 => Ok((&engine.outputs, "output")),
        other => Err(Error::invalid("there is no such side of an engine")
            .expected("NRX_INPUT (0) or NRX_OUTPUT (1)")
            .got(other.to_string())),
    }
}

/// # Safety
/// The structure is as large as it says.
#[unsafe(no_mangle)]
unsafe extern "C" fn nrx_engine_get_tensor(engine: Handle, of: i32, index: u32, info: *mut TensorInfo) -> i32 {
    entry(|| {
        let engine: Arc<OpenEngine> = handles::find(engine)?;
        let (ports, what) = side(&engine, of)?;
        let port = ports
            .get(index as usize)
            .ok_or_else(|| no_such(what, index as usize, ports.len()))?;
        // SAFETY: as the caller says.
        unsafe { fill(info, TensorInfo::of(port)) }
    })
}

/// # Safety
/// The name ends with NUL, and there is a place for the index.
#[unsafe(no_mangle)]
unsafe extern "C" fn nrx_engine_find_tensor(engine: Handle, of: i32, name: *const c_char, index: *mut u32) -> i32 {
    entry(|| {
        let engine: Arc<OpenEngine> = handles::find(engine)?;
        let (ports, what) = side(&engine, of)?;
        // SAFETY: as the caller says.
        let name = unsafe { text(name, "name") }?;
        let found = ports.iter().position(|port| port.name.to_bytes() == name.as_bytes());
        let found = found.ok_or_else(|| {
            let names: Vec<_> = ports.iter().map(|port| port.name.to_string_lossy()).collect();
            Error::invalid(format!("the engine has no {what} {name:?}"))
                .expected(names.join(", "))
                .nearest(name, names.iter().map(|name| &**name))
        })?;
        // SAFETY: as the caller says.
        unsafe { write(index, "index", found as u32) }
    })
}

/// # Safety
/// There is room for so many dimensions.
#[unsafe(no_mangle)]
unsafe extern "C" fn nrx_engine_get_profile_shape(
    engine: Handle,
    profile: u32,
    input: u32,
    bound: i32,
    dims: *mut i64,
    capacity: usize,
) -> i32 {
    entry(|| {
        let engine: Arc<OpenEngine> = handles::find(engine)?;
        let bound = match bound {
            0 => Bound::Min,
            1 => Bound::Opt,
            2 => Bound::Max,
            other => {
                return Err(Error::invalid("there is no such shape of a profile")
                    .expected("NRX_MIN (0), NRX_OPT (1) or NRX_MAX (2)")
                    .got(other.to_string()));
            }
        };
        let shape = engine.profile_shape(profile as usize, input as usize, bound)?;
        if capacity < shape.len() {
            return Err(Error::shape("the room for dimensions is too small")
                .expected(format!("{} or more", shape.len()))
                .got(capacity.to_string()));
        }
        for (axis, extent) in shape.into_iter().enumerate() {
            // SAFETY: as the caller says; a null pointer stays one, and is refused.
            unsafe {
                let place = if dims.is_null() { dims } else { dims.add(axis) };
                write(place, "dims", extent)?;
            }
        }
        Ok(())
    })
}

/// # Safety
/// There is a place for the address.
#[unsafe(no_mangle)]
unsafe extern "C" fn nrx_engine_get_report(engine: Handle, json: *mut *const c_char) -> i32 {
    entry(|| {
        let engine: Arc<OpenEngine> = handles::find(engine)?;
        // SAFETY: as the caller says.
        unsafe {
            write(json, "json", ptr::null())?;
            write(json, "json", engine.report()?.as_ptr())
        }
    })
}
