//! `_native.ops`: what ops there are.

use crate::network::attr::Preset;
use crate::network::ops::OPS;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// The declarations of all ops: name, doc, inputs ("x?" may be left out, "x*" may repeat), and attributes as a dict
/// from name to (kind, default or None where it is required, doc).
#[pyfunction]
pub fn ops(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for op in OPS {
        let declared = PyDict::new(py);
        for attr in op.attrs {
            declared.set_item(attr.name, (kind(attr.default), default(py, attr.default)?, attr.doc))?;
        }
        let entry = PyDict::new(py);
        entry.set_item("name", op.name)?;
        entry.set_item("doc", op.doc)?;
        entry.set_item("inputs", op.inputs)?;
        entry.set_item("attrs", declared)?;
        list.append(entry)?;
    }
    Ok(list)
}

fn kind(preset: Preset) -> &'static str {
    match preset {
        Preset::Int(_) | Preset::Mark | Preset::RequiredInt => "int",
        Preset::Float(_) => "float",
        Preset::Text(_) => "text",
        Preset::Ints(_) | Preset::RequiredInts => "ints",
        Preset::Floats(_) => "floats",
        Preset::RequiredDims => "dims",
        Preset::RequiredType => "dtype",
        Preset::RequiredAttrs => "attrs",
        Preset::RequiredPlugin => "plugin",
        Preset::RequiredBody => "network",
    }
}

fn default(py: Python<'_>, preset: Preset) -> PyResult<Bound<'_, PyAny>> {
    match preset {
        Preset::Int(v) => v.into_bound_py_any(py),
        Preset::Mark => 0.into_bound_py_any(py),
        Preset::Float(v) => v.into_bound_py_any(py),
        Preset::Text(v) => v.into_bound_py_any(py),
        Preset::Ints(v) => Ok(PyList::new(py, v)?.into_any()),
        Preset::Floats(v) => Ok(PyList::new(py, v)?.into_any()),
        _ => py.None().into_bound_py_any(py),
    }
}
