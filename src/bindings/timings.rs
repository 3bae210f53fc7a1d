//! `_native.TimingCache`.

use super::calls;
use super::engine::config;
use crate::engine::config::BuilderConfig;
use crate::plan::timing::{self, Times};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Times that callers of the builder measure, kept beside those of kernels: in the file that `options` (as of an
/// `Engine`) name, if any, and for their providers on this machine.
#[pyclass(frozen, module = "neurenix")]
pub struct TimingCache {
    cache: timing::TimingCache,
    signature: String,
}

#[pymethods]
impl TimingCache {
    /// Reads the file.
    #[new]
    fn new(options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let (config, providers) = config(options, BuilderConfig::default(), &calls::scope())?;
        let settings = config.settings();
        Ok(Self {
            cache: config.times(),
            signature: timing::signatures(&providers, &settings),
        })
    }

    /// The time of a name in nanoseconds, or None.
    fn known(&self, name: &str) -> Option<u64> {
        self.cache.known(&timing::named(&self.signature, name))
    }

    /// Keeps times in nanoseconds by name; those that are known stay. Raises `FileError` if it can't write.
    fn add(&self, times: Times) -> PyResult<()> {
        for (name, time) in times {
            self.cache.time(&timing::named(&self.signature, &name), || Ok(time))?;
        }
        Ok(self.cache.flush()?)
    }
}
