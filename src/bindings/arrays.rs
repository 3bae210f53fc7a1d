//! numpy arrays, and whatever can become one, to and from our arrays.

use super::{calls, dlpack};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::network::array::{Array, bytes_of};
use crate::network::dtype::DType;
use numpy::npyffi::{PY_ARRAY_API, npy_intp};
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyCapsule, PyFloat, PyInt, PyList, PyTuple};
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Keeps a numpy array alive; its elements are dense.
struct Owner {
    _array: Py<PyUntypedArray>,
    data: *const u8,
    bytes: usize,
}

// SAFETY: the memory belongs to the array, which Python's reference keeps alive; the address never changes.
unsafe impl Send for Owner {}
// SAFETY: shared references only read.
unsafe impl Sync for Owner {}

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the array is dense and not empty, so `bytes` bytes from `data` on are its elements.
        unsafe { std::slice::from_raw_parts(self.data, self.bytes) }
    }
}

/// numpy's dtypes, in the order of `DType::ALL`.
fn descriptors(py: Python<'_>) -> PyResult<&[Py<PyArrayDescr>]> {
    static ALL: PyOnceLock<Vec<Py<PyArrayDescr>>> = PyOnceLock::new();
    let all = ALL.get_or_try_init(py, || {
        let types = py.import("ml_dtypes")?;
        let descriptor = |dtype: DType| -> PyResult<_> {
            let descriptor = match is_numpys(dtype) {
                true => PyArrayDescr::new(py, dtype.name())?,
                false => PyArrayDescr::new(py, types.getattr(dtype.name())?)?,
            };
            Ok(descriptor.unbind())
        };
        DType::ALL.into_iter().map(descriptor).collect::<PyResult<_>>()
    });
    all.map(Vec::as_slice)
}

/// Whether numpy itself has a dtype; the others are those of ml_dtypes.
fn is_numpys(dtype: DType) -> bool {
    dtype != DType::BFloat16 && dtype.narrow().is_none()
}

/// numpy's (or ml_dtypes') dtype object.
pub fn numpy_dtype(py: Python<'_>, dtype: DType) -> PyResult<Bound<'_, PyArrayDescr>> {
    Ok(descriptors(py)?[dtype as usize].bind(py).clone())
}

/// Our dtype for anything that numpy takes as one: `numpy.float32`, `"float32"`, `ml_dtypes.bfloat16`, ...
pub fn dtype_from(object: &Bound<'_, PyAny>) -> Result<DType> {
    let py = object.py();
    descriptors(py)?;
    let descriptor = PyArrayDescr::new(py, object).map_err(|_| {
        Error::dtype("this is no dtype")
            .expected(DType::ALL.map(DType::name).join(", "))
            .got(object.to_string())
    })?;
    dtype_of(&descriptor)
}

fn dtype_of(descriptor: &Bound<'_, PyArrayDescr>) -> Result<DType> {
    // numpy's own type numbers; 7 and 8 are C's long, 9 and 10 long long, 64 bits both.
    Ok(match descriptor.num() {
        0 => DType::Bool,
        1 => DType::Int8,
        2 => DType::UInt8,
        3 => DType::Int16,
        4 => DType::UInt16,
        5 => DType::Int32,
        6 => DType::UInt32,
        7 | 9 => DType::Int64,
        8 | 10 => DType::UInt64,
        11 => DType::Float32,
        12 => DType::Float64,
        23 => DType::Float16,
        // Objects, bytes and texts: what numpy makes of something that is no array.
        17..=19 => {
            return Err(Error::dtype("this is no array of numbers")
                .expected("an array of numpy, of torch, or of another library that has __dlpack__")
                .got(format!("what numpy reads as {descriptor}")));
        }
        number => {
            let py = descriptor.py();
            let known = DType::ALL.into_iter().zip(descriptors(py)?);
            let mut known = known.filter(|(dtype, _)| !is_numpys(*dtype));
            match known.find(|(_, known)| known.bind(py).num() == number) {
                Some((dtype, _)) => dtype,
                None => return DType::parse(&descriptor.to_string()),
            }
        }
    })
}

/// Reads an array without copying it, where it is dense, aligned and of native byte order.
pub fn read(object: &Bound<'_, PyAny>) -> Result<Array> {
    match object.cast::<PyUntypedArray>() {
        Ok(array) => read_numpy(array),
        Err(_) => read_foreign(object),
    }
}

/// As [`read`]; numbers and lists take the wanted dtype, unless that would cut digits off, everything else must have it.
pub fn read_as(object: &Bound<'_, PyAny>, dtype: DType) -> Result<Array> {
    if is_plain(object) {
        return read_plain(object, dtype);
    }
    let array = read(object)?;
    if array.dtype() == dtype {
        return Ok(array);
    }
    let wanted = dtype.name();
    Err(Error::dtype("the array has the wrong dtype")
        .expected(wanted)
        .got(array.dtype().name())
        .hint(match object.hasattr(intern!(object.py(), "astype"))? {
            true => format!("convert it first, for example with x.astype({wanted:?})"),
            false => format!("convert it first, for example with x.to(torch.{wanted})"),
        }))
}

fn read_plain(object: &Bound<'_, PyAny>, dtype: DType) -> Result<Array> {
    let py = object.py();
    let numpy = py.import(intern!(py, "numpy"))?;
    let given = calls::call_method(numpy.as_any(), "asarray", (object,))?;
    let wanted = numpy_dtype(py, dtype)?;
    let is_float = given.getattr("dtype")?.getattr("kind")?.extract::<char>()? == 'f';
    let is_empty = given.getattr("size")?.extract::<usize>()? == 0;
    if is_float && !is_empty && (dtype.is_int() || dtype == DType::Bool) {
        return Err(Error::dtype("the numbers have the wrong dtype")
            .expected(dtype.name())
            .got("floating-point numbers")
            .hint("give integers: nothing is rounded here"));
    }
    let array = py
        .import(intern!(py, "numpy"))?
        .call_method1(intern!(py, "asarray"), (object, wanted))?;
    read_numpy(array.cast::<PyUntypedArray>().map_err(PyErr::from)?)
}

/// A copy that nobody else can change.
pub fn read_copy(object: &Bound<'_, PyAny>) -> Result<Array> {
    let array = read(object)?;
    Array::from_bytes(array.dtype(), array.shape().to_vec(), array.bytes())
}

fn is_plain(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<PyList>()
        || object.is_instance_of::<PyTuple>()
        || object.is_instance_of::<PyFloat>()
        || object.is_instance_of::<PyInt>()
        || object.is_instance_of::<PyBool>()
}

fn read_numpy(array: &Bound<'_, PyUntypedArray>) -> Result<Array> {
    let descriptor = array.dtype();
    let dtype = dtype_of(&descriptor)?;
    let native = descriptor.is_native_byteorder().unwrap_or(true);
    if !(native && array.is_c_contiguous() && array.is_aligned()) {
        let copy = array.call_method1(intern!(array.py(), "astype"), (numpy_dtype(array.py(), dtype)?, "C"))?;
        return read_numpy(copy.cast::<PyUntypedArray>().map_err(PyErr::from)?);
    }
    if array.is_empty() {
        return Array::from_bytes(dtype, array.shape().to_vec(), &[]);
    }
    // SAFETY: `array` is a live numpy array.
    let data = unsafe { (*array.as_array_ptr()).fields.data } as *const u8;
    let owner = Owner {
        _array: array.clone().unbind(),
        data,
        bytes: array.len() * dtype.size(),
    };
    Array::new(dtype, array.shape().to_vec(), Arc::new(owner), 0)
}

fn read_foreign(object: &Bound<'_, PyAny>) -> Result<Array> {
    let py = object.py();
    if object.hasattr(intern!(py, "__dlpack__"))? {
        let is_meta = object.getattr_opt(intern!(py, "is_meta"))?;
        if is_meta.is_some_and(|flag| flag.is_truthy().unwrap_or(false)) {
            return Err(
                Error::invalid("the tensor has no elements: it lies on torch's meta device")
                    .expected("a tensor in memory")
                    .got("device meta")
                    .hint("make it on a device, for example with torch.zeros_like(x, device=\"cpu\")"),
            );
        }
        if let Some(device) = dlpack::foreign_device(object)? {
            return Err(Error::invalid("the array is not in the processor's memory")
                .expected("an array on the CPU")
                .got(device)
                .hint("copy it first, for example with x.cpu()"));
        }
        let tracked = object.getattr_opt(intern!(py, "requires_grad"))?;
        let mut object = match tracked.map(|flag| flag.is_truthy()).transpose()? {
            Some(true) => calls::call_method(object, "detach", ())?,
            _ => object.clone(),
        };
        // torch leaves conjugation and signs open until somebody computes; DLPack does not carry them.
        for (asks, settles) in [("is_conj", "resolve_conj"), ("is_neg", "resolve_neg")] {
            let is_open = object
                .getattr_opt(asks)?
                .map(|ask| ask.call0()?.is_truthy())
                .transpose()?;
            if is_open == Some(true) {
                object = calls::call_method(&object, settles, ())?;
            }
        }
        let capsule = calls::call_method(&object, "__dlpack__", ())?;
        return dlpack::import(capsule.cast::<PyCapsule>().map_err(PyErr::from)?);
    }
    let array = calls::call_method(py.import("numpy")?.as_any(), "asarray", (object,))?;
    read_numpy(array.cast::<PyUntypedArray>().map_err(PyErr::from)?)
}

/// A new numpy array, not initialised.
pub fn empty<'py>(py: Python<'py>, dtype: DType, shape: &[usize]) -> PyResult<(Bound<'py, PyAny>, *mut u8)> {
    // numpy has no array whose extents other than 0 make too many bytes, even if it is empty.
    bytes_of(dtype, &shape.iter().map(|&d| d.max(1)).collect::<Vec<_>>())?;
    let mut dims: Vec<npy_intp> = shape.iter().map(|&d| d as npy_intp).collect();
    let descriptor = numpy_dtype(py, dtype)?.into_dtype_ptr();
    // SAFETY: numpy takes over the reference to the dtype and copies `dims`; a null result is a Python error.
    unsafe {
        let array = PY_ARRAY_API.PyArray_Empty(py, dims.len() as i32, dims.as_mut_ptr(), descriptor, 0);
        let array = Bound::from_owned_ptr_or_err(py, array).map_err(Error::from)?;
        let data = (*array.as_ptr().cast::<numpy::npyffi::PyArrayObject>()).fields.data;
        Ok((array, data.cast()))
    }
}

/// A numpy array with a copy of the elements. Much of it is copied without the GIL, and signals are seen meanwhile: a system that has to
/// find the memory first may take a fifth of a second for 100 MB.
pub fn write<'py>(py: Python<'py>, array: &Array) -> PyResult<Bound<'py, PyAny>> {
    /// Bytes that are copied in no time.
    const PIECE: usize = 1 << 20;
    let (object, data) = empty(py, array.dtype(), array.shape())?;
    // SAFETY: `data` has room for as many elements of this dtype, and nobody else knows it yet.
    let into = unsafe { std::slice::from_raw_parts_mut(data.cast::<MaybeUninit<u8>>(), array.bytes().len()) };
    let mut pieces = into.chunks_mut(PIECE).zip(array.bytes().chunks(PIECE));
    let mut copy = || {
        pieces.try_for_each(|(into, bytes)| {
            interrupt::poll()?;
            // SAFETY: pieces of equal length, of two arrays.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), into.as_mut_ptr().cast(), bytes.len()) };
            Ok(())
        })
    };
    match array.bytes().len() <= PIECE {
        true => copy(),
        false => calls::interruptible(py, copy),
    }?;
    Ok(object)
}
