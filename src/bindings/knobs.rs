//! `_native.knobs`: the environment variables.

use crate::knobs::KNOBS;
use pyo3::prelude::*;

/// Every environment variable that is read: (name, default, doc, what is set now or None).
#[pyfunction]
pub fn knobs() -> PyResult<Vec<(&'static str, &'static str, &'static str, Option<String>)>> {
    let told = |knob: &&dyn crate::knobs::Describe| {
        let [name, default, doc] = knob.describe();
        Ok((name, default, doc, knob.current()?))
    };
    KNOBS.iter().map(told).collect()
}
