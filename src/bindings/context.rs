//! `_native.Context`, and how a call crosses from Python to a context.

use super::engine::{Engine, Ports};
use super::{arrays, calls};
use crate::context::{ExecutionContext, LayerTime};
use crate::engine;
use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::dtype::DType;
use crate::runtime::bindings::ArrayAddress;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

/// The state of one call at a time; use one per thread.
#[pyclass(frozen, module = "neurenix")]
pub struct Context {
    engine: Py<Engine>,
    inner: Mutex<ExecutionContext>,
}

impl Context {
    pub(super) fn new(engine: Py<Engine>, inner: Arc<engine::Engine>) -> Self {
        Self {
            engine,
            inner: Mutex::new(ExecutionContext::new(inner)),
        }
    }

    fn lock(&self) -> Result<MutexGuard<'_, ExecutionContext>> {
        match self.inner.try_lock() {
            Ok(context) => Ok(context),
            Err(TryLockError::Poisoned(context)) => Ok(context.into_inner()),
            Err(TryLockError::WouldBlock) => Err(Error::invalid("the context is running in another thread")
                .hint("use one context per thread, or call the optimised model, which any thread may")),
        }
    }
}

#[pymethods]
impl Context {
    /// The engine.
    #[getter]
    fn engine(&self, py: Python<'_>) -> Py<Engine> {
        self.engine.clone_ref(py)
    }

    /// Runs on a dict of arrays by name and gives a dict of new numpy arrays.
    fn run<'py>(&self, py: Python<'py>, inputs: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
        let ports = &self.engine.get().ports;
        let arrays = read(py, ports, inputs)?;
        run(py, &mut *self.lock()?, ports, &arrays)
    }

    /// The number of the profile of the last call, and whether its shapes lay inside.
    #[getter]
    fn profile(&self) -> PyResult<Option<(usize, bool)>> {
        Ok(self.lock()?.profile())
    }
}

/// The arrays of a call, in the order of the inputs.
pub fn read(py: Python<'_>, ports: &Ports, inputs: &Bound<'_, PyDict>) -> PyResult<Vec<Array>> {
    let mut arrays = Vec::with_capacity(ports.inputs.len());
    for (name, dtype) in &ports.inputs {
        let name = name.bind(py);
        let given = inputs
            .get_item(name)?
            .ok_or_else(|| unfit("an input is missing", py, ports, inputs))?;
        arrays.push(arrays::read_as(&given, *dtype).map_err(|e| e.tensor(name.to_string()))?);
    }
    if inputs.len() > arrays.len() {
        return Err(unfit("the model has no such input", py, ports, inputs).into());
    }
    Ok(arrays)
}

fn unfit(message: &str, py: Python<'_>, ports: &Ports, inputs: &Bound<'_, PyDict>) -> Error {
    let names: Vec<_> = ports.inputs.iter().map(|(name, _)| name.bind(py).to_string()).collect();
    let given: Vec<_> = inputs.keys().iter().map(|key| key.to_string()).collect();
    let list = |names: &[String]| {
        if names.is_empty() {
            "none".into()
        } else {
            names.join(", ")
        }
    };
    let error = Error::invalid(message).expected(list(&names)).got(list(&given));
    let stray = given.iter().find(|name| !names.contains(name));
    match stray {
        Some(stray) => error.nearest(stray, names.iter().map(String::as_str)),
        None => error,
    }
}

fn types(arrays: &[Array]) -> Vec<(DType, &[usize])> {
    arrays.iter().map(|a| (a.dtype(), a.shape())).collect()
}

/// Places that cross to where the GIL is not held: of inputs, and of outputs.
pub struct Crossing(pub Vec<ArrayAddress>, pub Vec<ArrayAddress>);

// SAFETY: the arrays at these places outlive the call, and only it touches the outputs.
unsafe impl Send for Crossing {}

// SAFETY: nobody follows the places but the one call.
unsafe impl Sync for Crossing {}

/// Runs a context on arrays; the outputs are new numpy arrays.
pub fn run<'py>(
    py: Python<'py>,
    context: &mut ExecutionContext,
    ports: &Ports,
    inputs: &[Array],
) -> PyResult<Bound<'py, PyDict>> {
    if context.is_staged() {
        let arrays = calls::interruptible(py, || context.evaluate(inputs))?;
        let outputs = PyDict::new(py);
        for (name, array) in ports.outputs.iter().zip(&arrays) {
            outputs.set_item(name, arrays::write(py, array)?)?;
        }
        return Ok(outputs);
    }
    let types = types(inputs);
    if !context.is_ready(&types) {
        calls::interruptible(py, || context.prepare(&types).map(drop))?;
    }
    let outputs = PyDict::new(py);
    let from = inputs.iter().map(|a| ArrayAddress::host(a.bytes().as_ptr()));
    let mut places = Crossing(from.collect(), vec![]);
    for (name, spec) in ports.outputs.iter().zip(context.specs(&types)?) {
        let (array, data) = arrays::empty(py, spec.dtype, &spec.shape)?;
        outputs.set_item(name, array)?;
        places.1.push(ArrayAddress::host(data));
    }
    calls::released(py, || {
        let places = places;
        // SAFETY: `inputs` and the new arrays in `outputs` live beyond the call, and have the prepared shapes.
        unsafe { context.run(&places.0, &places.1, None) }
    })?;
    Ok(outputs)
}

/// A kernel: its layers, its implementation, nanoseconds.
pub type Row = (String, String, u64);

/// Runs a context once on arrays, timing each kernel: its layers, its implementation, nanoseconds.
pub fn profile(py: Python<'_>, context: &mut ExecutionContext, inputs: &[Array]) -> PyResult<Vec<Row>> {
    let times = calls::interruptible(py, || context.timed(inputs))?;
    Ok(rows(times))
}

/// Of each kernel: its layers, its implementation, nanoseconds.
pub fn rows(times: Vec<LayerTime>) -> Vec<Row> {
    let row = |time: LayerTime| (time.layers, time.implementation, time.nanoseconds);
    times.into_iter().map(row).collect()
}
