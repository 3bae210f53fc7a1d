//! Python's view of the crate: no logic, one file per public class.
use pyo3::prelude::*;

use crate::providers::cpu;

mod arrays;
mod attrs;
mod dlpack;
mod errors;
mod knobs;
mod layer;
mod network;
mod ops;
mod tensor;

/// The extension module `neurenix._native`; users meet its contents through `neurenix`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("onednn_version", cpu::handle::onednn_version())?;
    module.add_class::<network::Network>()?;
    module.add_class::<tensor::Tensor>()?;
    module.add_class::<layer::Layer>()?;
    module.add_function(wrap_pyfunction!(ops::ops, module)?)?;
    module.add_function(wrap_pyfunction!(knobs::knobs, module)?)?;
    module.add_function(wrap_pyfunction!(attrs::nearest, module)?)
}
