//! `_native.run_every_form`.

use super::arrays;
use super::network::Network;
use crate::engine::every_form::{self, Outcome};
use crate::error::{Error, guarded};
use crate::providers;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// Runs each kernel that a provider offers for a network in every form, on a dict of arrays by name, beside the
/// reference evaluation. A dict for each: kernel, form, tactic, implementation, outputs (name, what it gave, what the
/// reference gives) and fault, an exception or None.
#[pyfunction]
#[pyo3(signature = (network, provider, inputs, tf32 = false, device = 0))]
pub fn run_every_form<'py>(
    py: Python<'py>,
    network: &Bound<'py, Network>,
    provider: &str,
    inputs: &Bound<'py, PyDict>,
    tf32: bool,
    device: u32,
) -> PyResult<Bound<'py, PyList>> {
    let network = network.try_borrow()?.inner.clone();
    let mut given = vec![];
    for &id in network.inputs() {
        let tensor = &network[id];
        let array = inputs.get_item(&tensor.name)?;
        let array = array.ok_or_else(|| Error::invalid("an input is missing").tensor(&tensor.name))?;
        given.push(arrays::read_as(&array, tensor.ty.dtype).map_err(|e| e.tensor(&tensor.name))?);
    }
    let provider = providers::find(provider, device)?;
    let outcomes = py.detach(|| guarded(|| every_form::run(network, &provider, &given, tf32)))?;
    let list = PyList::empty(py);
    for outcome in outcomes {
        list.append(as_dict(py, outcome)?)?;
    }
    Ok(list)
}

fn as_dict(py: Python<'_>, outcome: Outcome) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    let outputs = PyList::empty(py);
    for (name, got, want) in &outcome.outputs {
        outputs.append((name, arrays::write(py, got)?, arrays::write(py, want)?))?;
    }
    dict.set_item("kernel", outcome.kernel)?;
    dict.set_item("form", outcome.form)?;
    dict.set_item("tactic", outcome.tactic)?;
    dict.set_item("implementation", outcome.implementation)?;
    dict.set_item("outputs", outputs)?;
    dict.set_item("fault", outcome.fault.map(|error| PyErr::from(error).into_value(py)))?;
    Ok(dict)
}
