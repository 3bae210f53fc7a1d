//! The functions of the header on contexts.

use super::arguments::{elements, fill, write};
use super::context::{Context, Place};
use super::describe::{ArrayInfo, ContextInfo, device};
use super::engine::{OpenEngine, no_such};
use super::status::entry;
use super::{HOST, dtypes, handles};
use crate::device::Space;
use crate::error::{Error, Result};
use crate::network::array::bytes_of;
use crate::runtime::streams::CallerStream;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

type Handle = *mut c_void;

/// No tensor has more dimensions.
const MOST_DIMS: usize = 64;

/// # Safety
/// There is a place for the handle.
#[unsafe(no_mangle)]
unsafe extern "C" fn nrx_context_create(engine: Handle, made: *mut Handle) -> i32 {
    entry(|| {
        // SAFETY: as the caller says.
        unsafe {
            write(made, "context", ptr::null_mut())?;
            let engine: Arc<OpenEngine> = handles::find(engine)?;
            write(made, "context", handles::open(Context::new(engine)))
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn nrx_context_destroy(context: Handle) -> i32 {
    entry(|| {
        let context: Arc<Context> = handles::close(context)?;
        context.cancel();
        context.wait();
        Ok(())
    })
}

/// The memory of a number.
fn space(device: i32) -> Result<Space> {
    match u32::try_from(device) {
        Ok(device) => Ok(Space::Device(device)),
        Err(_) if device == HOST => Ok(Space::Host),
        Err(_) => Err(Error::invalid("there is no memory of this number")
            .expected("NRX_HOST (-1), or the number of a GPU")
            .got(device.to_string())),
    }
}

/// # Safety
/// There are so many dims; the array is there when the context runs.
#[unsafe(no_mangle)]
unsafe extern "C" fn nrx_context_set_input(
    context: Handle,
    index: u32,
    dtype: i32,
    dims: *const i64,
    rank: usize,
    data: *const u8,
    bytes: usize,
    device: i32,
) -> i32 {
    entry(|| {
        let context: Arc<Context> = handles::find(context)?;
        let (at, ports) = (index as usize, &context.engine.inputs);
        let port = ports.get(at).ok_or_else(|| no_such("input", at, ports.len()))?;
        let named = |error: Error| error.tensor(port.name.to_string_lossy());
        let given = dtypes::read(dtype).map_err(named)?;
        if given != port.dtype {
            return Err(named(Error::dtype("input has the wrong dtype"))
                .expected(port.dtype.name())
                .got(given.name()));
        }
        // SAFETY: as the caller says.
        let dims = unsafe { elements(dims, rank, MOST_DIMS, "dims") }.map_err(named)?;
        let extent = |&dim: &i64| {
            let negative = || Error::shape("a dimension is negative").got(format!("{dims:?}"));
            usize::try_from(dim).map_err(|_| named(negative()))
        };
        let shape = dims.iter().map(extent).collect::<Result<Vec<usize>>>()?;
        let need = bytes_of(given, &shape).map_err(named)?;
        if need != bytes {
            return Err(named(Error::shape("the bytes of an input are not those of its shape"))
                .expected(format!("{need} bytes for {given}{shape:?}"))
                .got(format!("{bytes} bytes")));
        }
        let place = Place {
            address: data.expose_provenance(),
            bytes,
            space: space(device).map_err(named)?,
        };
        context.lock()?.set_input(&context.engine, at, shape, place)
    })
}

/// # Safety
/// There is room for so many bytes when the context runs.
#[unsafe(no_mangle)]
unsafe extern "C" fn nrx_context_set_output(
    context: Handle,
    index: u32,
    data: *mut u8,
    bytes: usize,
    device: i32,
) -> i32 {
    entry(|| {
        let context: Arc<Context> = handles::find(context)?;
        let place = match data.is_null() {
            true => None,
            false => Some(Place {
                address: data.expose_provenance(),
                bytes,
                space: space(device)?,
            }),
        };
        context.lock()?.set_output(&context.engine, index as usize, place)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nrx_context_prepare(context: Handle) -> i32 {
    entry(|| handles::find::<Context>(context)?.prepare())
}

/// # Safety
/// The structure is as large as it says.
#[unsafe(no_mangle)]
unsafe extern "C" fn nrx_context_get_output(context: Handle, index: u32, info: *mut ArrayInfo) -> i32 {
    entry(|| {
        let context: Arc<Context> = handles::find(context)?;
        let mut state = context.lock()?;
        let output = state.output(index as usize)?;
        let port = &context.engine.outputs[index as usize];
        let dims = output.dims.as_ref().ok_or_else(|| {
            Error::invalid("the shape of an output is not known yet")
                .tensor(port.name.to_string_lossy())
                .expected("nrx_context_prepare or nrx_context_run before")
        })?;
        let (address, space) = output.address();
        let described = ArrayInfo {
            struct_size: 0,
            data: ptr::with_exposed_provenance_mut(address),
            dims: dims.as_ptr(),
            bytes: output.bytes,
            rank: dims.len() as u32,
            dtype: dtypes::number(port.dtype),
            device: device(space),
        };
        // SAFETY: as the caller says.
        unsafe { fill(info, described) }
    })
}

/// # Safety
/// The arrays are where they were said to be.
#[unsafe(no_mangle)]
unsafe extern "C" fn nrx_context_run(context: Handle) -> i32 {
    entry(|| {
        let context: Arc<Context> = handles::find(context)?;
        // SAFETY: as the caller says.
        unsafe { context.run(None) }
    })
}

/// # Safety
/// The arrays are where they were said to be until the stream has done the work, and the stream is one of that GPU.
#[unsafe(no_mangle)]
unsafe extern "C" fn nrx_context_enqueue(context: Handle, device: i32, stream: *mut c_void) -> i32 {
    entry(|| {
        let context: Arc<Context> = handles::find(context)?;
        let devices = &context.engine.devices;
        if !devices.contains(&device) {
            return Err(Error::invalid("the engine runs nothing on this GPU")
                .expected(match devices.is_empty() {
                    true => "nrx_context_run: it runs on the processor".into(),
                    false => format!("one of {devices:?}"),
                })
                .got(device.to_string()));
        }
        let stream = CallerStream {
            space: space(device)?,
            raw: stream,
        };
        // SAFETY: as the caller says.
        unsafe { context.run(Some(&stream)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn nrx_context_synchronize(context: Handle) -> i32 {
    entry(|| handles::find::<Context>(context)?.synchronize())
}

#[unsafe(no_mangle)]
extern "C" fn nrx_context_cancel(context: Handle) -> i32 {
    entry(|| {
        handles::find::<Context>(context)?.cancel();
        Ok(())
    })
}

/// # Safety
/// The structure is as large as it says.
#[unsafe(no_mangle)]
unsafe extern "C" fn nrx_context_get_info(context: Handle, info: *mut ContextInfo) -> i32 {
    entry(|| {
        let context: Arc<Context> = handles::find(context)?;
        let state = context.lock()?;
        let profile = state.profile();
        let described = ContextInfo {
            struct_size: 0,
            profile: profile.map_or(-1, |(profile, _)| profile as i32),
            inside: profile.is_none_or(|(_, inside)| inside).into(),
            memory: state.memory(),
        };
        // SAFETY: as the caller says.
        unsafe { fill(info, described) }
    })
}
