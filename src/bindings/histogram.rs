//! `_native.Histogram`.

use super::{arrays, calls};
use crate::error::Error;
use crate::network::dtype::DType;
use crate::precision::{self, Method};
use pyo3::prelude::*;

/// The step, the zero point and the dtype of integers of 8 bits for a tensor that holds numbers up to a magnitude: int8
/// from -127 on, or uint8 where its least number is known and not far below zero.
#[pyfunction]
#[pyo3(signature = (most, least = None))]
pub fn integers_of(most: f64, least: Option<f64>) -> (f64, i64, &'static str) {
    let (scale, zero, dtype) = precision::integers(most, least);
    (scale, zero, dtype.name())
}

/// How often magnitudes come in a tensor: 2048 bins over a range that doubles. What it holds does not depend on how the
/// numbers were batched.
#[pyclass(module = "neurenix")]
#[derive(Default)]
pub struct Histogram {
    inner: precision::Histogram,
}

#[pymethods]
impl Histogram {
    /// An empty one.
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Counts the numbers of an array of floats. Raises `InvalidArgumentError` if one is not finite.
    fn add(&mut self, py: Python<'_>, array: &Bound<'_, PyAny>) -> PyResult<()> {
        let array = arrays::read(array)?;
        if !array.dtype().is_float() {
            return Err(Error::dtype("a histogram counts floating-point numbers")
                .got(array.dtype().name())
                .into());
        }
        let count = || {
            let single = array.cast(DType::Float32);
            // SAFETY: an array has so many elements of its dtype, which are aligned, and all bits are numbers.
            let values = unsafe { std::slice::from_raw_parts(single.bytes().as_ptr().cast(), single.len()) };
            self.inner.add(values)
        };
        Ok(calls::interruptible(py, count)?)
    }

    /// Adds what the op Histogram gives: counts as int32, the exponent of their range, and the least and the greatest
    /// number. Raises `InvalidArgumentError` if one was not finite.
    fn join(&mut self, counts: &Bound<'_, PyAny>, exponent: i32, least: f32, greatest: f32) -> PyResult<()> {
        let counts: Vec<u64> = arrays::read_as(counts, DType::Int32)?
            .i64s()
            .map(|n| n as u64)
            .collect();
        Ok(self.inner.join(&counts, exponent, [least, greatest])?)
    }

    /// The magnitude that the outermost of `levels` steps had better stand for, by "entropy", "minmax", "percentile" or
    /// "mse".
    #[pyo3(signature = (method, levels, percentile = 99.99))]
    fn range(&self, method: &str, levels: usize, percentile: f64) -> PyResult<f32> {
        let method = match method {
            "entropy" => Method::Entropy,
            "minmax" => Method::MinMax,
            "percentile" => Method::Percentile(percentile),
            "mse" => Method::Mse,
            other => {
                return Err(Error::invalid("unknown method of calibration")
                    .expected("entropy, minmax, percentile or mse")
                    .got(other)
                    .into());
            }
        };
        Ok(self.inner.range(method, levels)?)
    }

    /// The least and the greatest number.
    #[getter]
    fn ends(&self) -> (f32, f32) {
        self.inner.ends()
    }

    /// How many numbers were counted.
    #[getter]
    fn elements(&self) -> u64 {
        self.inner.elements()
    }
}
