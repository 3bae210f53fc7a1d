//! Plugins that are Python objects, behind the traits of `network::plugin`.
//!
//! What they are here are the adapters of `neurenix.hardware.tensorrt.plugins.adapter`: those know the classes of users.

use super::{arrays, attrs, calls, dim};
use crate::error::{Error, Result};
use crate::network::attr::{Attr, Attrs};
use crate::network::op::TensorType;
use crate::network::plugin::{
    self, Device, Field, FieldKind, Fields, Held, Identity, Number, Phase, Plugin, Prepared, Run, Shaped, Source,
};
use crate::providers::plugin::library;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyList, PyTuple};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Name, version and namespace.
pub type Name = (String, String, String);

/// A field: the name of its kind, its shape, its bytes.
pub type Value = (String, Vec<usize>, Vec<u8>);

fn identity((name, version, namespace): Name) -> Identity {
    Identity {
        name,
        version,
        namespace,
    }
}

fn name(identity: Identity) -> Name {
    (identity.name, identity.version, identity.namespace)
}

fn read_fields(values: BTreeMap<String, Value>) -> Result<Fields> {
    let read = |(name, (kind, shape, data)): (String, Value)| {
        let field = FieldKind::parse(&kind).and_then(|kind| Field::new(kind, shape, data));
        let field = field.map_err(|e| e.during(format!("field {name:?}")))?;
        Ok((name, field))
    };
    values.into_iter().map(read).collect()
}

fn write_fields<'py>(py: Python<'py>, fields: &Fields) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, field) in fields {
        let shape = PyTuple::new(py, field.shape())?;
        dict.set_item(name, (field.kind().name(), shape, PyBytes::new(py, field.data())))?;
    }
    Ok(dict)
}

/// The plugin of a layer as plain values.
pub fn write<'py>(py: Python<'py>, held: &Held) -> PyResult<Bound<'py, PyAny>> {
    let dict = PyDict::new(py);
    let identity = held.identity();
    dict.set_item("name", &identity.name)?;
    dict.set_item("version", &identity.version)?;
    dict.set_item("namespace", &identity.namespace)?;
    dict.set_item("fields", write_fields(py, held.fields())?)?;
    Ok(dict.into_any())
}

/// The attributes of a layer with a plugin that is made already.
///
/// # Errors
/// If it can't be serialised.
pub fn of_object(plugin: &Bound<'_, PyAny>, shape_inputs: usize) -> PyResult<Attrs> {
    let plugin = PythonPlugin::new(plugin)?;
    Ok(attributes(Held::new(Arc::new(plugin), shape_inputs)?))
}

/// The attributes of a layer with a plugin that the registry makes.
///
/// # Errors
/// If there is none of this name, or it does not take these fields.
pub fn of_registered(layer: &str, name: Name, fields: BTreeMap<String, Value>, shape_inputs: usize) -> PyResult<Attrs> {
    let (identity, fields) = (identity(name), read_fields(fields)?);
    Ok(attributes(Held::create(layer, identity, fields, shape_inputs)?))
}

fn attributes(held: Held) -> Attrs {
    Attrs::from([("plugin".to_string(), Attr::Plugin(held))])
}

/// Adds a creator of plugins to the registry, under a name, a version and a namespace.
#[pyfunction]
pub fn register_plugin(name: Name, creator: &Bound<'_, PyAny>) -> PyResult<()> {
    let creator = PythonCreator {
        identity: identity(name),
        object: creator.clone().unbind(),
    };
    Ok(plugin::registry::register(Arc::new(creator))?)
}

/// Opens a shared library of plugins and registers what it brings: name, version and namespace of each.
#[pyfunction]
pub fn load_plugin_library(py: Python<'_>, path: PathBuf) -> PyResult<Vec<Name>> {
    // What the library does when it is opened may take its time.
    let identities = calls::released(py, || library::load(&path))?;
    Ok(identities.into_iter().map(name).collect())
}

/// Takes a creator out of the registry; says whether there was one.
#[pyfunction]
pub fn deregister_plugin(name: Name) -> bool {
    plugin::registry::deregister(&identity(name))
}

/// The fields that a plugin of the registry says it reads, with the numbers of their types.
#[pyfunction]
pub fn declared_fields(name: Name) -> PyResult<Vec<(String, i32)>> {
    Ok(plugin::registry::find(&identity(name))?.declared())
}

/// Name, version and namespace of every plugin in the registry, in order.
#[pyfunction]
pub fn registered_plugins() -> Vec<Name> {
    plugin::registry::identities().into_iter().map(name).collect()
}

/// Which plugin a name stands for: without a version that of version "1", or the only one that there is.
#[pyfunction]
#[pyo3(signature = (name, version = None, namespace = ""))]
pub fn resolve_plugin(name: &str, version: Option<&str>, namespace: &str) -> Name {
    self::name(plugin::registry::resolve(name, version, namespace))
}

struct PythonCreator {
    identity: Identity,
    object: Py<PyAny>,
}

impl plugin::Creator for PythonCreator {
    fn identity(&self) -> Identity {
        self.identity.clone()
    }

    fn create(&self, layer: &str, fields: &Fields, phase: Phase) -> Result<Arc<dyn Plugin>> {
        calls::attached(|py| {
            let phase = match phase {
                Phase::Build => "build",
                Phase::Runtime => "runtime",
            };
            let arguments = (layer, write_fields(py, fields)?, phase);
            let made = calls::call_method(self.object.bind(py), "create", arguments)?;
            Ok(Arc::new(PythonPlugin::new(&made)?) as Arc<dyn Plugin>)
        })
    }
}

struct PythonPlugin {
    object: Py<PyAny>,
    identity: Identity,
    devices: Vec<String>,
    has_source: bool,
    checks_types: bool,
}

impl PythonPlugin {
    fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self {
            identity: identity(object.getattr("identity")?.extract()?),
            devices: object.getattr("devices")?.extract()?,
            has_source: object.getattr("has_source")?.extract()?,
            checks_types: object.getattr("checks_types")?.extract()?,
            object: object.clone().unbind(),
        })
    }
}

/// The launch of a kernel, as an adapter gives it.
#[derive(FromPyObject)]
struct Launch<'py> {
    code: String,
    entry: String,
    include_paths: Vec<String>,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: usize,
    workspace: usize,
    arguments: Vec<Bound<'py, PyAny>>,
}

fn number(argument: &Bound<'_, PyAny>) -> PyResult<Number> {
    // numpy's float64 is a Python float too.
    if argument.get_type().name()? == "float64" {
        return Ok(Number::Double(argument.extract()?));
    }
    if argument.is_instance_of::<PyFloat>() {
        return Ok(Number::Float(argument.extract()?));
    }
    match argument.extract::<i64>() {
        Ok(number) => Ok(Number::Int(number)),
        Err(_) => Ok(Number::Float(argument.extract()?)),
    }
}

/// dtypes and shapes, and elements that the shapes determine, for Python.
///
/// # Errors
/// If Python has no memory.
pub fn types<'py>(py: Python<'py>, types: &[TensorType]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for ty in types {
        let dims = |dims: &[crate::network::dim::Dim]| {
            let dims = dims.iter().map(|d| dim::write(py, d)).collect::<PyResult<Vec<_>>>()?;
            PyTuple::new(py, dims)
        };
        let value = ty.value.as_deref().map(dims).transpose()?;
        list.append((arrays::numpy_dtype(py, ty.dtype)?, dims(&ty.shape)?, value))?;
    }
    Ok(list)
}

/// dtypes and shapes for Python.
///
/// # Errors
/// If Python has no memory.
pub fn described<'py>(py: Python<'py>, tensors: &[Shaped]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for Shaped { dtype, shape } in tensors {
        list.append((arrays::numpy_dtype(py, *dtype)?, PyTuple::new(py, shape)?))?;
    }
    Ok(list)
}

impl Plugin for PythonPlugin {
    fn identity(&self) -> Identity {
        self.identity.clone()
    }

    fn fields(&self) -> Result<Fields> {
        calls::attached(|py| read_fields(calls::call_method(self.object.bind(py), "fields", ())?.extract()?))
    }

    fn infer(&self, inputs: &[TensorType], shape_inputs: usize) -> Result<Vec<TensorType>> {
        calls::attached(|py| {
            let arguments = (types(py, inputs)?, shape_inputs);
            let given = calls::call_method(self.object.bind(py), "infer", arguments)?;
            let mut outputs = vec![];
            for output in given.try_iter()? {
                let (dtype, shape): (Bound<'_, PyAny>, Bound<'_, PyAny>) = output?.extract()?;
                outputs.push(TensorType::new(arrays::dtype_from(&dtype)?, attrs::read_shape(&shape)?));
            }
            Ok(outputs)
        })
    }

    fn supports(&self, at: usize, all: &[TensorType], inputs: usize) -> Result<bool> {
        if !self.checks_types {
            return Ok(true);
        }
        calls::attached(|py| {
            let arguments = (at, types(py, all)?, inputs);
            Ok(calls::call_method(self.object.bind(py), "supports", arguments)?.extract()?)
        })
    }

    fn devices(&self) -> Vec<String> {
        self.devices.clone()
    }

    fn has_source(&self) -> bool {
        self.has_source
    }

    fn source(&self, inputs: &[Shaped], outputs: &[Shaped]) -> Result<Source> {
        calls::attached(|py| {
            let arguments = (described(py, inputs)?, described(py, outputs)?);
            let launch: Launch = calls::call_method(self.object.bind(py), "source", arguments)?.extract()?;
            let numbers = launch.arguments.iter().map(number).collect::<PyResult<_>>()?;
            Ok(Source {
                code: launch.code,
                entry: launch.entry,
                include_paths: launch.include_paths,
                grid: launch.grid,
                block: launch.block,
                shared_bytes: launch.shared_bytes,
                workspace: launch.workspace,
                numbers,
            })
        })
    }

    fn prepare(&self, device: Device, inputs: &[Shaped], outputs: &[Shaped]) -> Result<Box<dyn Prepared>> {
        calls::attached(|py| {
            let ordinal = match device {
                Device::Cpu => None,
                Device::Cuda(ordinal) => Some(ordinal),
            };
            let arguments = (ordinal, described(py, inputs)?, described(py, outputs)?);
            let made = calls::call_method(self.object.bind(py), "prepare", arguments)?;
            Ok(Box::new(PythonPrepared::new(&made)?) as Box<dyn Prepared>)
        })
    }
}

/// What an adapter got ready: it has `workspace`, `capturable`, and `run(inputs, outputs, workspace, stream)` on addresses.
pub struct PythonPrepared {
    workspace: usize,
    capturable: bool,
    run: Py<PyAny>,
}

impl PythonPrepared {
    /// Of an adapter's object.
    ///
    /// # Errors
    /// If it lacks something.
    pub fn new(made: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self {
            workspace: made.getattr("workspace")?.extract()?,
            capturable: made.getattr("capturable")?.extract()?,
            run: made.getattr("run")?.unbind(),
        })
    }
}

impl Prepared for PythonPrepared {
    fn workspace(&self) -> usize {
        self.workspace
    }

    fn is_capturable(&self) -> bool {
        self.capturable
    }

    fn run(&mut self, call: &Run) -> Result<()> {
        let inputs = call.inputs.iter().map(|address| *address as usize);
        let outputs = call.outputs.iter().map(|address| *address as usize);
        let (inputs, outputs): (Vec<usize>, Vec<usize>) = (inputs.collect(), outputs.collect());
        calls::attached(|py| {
            let addresses = (PyTuple::new(py, inputs)?, PyTuple::new(py, outputs)?);
            let places = (call.workspace as usize, call.stream as usize);
            let arguments = (addresses.0, addresses.1, places.0, places.1);
            calls::call(self.run.bind(py), arguments).map(drop).map_err(Error::from)
        })
    }
}
