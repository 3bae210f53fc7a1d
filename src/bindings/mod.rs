//! Python's view of the crate: no logic, one file per public class.
use pyo3::prelude::*;

use crate::providers::cpu;

/// The extension module `neurenix._native`; users meet its contents through `neurenix`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("onednn_version", cpu::handle::onednn_version())
}
