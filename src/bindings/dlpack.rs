//! Arrays of other frameworks through DLPack, without a copy where they are dense and on the host.

use super::calls;
use crate::error::{Error, Result};
use crate::network::array::{Array, Buffer};
use crate::network::dtype::DType;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods};
use std::ffi::{CStr, c_void};
use std::sync::Arc;

#[repr(C)]
struct Device {
    kind: i32,
    id: i32,
}

#[repr(C)]
struct ElementType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct View {
    data: *mut c_void,
    device: Device,
    ndim: i32,
    dtype: ElementType,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    view: View,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

const FRESH: &CStr = c"dltensor";
const USED: &CStr = c"used_dltensor";
const HOST: [i32; 2] = [1, 3];

/// Owns a managed tensor whose elements lie dense on the host.
struct Owner {
    managed: *mut Managed,
    bytes: usize,
}

// SAFETY: DLPack lets any thread read the memory and call the deleter.
unsafe impl Send for Owner {}
// SAFETY: shared references only read.
unsafe impl Sync for Owner {}

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: the capsule was marked as used, so this is the only one to call the deleter, and it does so once.
        unsafe {
            if let Some(deleter) = (*self.managed).deleter {
                deleter(self.managed);
            }
        }
    }
}

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the producer keeps `bytes` bytes (more than none) from here alive until the deleter runs.
        unsafe {
            let view = &(*self.managed).view;
            std::slice::from_raw_parts(view.data.cast::<u8>().add(view.byte_offset as usize), self.bytes)
        }
    }
}

/// The device of an object with `__dlpack_device__`, when it is not the host.
pub fn foreign_device(object: &Bound<'_, PyAny>) -> Result<Option<String>> {
    let (kind, id): (i32, i32) = calls::call_method(object, "__dlpack_device__", ())?.extract()?;
    let name = match kind {
        kind if HOST.contains(&kind) => return Ok(None),
        2 => "cuda",
        10 => "rocm",
        13 => "cuda managed",
        other => return Ok(Some(format!("DLPack device {other}:{id}"))),
    };
    Ok(Some(format!("{name}:{id}")))
}

/// Takes over what `__dlpack__` gave.
pub fn import(capsule: &Bound<'_, PyCapsule>) -> Result<Array> {
    let pointer = capsule.pointer_checked(Some(FRESH))?.cast::<Managed>().as_ptr();
    // SAFETY: the capsule has its fresh name, so the managed tensor is ours once it is renamed.
    let renamed = unsafe { pyo3::ffi::PyCapsule_SetName(capsule.as_ptr(), USED.as_ptr()) };
    if renamed != 0 {
        return Err(PyErr::fetch(capsule.py()).into());
    }
    let mut owner = Owner {
        managed: pointer,
        bytes: 0,
    };
    // SAFETY: the producer filled the structure in.
    let view = unsafe { &(*pointer).view };
    let dtype = dtype_of(&view.dtype)?;
    let (shape, strides) = extents(view)?;
    let count: usize = shape.iter().product();
    let dense = count <= 1 || shape.iter().zip(&strides).rev().try_fold(1, next_stride).is_some();
    let address = view.data as usize + view.byte_offset as usize;
    if count == 0 {
        return Array::from_bytes(dtype, shape, &[]);
    }
    if dense && address.is_multiple_of(dtype.size()) {
        owner.bytes = count * dtype.size();
        return Array::new(dtype, shape, Arc::new(owner), 0);
    }
    let mut buffer = Buffer::try_zeroed(count * dtype.size())?;
    // SAFETY: DLPack's shape and strides stay inside the producer's memory, which `owner` keeps alive.
    unsafe { gather(address as *const u8, &shape, &strides, dtype.size(), &mut buffer) };
    Array::new(dtype, shape, Arc::new(buffer), 0)
}

fn next_stride(expected: i64, (&size, &stride): (&usize, &i64)) -> Option<i64> {
    (size == 1 || stride == expected).then_some(expected * size as i64)
}

fn extents(view: &View) -> Result<(Vec<usize>, Vec<i64>)> {
    let rank = usize::try_from(view.ndim).map_err(|_| Error::shape("a DLPack tensor of negative rank"))?;
    let list = |pointer: *const i64| match pointer.is_null() {
        true => vec![],
        // SAFETY: shape, and strides where given, have one element per dimension.
        false => unsafe { std::slice::from_raw_parts(pointer, rank) }.to_vec(),
    };
    let shape: Option<Vec<usize>> = list(view.shape).into_iter().map(|d| usize::try_from(d).ok()).collect();
    let shape = shape
        .filter(|s| s.len() == rank)
        .ok_or_else(|| Error::shape("a DLPack tensor without a proper shape"))?;
    let dense = crate::network::ops::strides(&shape);
    let strides = match view.strides.is_null() {
        true => dense.into_iter().map(|s| s as i64).collect(),
        false => list(view.strides),
    };
    Ok((shape, strides))
}

fn dtype_of(ty: &ElementType) -> Result<DType> {
    Ok(match (ty.code, ty.bits, ty.lanes) {
        (0, 8, 1) => DType::Int8,
        (0, 16, 1) => DType::Int16,
        (0, 32, 1) => DType::Int32,
        (0, 64, 1) => DType::Int64,
        (1, 8, 1) => DType::UInt8,
        (1, 16, 1) => DType::UInt16,
        (1, 32, 1) => DType::UInt32,
        (1, 64, 1) => DType::UInt64,
        (2, 16, 1) => DType::Float16,
        (2, 32, 1) => DType::Float32,
        (2, 64, 1) => DType::Float64,
        (4, 16, 1) => DType::BFloat16,
        (6, 8, 1) => DType::Bool,
        (10, 8, 1) => DType::Float8E4M3FN,
        (11, 8, 1) => DType::Float8E4M3FNUZ,
        (12, 8, 1) => DType::Float8E5M2,
        (13, 8, 1) => DType::Float8E5M2FNUZ,
        (14, 8, 1) => DType::Float8E8M0,
        (code, bits, lanes) => {
            return Err(Error::dtype("the array has a dtype that Neurenix does not know")
                .expected(DType::ALL.map(DType::name).join(", "))
                .got(format!("DLPack code {code}, {bits} bits, {lanes} lanes")));
        }
    })
}

fn element_type(dtype: DType) -> Result<ElementType> {
    let (code, bits) = match dtype {
        DType::Int8 | DType::Int16 | DType::Int32 | DType::Int64 => (0, 8 * dtype.size() as u8),
        DType::UInt8 | DType::UInt16 | DType::UInt32 | DType::UInt64 => (1, 8 * dtype.size() as u8),
        DType::Float16 | DType::Float32 | DType::Float64 => (2, 8 * dtype.size() as u8),
        DType::BFloat16 => (4, 16),
        DType::Bool => (6, 8),
        DType::Float8E4M3FN => (10, 8),
        DType::Float8E4M3FNUZ => (11, 8),
        DType::Float8E5M2 => (12, 8),
        DType::Float8E5M2FNUZ => (13, 8),
        DType::Float8E8M0 => (14, 8),
        _ => return Err(Error::dtype(format!("DLPack has no {dtype}"))),
    };
    Ok(ElementType { code, bits, lanes: 1 })
}

/// What a tensor that goes out keeps alive.
struct Lent {
    managed: Managed,
    extents: Vec<i64>,
    owner: Py<PyAny>,
}

/// Consumers call this from any thread, with the GIL or without: torch frees tensors after it released it, below calls of
/// ours, where PyO3 takes it for held.
unsafe extern "C" fn give_back(managed: *mut Managed) {
    // SAFETY: `dlpack` made it out of a box whose address is the context, and consumers call this once.
    let lent = unsafe { Box::from_raw((*managed).context.cast::<Lent>()) };
    let owner = lent.owner.into_ptr();
    // SAFETY: the reference was the box's; what is left when the interpreter ends is not given back.
    unsafe {
        if pyo3::ffi::Py_IsInitialized() != 0 {
            let state = pyo3::ffi::PyGILState_Ensure();
            pyo3::ffi::Py_DECREF(owner);
            pyo3::ffi::PyGILState_Release(state);
        }
    }
}

unsafe extern "C" fn unused(capsule: *mut pyo3::ffi::PyObject) {
    // SAFETY: Python calls this with the capsule; one that still has its fresh name was given to nobody.
    unsafe {
        if pyo3::ffi::PyCapsule_IsValid(capsule, FRESH.as_ptr()) == 1 {
            give_back(pyo3::ffi::PyCapsule_GetPointer(capsule, FRESH.as_ptr()).cast());
        }
    }
}

/// What `__dlpack__` gives for a dense array at an address, on a device as DLPack numbers it; `owner` is kept alive
/// until the consumer is done.
#[pyfunction]
pub fn dlpack<'py>(
    owner: &Bound<'py, PyAny>,
    address: usize,
    dtype: &Bound<'py, PyAny>,
    shape: Vec<usize>,
    device: (i32, i32),
) -> PyResult<Bound<'py, PyAny>> {
    let dtype = element_type(super::arrays::dtype_from(dtype)?)?;
    let strides = crate::network::ops::strides(&shape);
    let mut lent = Box::new(Lent {
        extents: shape.iter().chain(&strides).map(|&extent| extent as i64).collect(),
        managed: Managed {
            view: View {
                data: address as *mut c_void,
                device: Device {
                    kind: device.0,
                    id: device.1,
                },
                ndim: shape.len() as i32,
                dtype,
                shape: std::ptr::null(),
                strides: std::ptr::null(),
                byte_offset: 0,
            },
            context: std::ptr::null_mut(),
            deleter: Some(give_back),
        },
        owner: owner.clone().unbind(),
    });
    lent.managed.view.shape = lent.extents.as_ptr();
    lent.managed.view.strides = lent.extents[shape.len()..].as_ptr();
    let lent = Box::into_raw(lent);
    // SAFETY: the box is the consumer's, or the capsule's as long as nobody takes it; a null capsule is a Python error, and
    // the box then still ours.
    unsafe {
        (*lent).managed.context = lent.cast();
        let capsule = pyo3::ffi::PyCapsule_New((&raw mut (*lent).managed).cast(), FRESH.as_ptr(), Some(unused));
        if capsule.is_null() {
            drop(Box::from_raw(lent));
        }
        Bound::from_owned_ptr_or_err(owner.py(), capsule)
    }
}

/// Copies strided elements of `size` bytes one after another.
///
/// # Safety
/// Every element that `shape` and `strides` (in elements) reach from `from` must be readable.
unsafe fn gather(from: *const u8, shape: &[usize], strides: &[i64], size: usize, to: &mut Buffer) {
    let mut index = vec![0usize; shape.len()];
    for chunk in to.as_mut_slice().chunks_exact_mut(size) {
        let at: i64 = index.iter().zip(strides).map(|(&i, &s)| i as i64 * s).sum();
        // SAFETY: the caller vouches for the element; chunks have `size` bytes.
        unsafe { std::ptr::copy_nonoverlapping(from.offset(at as isize * size as isize), chunk.as_mut_ptr(), size) };
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
}
