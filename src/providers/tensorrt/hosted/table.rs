//! The table: what TensorRT calls of a [`Hosted`] plugin. Its functions keep the contract of `plugin_abi.h`.

use super::{Hosted, LAST, Outside, Ready};
use crate::error::{Error, ErrorKind, Result};
use crate::network::op::TensorType;
use crate::network::plugin::{Run, Shaped, blame};
use crate::providers::cuda::{Cuda, device};
use crate::providers::plugin::library::abi::{self, Answers, Exprs, Field, Shape, Table, Tensor};
use crate::providers::plugin::library::types;
use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;

/// The table, for C++.
#[unsafe(no_mangle)]
extern "C" fn neurenix_hosted_plugins() -> *const Table {
    &TABLE
}

/// What TensorRT calls.
pub static TABLE: Table = Table {
    abi_version: abi::VERSION,
    table_bytes: size_of::<Table>() as u32,
    creators,
    describe,
    create,
    deserialize,
    clone,
    destroy,
    serialize,
    traits,
    infer,
    supports,
    prepare,
    enqueue,
};

/// Does `body` for TensorRT: nothing unwinds into its code, and a failure is kept.
///
/// # Safety
/// `to` is what the caller takes answers with.
unsafe fn answer(to: *const Answers, body: impl FnOnce() -> Result<()>) -> i32 {
    let done = catch_unwind(AssertUnwindSafe(body));
    let error = match done.unwrap_or_else(|_| Err(Error::internal("a plugin inside of TensorRT panicked"))) {
        Ok(()) => return abi::OK,
        Err(error) => error,
    };
    // SAFETY: the caller says so.
    unsafe { put(to, abi::ANSWER_ERROR, error.message().as_bytes()) };
    let status = match error.kind() {
        ErrorKind::Memory => abi::OUT_OF_MEMORY,
        _ => abi::FAILED,
    };
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    status
}

/// # Safety
/// As [`answer`].
unsafe fn put(to: *const Answers, what: i32, bytes: &[u8]) {
    // SAFETY: the caller says so; the bytes hold during the call.
    unsafe { ((*to).put)((*to).host, what, bytes.as_ptr().cast(), bytes.len()) }
}

/// # Safety
/// `plugin` is one that this table made, which nobody else uses meanwhile.
unsafe fn at<'a>(plugin: *mut c_void) -> &'a mut Hosted {
    // SAFETY: the caller says so.
    unsafe { &mut *plugin.cast() }
}

/// # Safety
/// As many elements are there.
pub unsafe fn slice<'a, T>(first: *const T, count: i32) -> &'a [T] {
    match usize::try_from(count) {
        // SAFETY: the caller says so.
        Ok(count) if count > 0 => unsafe { std::slice::from_raw_parts(first, count) },
        _ => &[],
    }
}

fn give(hosted: Hosted, made: *mut *mut c_void) {
    // SAFETY: the caller of the table gives the address of a variable.
    unsafe { *made = Box::into_raw(Box::new(hosted)).cast() };
}

unsafe extern "C" fn creators() -> i32 {
    1
}

unsafe extern "C" fn describe(_: i32, to: *const Answers) -> i32 {
    // SAFETY: the contract of the table.
    unsafe {
        put(to, abi::ANSWER_NAME, b"NeurenixPlugin");
        put(to, abi::ANSWER_VERSION, b"1");
        put(to, abi::ANSWER_NAMESPACE, b"neurenix");
    }
    abi::OK
}

unsafe extern "C" fn create(
    _: i32,
    _: *const c_char,
    _: *const Field,
    _: i32,
    _: *mut *mut c_void,
    to: *const Answers,
) -> i32 {
    let refused = || {
        Err(Error::unsupported(
            "plugins inside of TensorRT come out of a plan alone",
        ))
    };
    // SAFETY: the contract of the table.
    unsafe { answer(to, refused) }
}

unsafe extern "C" fn deserialize(
    _: i32,
    _: *const c_char,
    data: *const c_void,
    size: usize,
    made: *mut *mut c_void,
    to: *const Answers,
) -> i32 {
    let body = || {
        // SAFETY: the contract of the table.
        let bytes = unsafe { slice(data.cast::<u8>(), i32::try_from(size).unwrap_or(0)) };
        let damaged = |_| Error::format("the plan keeps a plugin that is damaged");
        let hosted: Hosted = serde_json::from_slice(bytes).map_err(damaged)?;
        hosted.held.plugin(&hosted.layer)?;
        give(hosted, made);
        Ok(())
    };
    // SAFETY: the contract of the table.
    unsafe { answer(to, body) }
}

unsafe extern "C" fn clone(plugin: *mut c_void, made: *mut *mut c_void, to: *const Answers) -> i32 {
    // SAFETY: the contract of the table.
    unsafe {
        answer(to, || {
            give(at(plugin).clone(), made);
            Ok(())
        })
    }
}

unsafe extern "C" fn destroy(plugin: *mut c_void) {
    // SAFETY: the contract of the table: it is used no more.
    let plugin = unsafe { Box::<Hosted>::from_raw(plugin.cast()) };
    // What a plugin's own code does when it is dropped does not unwind into TensorRT's.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(plugin)));
}

unsafe extern "C" fn serialize(plugin: *mut c_void, to: *const Answers) -> i32 {
    // SAFETY: the contract of the table.
    unsafe {
        answer(to, || {
            let written = serde_json::to_vec(at(plugin));
            let written = written.map_err(|e| Error::internal(format!("a plugin can't be written: {e}")))?;
            put(to, abi::ANSWER_BYTES, &written);
            Ok(())
        })
    }
}

unsafe extern "C" fn traits(
    plugin: *mut c_void,
    outputs: *mut i32,
    devices: *mut u32,
    capturable: *mut i32,
    to: *const Answers,
) -> i32 {
    // SAFETY: the contract of the table.
    unsafe {
        answer(to, || {
            *outputs = at(plugin).outputs.len() as i32;
            *devices = abi::DEVICE_CUDA;
            *capturable = 0;
            Ok(())
        })
    }
}

/// A shape without dimensions asks for the dtype alone.
unsafe extern "C" fn infer(
    plugin: *mut c_void,
    output: i32,
    shapes: *const Shape,
    _: *const i32,
    inputs: i32,
    exprs: *const Exprs,
    shape: *mut Shape,
    dtype: *mut i32,
    to: *const Answers,
) -> i32 {
    // SAFETY: the contract of the table.
    let (hosted, shapes, exprs) = unsafe { (at(plugin), slice(shapes, inputs), &*exprs) };
    let body = || {
        let ty = usize::try_from(output).ok().and_then(|at| hosted.outputs.get(at));
        let ty = ty.ok_or_else(|| Error::internal("the plugin has no such output"))?;
        let is_given = |(shape, ty): (&Shape, &TensorType)| shape.rank as usize == ty.rank();
        let mut found = Shape::default();
        if shapes.len() == hosted.inputs.len() && shapes.iter().zip(&hosted.inputs).all(is_given) {
            let mut outside = Outside { hosted, shapes, exprs };
            for (to, dim) in found.dims.iter_mut().zip(&ty.shape) {
                *to = dim.build(&mut outside)?;
            }
            found.rank = ty.rank() as i32;
        }
        let number = types::number(ty.dtype)?;
        // SAFETY: the contract of the table.
        unsafe { (*shape, *dtype) = (found, number) };
        Ok(())
    };
    // SAFETY: the contract of the table.
    unsafe { answer(to, body) }
}

unsafe extern "C" fn supports(
    plugin: *mut c_void,
    position: i32,
    tensors: *const Tensor,
    inputs: i32,
    outputs: i32,
    is_supported: *mut i32,
    to: *const Answers,
) -> i32 {
    // SAFETY: the contract of the table.
    let (hosted, all) = unsafe { (at(plugin), slice(tensors, inputs + outputs)) };
    let body = || {
        // The network is typed: there is one dtype for each.
        let mut types = hosted.inputs.iter().chain(&hosted.outputs);
        let same = match (types.nth(position as usize), all.get(position as usize)) {
            (Some(ty), Some(tensor)) => types::number(ty.dtype)? == tensor.dtype,
            _ => false,
        };
        // SAFETY: the contract of the table.
        unsafe { *is_supported = same.into() };
        Ok(())
    };
    // SAFETY: the contract of the table.
    unsafe { answer(to, body) }
}

/// Ordinal -1 is the GPU whose context is current.
unsafe extern "C" fn prepare(
    plugin: *mut c_void,
    _: u32,
    ordinal: i32,
    inputs: *const Tensor,
    input_count: i32,
    outputs: *const Tensor,
    output_count: i32,
    workspace: *mut usize,
    to: *const Answers,
) -> i32 {
    // SAFETY: the contract of the table.
    let (hosted, from, into) = unsafe { (at(plugin), slice(inputs, input_count), slice(outputs, output_count)) };
    let body = || {
        let shaped = |tensors: &[Tensor]| tensors.iter().map(concrete).collect::<Result<Vec<_>>>();
        let plugin = hosted.held.plugin(&hosted.layer)?;
        let ordinal = match u32::try_from(ordinal) {
            Ok(ordinal) => ordinal,
            Err(_) => device::current()?,
        };
        let prepared = Cuda::shared(ordinal)?.prepare_plugin(&*plugin, &shaped(from)?, &shaped(into)?)?;
        // SAFETY: the contract of the table.
        unsafe { *workspace = prepared.workspace() };
        hosted.ready = Ready(Some(prepared));
        Ok(())
    };
    // SAFETY: the contract of the table.
    unsafe { answer(to, body) }
}

fn concrete(tensor: &Tensor) -> Result<Shaped> {
    let dims = usize::try_from(tensor.rank)
        .ok()
        .and_then(|rank| tensor.dims.get(..rank));
    let extents = dims.unwrap_or_default().iter().map(|&extent| usize::try_from(extent));
    let shape = extents.collect::<std::result::Result<Vec<_>, _>>();
    Ok(Shaped {
        dtype: types::dtype(tensor.dtype)?,
        shape: shape.map_err(|_| Error::internal("TensorRT gives a plugin no concrete shapes"))?,
    })
}

unsafe extern "C" fn enqueue(
    plugin: *mut c_void,
    inputs: *const *const c_void,
    outputs: *const *mut c_void,
    workspace: *mut c_void,
    stream: *mut c_void,
    to: *const Answers,
) -> i32 {
    // SAFETY: the contract of the table.
    let hosted = unsafe { at(plugin) };
    let body = || {
        let (from, into) = (hosted.inputs.len() as i32, hosted.outputs.len() as i32);
        // SAFETY: the contract of the table: an address for each input and output.
        let call = unsafe {
            Run {
                inputs: slice(inputs.cast(), from),
                outputs: slice(outputs.cast(), into),
                workspace: workspace.cast(),
                stream,
            }
        };
        let blamed = blame(hosted.held.identity());
        let ready = hosted.ready.0.as_mut();
        let ready = ready.ok_or_else(|| blamed(Error::internal("it was told no shapes")))?;
        ready.run(&call).map_err(blamed)
    };
    // SAFETY: the contract of the table.
    unsafe { answer(to, body) }
}
