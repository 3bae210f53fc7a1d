//! `_native.knobs`: the environment variables.

use crate::error::Error;
use crate::knobs::KNOBS;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// What is set for the environment variable of this name, or None.
#[pyfunction]
pub fn knob(name: &str) -> PyResult<Option<String>> {
    let found = KNOBS.iter().find(|knob| knob.describe()[0] == name);
    let knob = found.ok_or_else(|| Error::internal(format!("there is no knob {name}")))?;
    Ok(knob.current()?)
}

/// Every environment variable that is read, with its default, its doc, and what is set now (or None).
#[pyfunction]
pub fn knobs(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for knob in KNOBS {
        let [name, default, doc] = knob.describe();
        let entry = PyDict::new(py);
        entry.set_item("name", name)?;
        entry.set_item("default", default)?;
        entry.set_item("doc", doc)?;
        entry.set_item("value", knob.current()?)?;
        list.append(entry)?;
    }
    Ok(list)
}
