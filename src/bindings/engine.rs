//! `_native.Engine`.

use super::context::{self, Context};
use super::network::Network;
use super::placed::{self, Call, Location};
use super::plan::watch;
use super::{arrays, attrs, calls};
use crate::context::{ContextPool, TensorSpec};
use crate::device::Space;
use crate::engine::config::{BuilderConfig, Hint, InputShape, Precision, profile};
use crate::engine::{self, report};
use crate::error::{Error, Result};
use crate::interrupt::Scope;
use crate::network::TensorId;
use crate::network::array::Array;
use crate::network::dim::Binding;
use crate::network::dtype::DType;
use crate::plan::Provider;
use crate::plan::regions::Watch;
use crate::providers;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A network made ready to run; safe to call from any thread.
#[pyclass(frozen, module = "neurenix")]
pub struct Engine {
    pub(super) engine: Arc<engine::Engine>,
    pool: ContextPool,
    pub(super) ports: Ports,
    outside: AtomicBool,
}

/// The names of inputs and outputs, as Python has them.
pub struct Ports {
    pub(super) inputs: Vec<(Py<PyString>, DType)>,
    pub(super) outputs: Vec<Py<PyString>>,
}

impl Ports {
    fn of(py: Python<'_>, engine: &engine::Engine) -> Self {
        let network = &engine.network;
        let input = |&id: &TensorId| (PyString::new(py, &network[id].name).unbind(), network[id].ty.dtype);
        Self {
            inputs: network.inputs().iter().map(input).collect(),
            outputs: network
                .outputs()
                .iter()
                .map(|o| PyString::new(py, &o.name).unbind())
                .collect(),
        }
    }
}

/// Shapes by name of the input: least, expected, greatest.
type Shapes = BTreeMap<String, (Vec<i64>, Vec<i64>, Vec<i64>)>;

impl Engine {
    fn wrap(py: Python<'_>, engine: engine::Engine) -> Self {
        let engine = Arc::new(engine);
        let limit = engine.config.threads.max(engine.calls());
        Self {
            ports: Ports::of(py, &engine),
            pool: ContextPool::new(engine.clone(), limit),
            engine,
            outside: AtomicBool::new(false),
        }
    }
}

/// Options over those of `config`.
pub(super) fn config(
    options: &Bound<'_, PyDict>,
    mut config: BuilderConfig,
    scope: &Scope,
) -> PyResult<(BuilderConfig, Vec<Arc<dyn Provider>>)> {
    let (mut chosen, mut device) = (vec![], 0);
    for (name, value) in options {
        match name.extract::<String>()?.as_str() {
            "compute" => config.compute = arrays::dtype_from(&value)?,
            "tf32" => config.tf32 = value.extract()?,
            "io" => config.io = Some(arrays::dtype_from(&value)?),
            "threads" => config.threads = value.extract()?,
            "hint" => config.hint = hint(&value.extract::<String>()?)?,
            "optimization_level" => config.optimization_level = value.extract()?,
            "deterministic" => config.deterministic = value.extract()?,
            "exclude" => config.exclude = value.extract()?,
            "timing_cache" => config.timing_cache = value.extract::<Option<PathBuf>>()?,
            "workspace" => config.workspace = value.extract()?,
            "listener" => config.watch = watch(value.unbind(), scope),
            "strict" => config.strict = value.extract()?,
            "verify" => config.verify = value.extract()?,
            "refittable" => config.refittable = value.extract()?,
            "samples" => config.samples = samples(&value)?,
            "device" => device = value.extract()?,
            "providers" => chosen = value.extract::<Vec<String>>()?,
            other => return Err(Error::invalid(format!("there is no option {other:?}")).into()),
        }
    }
    let found = chosen.iter().map(|name| providers::find(name, device));
    let providers = found.collect::<Result<_>>()?;
    Ok((config, providers))
}

/// Batches, each with an array for every input, in order.
fn samples(batches: &Bound<'_, PyAny>) -> PyResult<Vec<Vec<Array>>> {
    let batches: Vec<Vec<Bound<'_, PyAny>>> = batches.extract()?;
    let read = |batch: Vec<Bound<'_, PyAny>>| batch.iter().map(arrays::read_copy).collect::<Result<Vec<_>>>();
    Ok(batches.into_iter().map(read).collect::<Result<_>>()?)
}

fn hint(word: &str) -> Result<Hint> {
    match word {
        "latency" => Ok(Hint::Latency),
        "throughput" => Ok(Hint::Throughput),
        other => Err(Error::invalid(format!("there is no hint {other:?}")).expected("latency or throughput")),
    }
}

#[pymethods]
impl Engine {
    /// Builds an engine. `profiles` has one dict per profile, from the name of an input to its (min, opt, max) shape;
    /// `options`: compute (dtype), tf32, io (dtype), threads, hint, optimization_level, deterministic, exclude,
    /// timing_cache, workspace, listener (as for a `TensorRTPlan`), strict, verify, providers, device (the number of a
    /// GPU), refittable, samples (batches for verification: an array for each input).
    #[staticmethod]
    fn build(
        py: Python<'_>,
        network: &Bound<'_, Network>,
        profiles: Vec<Shapes>,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let network = network.try_borrow()?.inner.clone();
        let scope = calls::scope();
        let (mut config, providers) = config(options, BuilderConfig::default(), &scope)?;
        for shapes in profiles {
            let shape = |(name, (min, opt, max))| InputShape { name, min, opt, max };
            let shapes: Vec<_> = shapes.into_iter().map(shape).collect();
            config.profiles.push(profile(&network, &shapes)?);
        }
        let engine = calls::within(py, &scope, || engine::Engine::build(network, config, &providers))?;
        Ok(Self::wrap(py, engine))
    }

    /// Opens an engine file, with options as `build` has them; what they leave out is as the file says.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let scope = calls::scope();
        let saved = calls::within(py, &scope, || engine::Saved::open(&path))?;
        let (config, providers) = config(options, saved.config(), &scope)?;
        let engine = calls::within(py, &scope, || saved.plan(config, &providers))?;
        Ok(Self::wrap(py, engine))
    }

    /// An engine with other weights, by name; this one stays as it is. `options` as `load` has them.
    fn refit(&self, py: Python<'_>, weights: &Bound<'_, PyDict>, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let scope = calls::scope();
        let before = BuilderConfig {
            watch: Watch::default(),
            ..self.engine.config.clone()
        };
        let (config, providers) = config(options, before, &scope)?;
        let mut arrays = BTreeMap::new();
        for (name, array) in weights {
            let name: String = name.extract()?;
            let array = arrays::read_copy(&array).map_err(|e| e.tensor(&name))?;
            arrays.insert(name, array);
        }
        let engine = calls::within(py, &scope, || self.engine.refit(arrays, config, &providers))?;
        Ok(Self::wrap(py, engine))
    }

    /// Whether its weights can be replaced.
    #[getter]
    fn refittable(&self) -> bool {
        self.engine.original.is_some()
    }

    /// The weights that can be replaced: name, dtype, shape.
    #[getter]
    fn weights<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for (name, array) in self.engine.weights() {
            list.append((name, arrays::numpy_dtype(py, array.dtype())?, array.shape()))?;
        }
        Ok(list)
    }

    /// The elements of a weight that can be replaced; None where there is none of this name.
    fn weight<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        let array = self.engine.weights().get(name).map(|array| (*array).clone());
        array.map(|array| arrays::write(py, &array)).transpose()
    }

    /// Saves the engine to a file, which appears whole or not at all.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        Ok(calls::released(py, || self.engine.save(&path))?)
    }

    /// Runs on a dict of arrays by name and gives a dict of new numpy arrays.
    fn run<'py>(&self, py: Python<'py>, inputs: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
        let arrays = context::read(py, &self.ports, inputs)?;
        let mut lent = match self.pool.try_lend() {
            Some(context) => context,
            None => calls::interruptible(py, || self.pool.lend())?,
        };
        let outputs = context::run(py, &mut lent, &self.ports, &arrays)?;
        if lent.profile().is_some_and(|(_, inside)| !inside) {
            self.outside.store(true, Ordering::Relaxed);
        }
        Ok(outputs)
    }

    /// Runs on arrays at these addresses, each with the number of its GPU or None: dense, of the dtypes of the inputs,
    /// of these shapes. The outputs must have room for what `specs` says. `stream`: a GPU and the caller's stream of
    /// it; the call then returns before the work is done, where all arrays lie on that GPU or are small inputs of the
    /// processor.
    /// `timed`: it waits, and gives for each kernel in order its layers, its implementation, nanoseconds. `held`: a
    /// framework holds the memory of the arrays, so that the GPU is not asked whether there is any.
    #[expect(clippy::too_many_arguments, reason = "those of Python's side")]
    #[pyo3(signature = (inputs, shapes, outputs, stream, timed = false, held = false))]
    fn run_at(
        &self,
        py: Python<'_>,
        inputs: Vec<Location>,
        shapes: Vec<Vec<usize>>,
        outputs: Vec<Location>,
        stream: Option<(u32, usize)>,
        timed: bool,
        held: bool,
    ) -> PyResult<Vec<context::Row>> {
        let call = Call {
            inputs,
            shapes,
            outputs,
            stream,
            timed,
            held,
        };
        let (inside, times) = call.run(py, &self.pool, self.ports.inputs.iter().map(|(_, dtype)| *dtype))?;
        if !inside {
            self.outside.store(true, Ordering::Relaxed);
        }
        Ok(context::rows(times))
    }

    /// dtype and shape of each output for inputs of these shapes.
    fn specs<'py>(&self, py: Python<'py>, shapes: Vec<Vec<usize>>) -> PyResult<Bound<'py, PyList>> {
        let types = placed::types(self.ports.inputs.iter().map(|(_, dtype)| *dtype), &shapes);
        let specs = calls::interruptible(py, || Ok(self.pool.lend()?.specs(&types)?.to_vec()))?;
        let list = PyList::empty(py);
        for TensorSpec { dtype, shape } in specs {
            list.append((arrays::numpy_dtype(py, dtype)?, shape))?;
        }
        Ok(list)
    }

    /// The name of the network.
    #[getter]
    fn name(&self) -> &str {
        &self.engine.network.name
    }

    /// Whether sizes of outputs, or what runs, depend on data: it then works on arrays in the processor's memory.
    #[getter]
    fn staged(&self) -> bool {
        !self.engine.stages.is_empty()
    }

    /// The GPUs whose memory it reaches; none where the sizes of outputs depend on data.
    #[getter]
    fn devices(&self) -> Vec<u32> {
        let spaces = self.engine.plans.iter().flat_map(|plan| plan.program.spaces());
        let mut devices: Vec<u32> = spaces.filter_map(Space::device).collect();
        devices.sort();
        devices.dedup();
        devices
    }

    /// Waits for the work of calls on arrays of a GPU.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        Ok(calls::released(py, || self.pool.finish())?)
    }

    /// Runs once on a dict of arrays and gives, for each kernel in order: its layers, its implementation, nanoseconds.
    fn profile<'py>(&self, py: Python<'py>, inputs: &Bound<'py, PyDict>) -> PyResult<Vec<context::Row>> {
        let arrays = context::read(py, &self.ports, inputs)?;
        let mut lent = calls::interruptible(py, || self.pool.lend())?;
        context::profile(py, &mut lent, &arrays)
    }

    /// Nanoseconds of one of `calls` calls behind each other on arrays that are copied to the engine's device before.
    #[pyo3(signature = (inputs, calls = 1))]
    fn time_on_device(&self, py: Python<'_>, inputs: &Bound<'_, PyDict>, calls: usize) -> PyResult<u64> {
        let arrays = context::read(py, &self.ports, inputs)?;
        let mut lent = calls::interruptible(py, || self.pool.lend())?;
        Ok(calls::interruptible(py, || lent.time_on_device(&arrays, calls))?)
    }

    /// A context of one's own, for one call at a time.
    fn create_context(slf: &Bound<'_, Self>) -> Context {
        Context::new(slf.clone().unbind(), slf.get().engine.clone())
    }

    /// The inputs: name, dtype, shape.
    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let network = &self.engine.network;
        let named = network.inputs().iter().map(|&id| (network[id].name.as_str(), id));
        self.describe(py, named)
    }

    /// The outputs: name, dtype, shape.
    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let outputs = self.engine.network.outputs().iter();
        self.describe(py, outputs.map(|o| (o.name.as_str(), o.tensor)))
    }

    /// The profiles: from the name of a symbol to its (min, opt, max).
    #[getter]
    fn profiles(&self) -> Vec<BTreeMap<String, (i64, i64, i64)>> {
        let range = |(name, r): (&Arc<str>, &crate::network::dim::Range)| (name.to_string(), (r.min, r.opt, r.max));
        self.engine
            .profiles()
            .map(|profile| profile.iter().map(range).collect())
            .collect()
    }

    /// Whether some call had shapes outside of every profile.
    #[getter]
    fn outside(&self) -> bool {
        self.outside.load(Ordering::Relaxed)
    }

    /// What was asked for: fp32, tf32, bf16 or fp16.
    #[getter]
    fn precision(&self) -> &'static str {
        match self.engine.config.precision() {
            Precision {
                tf32: true,
                dtype: DType::Float32,
            } => "tf32",
            Precision {
                dtype: DType::BFloat16, ..
            } => "bf16",
            Precision {
                dtype: DType::Float16, ..
            } => "fp16",
            _ => "fp32",
        }
    }

    /// Calls beside each other that keep the threads busy.
    #[getter]
    fn calls(&self) -> usize {
        self.engine.calls()
    }

    /// Why calls are slower than they could be, once one found that.
    #[getter]
    fn degraded(&self) -> Option<&str> {
        self.engine.degraded()
    }

    /// What the user should know of the build: fallbacks, precision that could not be had, ...
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.engine.notes.clone()
    }

    /// What the engine does at the opt shapes of its first profile, as JSON.
    fn report(&self, py: Python<'_>) -> PyResult<String> {
        let report = calls::interruptible(py, || {
            let symbols = self.engine.network.symbols.iter();
            let profile = self.engine.profiles().next();
            let pick = |name: &Arc<str>| profile.and_then(|p| p.get(name)).copied();
            let binding: Binding = symbols
                .map(|(name, range)| (name.clone(), pick(name).unwrap_or(*range).opt))
                .collect();
            let report: report::Report = self.engine.report(&binding)?;
            serde_json::to_string(&report).map_err(|e| Error::internal(e.to_string()))
        });
        Ok(report?)
    }

    /// The shapes of the outputs, and the bytes of activations and workspaces of one call, at these input shapes.
    fn prepare(
        &self,
        py: Python<'_>,
        shapes: BTreeMap<String, Vec<usize>>,
    ) -> PyResult<(BTreeMap<String, Vec<usize>>, usize)> {
        let network = &self.engine.network;
        let mut types = vec![];
        for tensor in network.inputs().iter().map(|&id| &network[id]) {
            let shape = shapes.get(&tensor.name);
            let shape = shape.ok_or_else(|| Error::invalid("the shape of an input is missing").tensor(&tensor.name))?;
            types.push((tensor.ty.dtype, shape.as_slice()));
        }
        let names = network.outputs().iter().map(|output| output.name.clone());
        let prepared = calls::interruptible(py, || {
            let mut context = self.pool.lend()?;
            let outputs: Vec<_> = context.prepare(&types)?.iter().map(|s| s.shape.clone()).collect();
            Ok((names.zip(outputs).collect(), context.arena_bytes()))
        });
        Ok(prepared?)
    }

    /// The simplified network as text.
    fn dump(&self) -> String {
        self.engine.network.to_string()
    }
}

impl Engine {
    fn describe<'py, 'a>(
        &'a self,
        py: Python<'py>,
        named: impl Iterator<Item = (&'a str, TensorId)>,
    ) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for (name, id) in named {
            let ty = &self.engine.network[id].ty;
            let shape: Bound<'py, PyTuple> = attrs::write_shape(py, &ty.shape)?;
            list.append((name, arrays::numpy_dtype(py, ty.dtype)?, shape))?;
        }
        Ok(list)
    }
}
