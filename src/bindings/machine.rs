//! What there is on this machine: threads, caches, providers.

use crate::error::Result;
use crate::knobs;
use crate::plan::Settings;
use crate::providers::{self, PROVIDERS, cpu};
use pyo3::prelude::*;
use std::path::PathBuf;

/// The threads that the CPU provider uses when nobody says how many.
#[pyfunction]
pub fn default_threads() -> usize {
    cpu::team::default_threads()
}

/// Where caches are kept; None where they are switched off.
#[pyfunction]
pub fn cache_dir() -> PyResult<Option<PathBuf>> {
    Ok(knobs::cache_dir()?)
}

/// The providers that may be used, the preferred one first: `NEURENIX_PROVIDERS`.
#[pyfunction]
pub fn allowed_providers() -> PyResult<Vec<String>> {
    Ok(knobs::PROVIDERS.get()?)
}

/// The providers that this build has, the preferred one first, with None or why one can't be had here.
#[pyfunction]
pub fn provider_states() -> Vec<(String, Option<String>)> {
    let row = |(name, probe): &(&str, providers::Probe)| (name.to_string(), probe().err().map(|e| e.to_string()));
    PROVIDERS.iter().map(row).collect()
}

/// What timings on a provider depend on: the device, its instruction sets, the versions of its libraries.
#[pyfunction]
pub fn device(provider: &str) -> PyResult<String> {
    let signature = |name: &str| -> Result<String> {
        let settings = Settings {
            threads: cpu::team::default_threads(),
            optimization_level: 0,
            exclude: Default::default(),
        };
        Ok(providers::find(name)?.signature(&settings))
    };
    Ok(signature(provider)?)
}

/// Whether a provider computes in a dtype, rather than in a wider one.
#[pyfunction]
pub fn computes(provider: &str, dtype: &Bound<'_, PyAny>) -> PyResult<bool> {
    let dtype = super::arrays::dtype_from(dtype)?;
    Ok(providers::find(provider)?.compute_dtype(dtype) == dtype)
}
