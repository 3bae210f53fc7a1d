//! `_native.TensorRTEngine` and `_native.TensorRTContext`: TensorRT's plans that run.
//!
//! Addresses are integers, as TensorRT's own Python package has them, and as unsafe: whoever gives one knows what is there.

use super::plan::watch;
use super::{arrays, calls};
use crate::error::{Result, guarded};
use crate::providers::tensorrt::library::Library;
use crate::providers::tensorrt::runtime::{Allocator, Bounds, Context, Engine, IoTensor};
use crate::providers::tensorrt::sink::Sink;
use pyo3::prelude::*;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

/// For each profile the least, expected and greatest shape.
type Profiles = Vec<(Vec<i64>, Vec<i64>, Vec<i64>)>;
/// Name, TensorRT's dtype, shape, whether it is an input, whether it lies in the processor's memory, profiles.
type Row = (String, String, Vec<i64>, bool, bool, Profiles);

/// A plan that TensorRT has opened. It is native code for a GPU: opening one means to trust whoever built it.
#[pyclass(frozen, module = "neurenix")]
pub struct TensorRTEngine(Arc<Engine>);

#[pymethods]
impl TensorRTEngine {
    /// Opens a plan. `listener.say(severity, text)` gets messages.
    #[staticmethod]
    #[pyo3(signature = (plan, listener=None))]
    fn open(py: Python<'_>, plan: &[u8], listener: Option<Py<PyAny>>) -> PyResult<Self> {
        let scope = calls::scope();
        let sink = listener.map_or_else(Sink::silent, |listener| Sink::watched(&watch(listener, &scope)));
        let open = || Engine::open(&Library::find()?, plan, sink);
        Ok(Self(calls::within(py, &scope, open)?))
    }

    /// The inputs and outputs: name, dtype, shape, whether it is an input, whether it lies in the processor's memory,
    /// and for an input for each profile the least, expected and greatest shape.
    #[getter]
    fn tensors(&self) -> Vec<Row> {
        self.0.tensors().iter().map(row).collect()
    }

    /// How many profiles there are.
    #[getter]
    fn profiles(&self) -> usize {
        self.0.profiles()
    }

    /// The bytes of the GPU's memory that a context needs besides inputs and outputs, for all shapes of a profile.
    fn device_memory(&self, py: Python<'_>, profile: usize) -> PyResult<usize> {
        Ok(calls::released(py, || self.0.device_memory(profile))?)
    }

    /// What TensorRT's inspector says, as JSON.
    fn layers(&self, py: Python<'_>) -> PyResult<String> {
        Ok(calls::released(py, || self.0.layers())?)
    }

    /// The bytes of weights that need not stay on the GPU.
    #[getter]
    fn streamable_weights(&self) -> PyResult<usize> {
        Ok(guarded(|| self.0.streamable_weights())?)
    }

    /// Lets weights take so many bytes of the GPU's memory; None is all of them.
    #[pyo3(signature = (bytes=None))]
    fn set_weight_budget(&self, py: Python<'_>, bytes: Option<usize>) -> PyResult<()> {
        Ok(calls::released(py, || self.0.set_weight_budget(bytes))?)
    }

    /// The names of the weights that can be replaced.
    #[getter]
    fn weight_names(&self) -> PyResult<Vec<String>> {
        Ok(guarded(|| self.0.weight_names())?)
    }

    /// Replaces weights by name.
    fn refit(&self, py: Python<'_>, weights: Vec<(String, Bound<'_, PyAny>)>) -> PyResult<()> {
        let read = |(name, array): (String, Bound<'_, PyAny>)| Ok((name, arrays::read(&array)?));
        let weights = weights.into_iter().map(read).collect::<Result<Vec<_>>>()?;
        Ok(calls::released(py, || self.0.refit(&weights))?)
    }

    /// A context.
    fn context(&self, py: Python<'_>) -> PyResult<TensorRTContext> {
        let context = calls::released(py, || Context::new(&self.0))?;
        Ok(TensorRTContext(Mutex::new(context)))
    }
}

/// The state of one call of a plan; calls of several threads wait for each other.
#[pyclass(frozen, module = "neurenix")]
pub struct TensorRTContext(Mutex<Context>);

impl TensorRTContext {
    fn with<R: Send>(&self, py: Python<'_>, call: impl FnOnce(&mut Context) -> Result<R> + Send) -> PyResult<R> {
        // What a panic leaves behind is what TensorRT has: nothing of ours is half done.
        Ok(calls::released(py, || {
            call(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
        })?)
    }
}

#[pymethods]
impl TensorRTContext {
    /// Chooses a profile; shapes are set anew after it.
    fn set_profile(&self, py: Python<'_>, profile: usize, stream: usize) -> PyResult<()> {
        // SAFETY: the caller's, who names a stream by its address.
        self.with(py, |context| unsafe {
            context.set_profile(profile, stream as *mut c_void)
        })
    }

    /// Sets the shape of an input.
    fn set_shape(&self, py: Python<'_>, input: &str, shape: Vec<i64>) -> PyResult<()> {
        self.with(py, |context| context.set_shape(input, &shape))
    }

    /// The shape of an input or output; -1 where it depends on data, or is not known yet.
    fn shape(&self, py: Python<'_>, tensor: &str) -> PyResult<Vec<i64>> {
        self.with(py, |context| context.shape(tensor))
    }

    /// Works the shapes of the outputs out; gives the names of the inputs that are missing for it.
    fn infer(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.with(py, |context| context.infer())
    }

    /// The bytes of scratch memory for the shapes that are set.
    fn memory(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |context| context.memory())
    }

    /// Whether the next call can be captured in a CUDA graph.
    fn capturable(&self, py: Python<'_>, stream: usize) -> PyResult<bool> {
        self.with(py, |context| Ok(context.capturable(stream as *mut c_void)))
    }

    /// Says where the scratch memory is.
    fn set_memory(&self, py: Python<'_>, address: usize, bytes: usize) -> PyResult<()> {
        // SAFETY: the caller's, who names memory by its address.
        self.with(py, |context| unsafe {
            context.set_memory(address as *mut c_void, bytes)
        })
    }

    /// Says where an input or output is.
    fn set_address(&self, py: Python<'_>, tensor: &str, address: usize) -> PyResult<()> {
        // SAFETY: as above.
        self.with(py, |context| unsafe {
            context.set_address(tensor, address as *mut c_void)
        })
    }

    /// Lets `allocate(current, bytes, alignment, stream)` give the address of an output whose size depends on data, and
    /// `shape(extents)` hear what it is.
    fn collect(&self, py: Python<'_>, output: &str, allocate: Py<PyAny>, shape: Py<PyAny>) -> PyResult<()> {
        let allocator = Box::new(Callbacks { allocate, shape });
        self.with(py, |context| context.collect(output, allocator))
    }

    /// Puts the call into a stream.
    fn enqueue(&self, py: Python<'_>, stream: usize) -> PyResult<()> {
        // SAFETY: the caller's, who has set the addresses.
        self.with(py, |context| unsafe { context.enqueue(stream as *mut c_void) })
    }

    /// Whether the next calls are timed layer by layer.
    fn profile_layers(&self, py: Python<'_>, wanted: bool) -> PyResult<()> {
        self.with(py, |context| {
            context.profile_layers(wanted);
            Ok(())
        })
    }

    /// The milliseconds of each layer of the last call, for which the caller has waited.
    fn times(&self, py: Python<'_>) -> PyResult<Vec<(String, f32)>> {
        self.with(py, |context| context.times())
    }
}

/// Python's functions as an allocator; what they raise is told by Python, and is no memory.
struct Callbacks {
    allocate: Py<PyAny>,
    shape: Py<PyAny>,
}

impl Allocator for Callbacks {
    fn allocate(&mut self, current: *mut c_void, bytes: usize, alignment: usize, stream: *mut c_void) -> *mut c_void {
        let arguments = (current as usize, bytes, alignment, stream as usize);
        calls::attached(|py| {
            let given = calls::call(self.allocate.bind(py), arguments);
            let given = given.and_then(|address| address.extract::<usize>());
            given.unwrap_or_else(|error| {
                error.write_unraisable(py, None);
                0
            })
        }) as *mut c_void
    }

    fn shape(&mut self, dims: &[i64]) {
        calls::attached(|py| {
            if let Err(error) = calls::call(self.shape.bind(py), (dims.to_vec(),)) {
                error.write_unraisable(py, None);
            }
        });
    }
}

fn row(tensor: &IoTensor) -> Row {
    let IoTensor {
        name,
        dtype,
        shape,
        is_input,
        on_host,
        profiles,
        ..
    } = tensor.clone();
    let triple = |Bounds { min, opt, max }| (min, opt, max);
    let profiles = profiles.into_iter().map(triple).collect();
    (name, dtype, shape, is_input, on_host, profiles)
}
