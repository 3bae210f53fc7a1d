//! Attributes of layers and symbolic shapes, to and from plain Python values.

use super::network::Network;
use super::{arrays, dim, plugin};
use crate::error::Error;
use crate::network::attr::{Attr, Attrs};
use crate::network::dim::Dim;
use numpy::PyArrayDescr;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyList, PyString, PyTuple};

/// One dimension: an integer, or an expression such as `"batch"` or `"2*width + 1"`.
pub fn read_dim(object: &Bound<'_, PyAny>) -> PyResult<Dim> {
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(text.to_str()?.parse::<Dim>()?);
    }
    if let Ok(dim) = object.cast::<dim::Dim>() {
        return Ok(dim.get().inner.clone());
    }
    object.extract::<i64>().map(Dim::from).map_err(|_| {
        Error::shape("a dimension must be an integer or a text")
            .got(object.to_string())
            .hint("write for example 8, 'batch' or '2*width + 1'")
            .into()
    })
}

/// A shape.
pub fn read_shape(object: &Bound<'_, PyAny>) -> PyResult<Vec<Dim>> {
    object.try_iter()?.map(|d| read_dim(&d?)).collect()
}

/// A dimension as an integer, or as text where symbols are in it.
pub fn write_dim<'py>(py: Python<'py>, dim: &Dim) -> PyResult<Bound<'py, PyAny>> {
    match dim.as_const() {
        Some(value) => value.into_bound_py_any(py),
        None => dim.to_string().into_bound_py_any(py),
    }
}

/// A shape as a tuple.
pub fn write_shape<'py>(py: Python<'py>, shape: &[Dim]) -> PyResult<Bound<'py, PyTuple>> {
    let dims: Vec<_> = shape.iter().map(|d| write_dim(py, d)).collect::<PyResult<_>>()?;
    PyTuple::new(py, dims)
}

/// Attributes from a dict of plain values.
pub fn read(dict: &Bound<'_, PyDict>) -> PyResult<Attrs> {
    let pair = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let name: String = name.extract()?;
        let value = read_one(&value, &name)?;
        Ok((name, value))
    };
    dict.iter().map(pair).collect()
}

fn read_one(value: &Bound<'_, PyAny>, name: &str) -> PyResult<Attr> {
    if let Ok(dict) = value.cast::<PyDict>() {
        return Ok(Attr::Attrs(read(dict)?));
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Attr::Text(text.to_str()?.into()));
    }
    if value.cast::<PyFloat>().is_ok() {
        return Ok(Attr::Float(value.extract()?));
    }
    if value.cast::<PyArrayDescr>().is_ok() || value.is_instance_of::<pyo3::types::PyType>() {
        return Ok(Attr::Type(arrays::dtype_from(value)?));
    }
    if let Ok(number) = value.extract::<i64>() {
        return Ok(Attr::Int(number));
    }
    if let Ok(number) = value.extract::<f64>() {
        return Ok(Attr::Float(number));
    }
    read_list(value).map_err(|_| {
        Error::invalid(format!("attribute {name:?} has a value that no attribute can have"))
            .expected("an integer, a number, a text, a dtype, or a list of integers, numbers or dimensions")
            .got(value.repr().map_or_else(|_| "?".into(), |r| r.to_string()))
            .into()
    })
}

fn read_list(value: &Bound<'_, PyAny>) -> PyResult<Attr> {
    let items: Vec<Bound<'_, PyAny>> = value.try_iter()?.collect::<PyResult<_>>()?;
    if items.iter().any(|item| item.is_instance_of::<PyString>()) {
        return Ok(Attr::Dims(items.iter().map(read_dim).collect::<PyResult<_>>()?));
    }
    let ints: PyResult<Vec<i64>> = items.iter().map(|item| item.extract()).collect();
    match ints {
        Ok(ints) => Ok(Attr::Ints(ints)),
        Err(_) => Ok(Attr::Floats(
            items.iter().map(|item| item.extract()).collect::<PyResult<_>>()?,
        )),
    }
}

/// Attributes as a dict of plain values.
pub fn write<'py>(py: Python<'py>, attrs: &Attrs) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in attrs {
        dict.set_item(name, write_one(py, value)?)?;
    }
    Ok(dict)
}

/// One attribute as a plain value.
pub fn write_one<'py>(py: Python<'py>, value: &Attr) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Attr::Int(v) => v.into_bound_py_any(py),
        Attr::Float(v) => v.into_bound_py_any(py),
        Attr::Text(v) => v.into_bound_py_any(py),
        Attr::Ints(v) => Ok(PyList::new(py, v)?.into_any()),
        Attr::Floats(v) => Ok(PyList::new(py, v)?.into_any()),
        Attr::Dims(v) => Ok(write_shape(py, v)?.into_any()),
        Attr::Type(v) => Ok(arrays::numpy_dtype(py, *v)?.into_any()),
        Attr::Attrs(v) => Ok(write(py, v)?.into_any()),
        Attr::Plugin(v) => plugin::write(py, v),
        Attr::Body(v) => Network { inner: (*v.0).clone() }.into_bound_py_any(py),
    }
}

/// The one of `names` that is meant by `name`: the same in other letters, a synonym, one that is a few typing errors
/// away, one of more or fewer words, or a longer or shorter form; None where it is none of these.
#[pyfunction]
pub fn nearest(name: &str, names: Vec<String>) -> Option<String> {
    crate::nearest::nearest(name, names.iter().map(String::as_str)).map(str::to_string)
}
