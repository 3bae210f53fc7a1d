//! `_native.Layer`.

use super::attrs;
use super::tensor::Tensor;
use crate::network::attr::Attrs;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A layer of a network, as it was when it was asked for.
#[pyclass(frozen, module = "neurenix")]
pub struct Layer {
    /// Its name, unique in the network.
    #[pyo3(get)]
    pub(super) name: String,
    /// The name of its op.
    #[pyo3(get)]
    pub(super) op: &'static str,
    /// Names of the nodes of the source model that it stands for.
    #[pyo3(get)]
    pub(super) sources: Vec<String>,
    pub(super) attrs: Attrs,
    pub(super) inputs: Vec<Option<Py<Tensor>>>,
    pub(super) outputs: Vec<Py<Tensor>>,
}

#[pymethods]
impl Layer {
    /// Its attributes, defaults included.
    #[getter]
    fn attrs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        attrs::write(py, &self.attrs)
    }

    /// What it reads; None for an input that is left out.
    #[getter]
    fn inputs(&self, py: Python<'_>) -> Vec<Option<Py<Tensor>>> {
        self.inputs
            .iter()
            .map(|t| t.as_ref().map(|t| t.clone_ref(py)))
            .collect()
    }

    /// What it gives.
    #[getter]
    fn outputs(&self, py: Python<'_>) -> Vec<Py<Tensor>> {
        self.outputs.iter().map(|t| t.clone_ref(py)).collect()
    }

    fn __repr__(&self) -> String {
        format!("Layer({}: {})", self.name, self.op)
    }
}
