//! `_native.Tensor`.

use super::network::Network;
use super::{arrays, attrs};
use crate::error::guarded;
use crate::network::{TensorId, reference};
use numpy::PyArrayDescr;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A tensor of a network: its name, element type and symbolic shape.
#[pyclass(frozen, module = "neurenix")]
pub struct Tensor {
    pub(super) network: Py<Network>,
    pub(super) id: TensorId,
}

#[pymethods]
impl Tensor {
    /// Its name, unique in the network.
    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.network.try_borrow(py)?.inner[self.id].name.clone())
    }

    /// Its element type, as numpy has it.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArrayDescr>> {
        arrays::numpy_dtype(py, self.network.try_borrow(py)?.inner[self.id].ty.dtype)
    }

    /// Its extent along each dimension: an integer, or a text where symbols are in it.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        attrs::write_shape(py, &self.network.try_borrow(py)?.inner[self.id].ty.shape)
    }

    /// The elements of a small integer tensor that the shapes determine, row-major; else None.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let network = self.network.try_borrow(py)?;
        let value = network.inner[self.id].ty.value.as_ref();
        value.map(|v| attrs::write_shape(py, v)).transpose()
    }

    /// The elements of a constant; None for every other tensor.
    fn numpy<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let network = self.network.try_borrow(py)?;
        let constant = network.inner[self.id].constant();
        constant.map(|array| arrays::write(py, array)).transpose()
    }

    /// The elements of a small tensor that constants and fixed shapes determine; None for every other tensor.
    fn known<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let network = self.network.try_borrow(py)?;
        let known = guarded(|| Ok(reference::known(&network.inner, self.id)))?;
        known.map(|array| arrays::write(py, &array)).transpose()
    }

    /// The network that it belongs to.
    #[getter]
    fn network(&self, py: Python<'_>) -> Py<Network> {
        self.network.clone_ref(py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let network = self.network.try_borrow(py)?;
        let tensor = &network.inner[self.id];
        Ok(format!("Tensor({}: {})", tensor.name, tensor.ty.describe()))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other
            .cast::<Tensor>()
            .is_ok_and(|other| other.get().id == self.id && other.get().network.is(&self.network))
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.network.as_ptr() as usize, self.id).hash(&mut hasher);
        hasher.finish()
    }
}
