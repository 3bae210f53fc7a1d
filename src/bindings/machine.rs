//! What there is on this machine: threads, caches, providers.

use super::calls;
use crate::error::Result;
use crate::knobs::{self, Describe};
use crate::network::dtype::DType;
use crate::network::ops::tf32::TF32;
use crate::plan::Settings;
use crate::providers::common::packages;
use crate::providers::{self, PROVIDERS, cuda};
use crate::shutdown;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;

/// The threads that the CPU provider uses when nobody says how many.
#[pyfunction]
pub fn default_threads() -> usize {
    crate::threads::default_threads()
}

/// Where caches are kept; None where they are switched off.
#[pyfunction]
pub fn cache_dir() -> PyResult<Option<PathBuf>> {
    Ok(knobs::cache_dir()?)
}

/// The providers that may be used, the preferred one first: `NEURENIX_PROVIDERS`; without it those from outside too.
#[pyfunction]
pub fn allowed_providers() -> PyResult<Vec<String>> {
    let mut allowed = knobs::PROVIDERS.get()?;
    if knobs::PROVIDERS.current()?.is_none() {
        allowed.extend(providers::outside().iter().map(|provider| provider.name().to_string()));
    }
    Ok(allowed)
}

/// Tells where packages may lie that bring NVIDIA's libraries, in place of what `sys.path` was at the import.
#[pyfunction]
pub fn look_in(paths: Vec<PathBuf>) {
    packages::look_in(paths);
}

/// The providers that this build has, the preferred one first, with None or why one can't be had here, on the GPU of
/// this number.
#[pyfunction]
#[pyo3(signature = (device = 0))]
pub fn provider_states(device: u32) -> Vec<(String, Option<String>)> {
    let row = |(name, probe): &(&str, providers::Probe)| (name.to_string(), probe(device).err().map(|e| e.to_string()));
    let outside = providers::outside();
    let outside = outside.iter().map(|provider| (provider.name().to_string(), None));
    PROVIDERS.iter().map(row).chain(outside).collect()
}

/// Lets providers, on the GPU of this number, set up what the first build of a process needs, and waits until they
/// have. What goes wrong is found again by a build.
#[pyfunction]
pub fn warm_up(py: Python<'_>, names: Vec<String>, device: u32) {
    _ = calls::interruptible(py, || {
        let found = names.iter().filter_map(|name| providers::find(name, device).ok());
        found.for_each(|provider| provider.warm_up());
        Ok(())
    });
}

/// Says that the interpreter ends: calls of other threads are ended or waited for, and new ones do nothing.
#[pyfunction]
pub fn end(py: Python<'_>) {
    py.detach(shutdown::end);
}

/// How many GPUs the cuda provider sees; 0 where it can't be had.
#[pyfunction]
pub fn gpu_count() -> u32 {
    cuda::device::count().unwrap_or(0)
}

/// What is known of the GPU of this number.
#[pyfunction]
pub fn gpu_info<'py>(py: Python<'py>, device: u32) -> PyResult<Bound<'py, PyDict>> {
    let facts = cuda::Cuda::shared(device)?.facts()?;
    let dict = PyDict::new(py);
    dict.set_item("name", facts.name)?;
    dict.set_item("compute_capability", facts.capability)?;
    dict.set_item("total_memory", facts.total_memory)?;
    dict.set_item("free_memory", facts.free_memory)?;
    dict.set_item("multiprocessors", facts.multiprocessors)?;
    dict.set_item("driver_version", facts.driver_version)?;
    dict.set_item("libraries", facts.libraries)?;
    Ok(dict)
}

/// What timings on a provider depend on: the device, its instruction sets, the versions of its libraries.
#[pyfunction]
pub fn device(provider: &str) -> PyResult<String> {
    let signature = |name: &str| -> Result<String> {
        let settings = Settings {
            threads: default_threads(),
            ..Settings::default()
        };
        Ok(providers::find(name, 0)?.signature(&settings))
    };
    Ok(signature(provider)?)
}

/// Whether a provider computes in a dtype, rather than in a wider one; "tf32" is none, and asks for products of it.
#[pyfunction]
pub fn computes(provider: &str, dtype: &Bound<'_, PyAny>) -> PyResult<bool> {
    let provider = providers::find(provider, 0)?;
    if dtype.extract::<&str>().is_ok_and(|name| name == TF32.name) {
        return Ok(provider.has_tf32());
    }
    let dtype = super::arrays::dtype_from(dtype)?;
    if dtype == DType::Int8 {
        return Ok(provider.has_int8());
    }
    if dtype == DType::Float8E4M3FN {
        return Ok(provider.has_fp8());
    }
    Ok(provider.compute_dtype(dtype) == dtype)
}
