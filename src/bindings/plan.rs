//! `_native.TensorRTPlan`: what TensorRT's builder makes of a network, and the library that does it.

use super::network::Network;
use super::{arrays, calls};
use crate::engine::config::{BuilderConfig, InputShape, profile};
use crate::engine::foreign;
use crate::error::Error;
use crate::interrupt::Scope;
use crate::plan::Refusal;
use crate::plan::regions::Watch;
use crate::providers::tensorrt::library::{self, Library};
use crate::providers::tensorrt::plan::{self, Compatibility, Config};
use crate::providers::tensorrt::sink::Sink;
use crate::providers::tensorrt::{self, Description};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Shapes by name of the input: least, expected, greatest.
type Shapes = BTreeMap<String, (Vec<i64>, Vec<i64>, Vec<i64>)>;
/// Name, TensorRT's dtype, and shape, in which -1 comes with a call.
type Port = (String, String, Vec<i64>);
/// For each profile the least, expected and greatest shape.
type Profiles = Vec<(Vec<i64>, Vec<i64>, Vec<i64>)>;
/// Its file, version, and the headers that describe it.
type Found = (String, String, String);
/// The library, the places before it with what is wrong there, and the headers of this build.
type Search = (Option<Found>, Vec<(String, String)>, Vec<String>);

/// What TensorRT's builder made. Its bytes are code for a GPU: running them means to trust whoever built them.
#[pyclass(frozen, module = "neurenix")]
pub struct TensorRTPlan {
    plan: plan::Plan,
    library: Arc<Library>,
}

#[pymethods]
impl TensorRTPlan {
    /// Builds a plan. `profiles` as for an engine; `options`: compute (dtype), tf32, optimization_level, workspace,
    /// refittable, strip_weights, version_compatible, weight_streaming, targets, compatibility (none, ampere+, same),
    /// timing_cache, exclude, partial.
    /// `listener.say(severity, text)` gets messages, and `listener.step(phase, done, steps)` each step: false ends the
    /// build.
    #[staticmethod]
    fn build(
        py: Python<'_>,
        network: &Bound<'_, Network>,
        profiles: Vec<Shapes>,
        options: &Bound<'_, PyDict>,
        listener: Py<PyAny>,
    ) -> PyResult<Self> {
        let network = network.try_borrow()?.inner.clone();
        let (mut shared, mut config) = read(options)?;
        for shapes in profiles {
            let shape = |(name, (min, opt, max))| InputShape { name, min, opt, max };
            let shapes: Vec<_> = shapes.into_iter().map(shape).collect();
            shared.profiles.push(profile(&network, &shapes)?);
        }
        config.profiles.clone_from(&shared.profiles);
        let scope = calls::scope();
        let sink = Sink::watched(&watch(listener, &scope));
        let (plan, library) = calls::within(py, &scope, || {
            let library = Library::find()?;
            let network = foreign::simplified(network, &shared, &tensorrt::keeps_whole)?;
            Ok((plan::build(&network, &library, &config, sink)?, library))
        })?;
        Ok(Self { plan, library })
    }

    /// The plan, as TensorRT reads it.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.plan.bytes)
    }

    /// What the build measured, for the next one; empty where this TensorRT keeps nothing.
    #[getter]
    fn timing_cache<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.plan.timing_cache)
    }

    /// The inputs: name, dtype, shape; and for each profile the least, expected and greatest shape.
    #[getter]
    fn inputs(&self) -> Vec<(Port, Profiles)> {
        let row = |input: &plan::Input| {
            let shapes = input.shapes.iter().cloned().map(|[min, opt, max]| (min, opt, max));
            (port(&input.description), shapes.collect())
        };
        self.plan.inputs.iter().map(row).collect()
    }

    /// The outputs: name, dtype, shape.
    #[getter]
    fn outputs(&self) -> Vec<Port> {
        self.plan.outputs.iter().map(port).collect()
    }

    /// The layers that are not in it: name, reason, hint.
    #[getter]
    fn refusals(&self) -> Vec<(String, String, String)> {
        let row = |r: &Refusal| (r.layer.clone(), r.reason.clone(), r.hint.clone());
        self.plan.refusals.iter().map(row).collect()
    }

    /// How many layers of the simplified network are in it, and how many layers of TensorRT were written for them.
    #[getter]
    fn layers(&self) -> (usize, usize) {
        (self.plan.taken, self.plan.written)
    }

    /// The library that built it: its file, its version, the headers that describe it.
    #[getter]
    fn library(&self) -> Found {
        found(&self.library)
    }
}

/// TensorRT's library, if there is one that this build can drive: its file, its version, the headers that describe
/// it; every place that was looked at before, with what is wrong there; and the headers of this build.
#[pyfunction]
pub fn tensorrt_library(py: Python<'_>) -> PyResult<Search> {
    let (library, tried) = calls::released(py, Library::search)?;
    let tried = tried.into_iter().map(|attempt| (attempt.place, attempt.reason));
    Ok((library.as_deref().map(found), tried.collect(), library::flavours()))
}

fn found(library: &Library) -> Found {
    (library.path(), library.version(), library.flavour().into())
}

fn port(description: &Description) -> Port {
    let Description { name, dtype, shape } = description.clone();
    (name, dtype, shape)
}

fn read(options: &Bound<'_, PyDict>) -> PyResult<(BuilderConfig, Config)> {
    let (mut shared, mut config) = (BuilderConfig::default(), Config::default());
    for (name, value) in options {
        match name.extract::<String>()?.as_str() {
            "compute" => shared.compute = arrays::dtype_from(&value)?,
            "tf32" => config.tf32 = value.extract()?,
            "optimization_level" => config.optimization_level = value.extract()?,
            "workspace" => config.workspace = value.extract()?,
            "refittable" => config.refittable = value.extract()?,
            "strip_weights" => config.strip_weights = value.extract()?,
            "version_compatible" => config.version_compatible = value.extract()?,
            "weight_streaming" => config.weight_streaming = value.extract()?,
            "targets" => config.targets = value.extract()?,
            "compatibility" => config.compatibility = compatibility(value.extract()?)?,
            "timing_cache" => config.timing_cache = value.extract()?,
            "exclude" => config.exclude = value.extract()?,
            "partial" => config.partial = value.extract()?,
            other => return Err(Error::invalid(format!("there is no option {other:?}")).into()),
        }
    }
    shared.tf32 = config.tf32;
    Ok((shared, config))
}

fn compatibility(name: &str) -> PyResult<Compatibility> {
    match name {
        "none" => Ok(Compatibility::None),
        "ampere+" => Ok(Compatibility::Ampere),
        "same" => Ok(Compatibility::SameCapability),
        other => Err(Error::invalid(format!("there is no hardware compatibility {other:?}"))
            .expected("none, ampere+ or same")
            .into()),
    }
}

/// Callbacks that call a Python object. What its `step` raises ends the work of the scope and is raised there; what its `say`
/// raises is written by Python as unraisable, if it is an `Exception`.
pub(super) fn watch(listener: Py<PyAny>, scope: &Scope) -> Watch {
    let listener = Arc::new(listener);
    let steps = listener.clone();
    let (of_say, of_step) = (scope.clone(), scope.clone());
    let say = move |severity: &str, text: &str| {
        calls::attached(|py| {
            let Err(error) = calls::call_method(listener.bind(py), "say", (severity, text)) else {
                return;
            };
            match error.is_instance_of::<PyException>(py) {
                true => error.write_unraisable(py, None),
                false => of_say.end(raised(error)),
            }
        });
    };
    let step = move |phase: &str, done: i32, all: i32| {
        calls::attached(|py| {
            let goes_on = calls::call_method(steps.bind(py), "step", (phase, done, all));
            goes_on.and_then(|answer| answer.is_truthy()).unwrap_or_else(|error| {
                of_step.end(raised(error));
                false
            })
        })
    };
    Watch {
        on_message: Arc::new(say),
        on_progress: Arc::new(step),
    }
}

fn raised(error: PyErr) -> Error {
    Error::interrupted(error.to_string()).caused_by(error)
}
