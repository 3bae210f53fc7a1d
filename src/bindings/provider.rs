//! Providers that are Python objects: they work in the processor's memory, layer by layer.

use super::plugin::{PythonPrepared, described, types};
use super::{attrs, calls};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::network::dtype::DType;
use crate::network::op::TensorType;
use crate::network::plugin::{Prepared as _, Run};
use crate::network::{LayerId, Network, TensorId};
use crate::plan::layout::Layout;
use crate::plan::{
    Call, Candidate, Form, Instance, Job, Kernel, Offer, Prepared, Provider, Refusal, Request, Settings,
};
use crate::providers;
use crate::providers::common::scope::uniform_forms;
use crate::providers::cpu::Cpu;
use crate::providers::plugin::shaped;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};
use std::sync::Arc;

/// Adds a provider under a name, for the life of the process (an adapter of `neurenix.hardware.provider`).
#[pyfunction]
pub fn register_provider(name: String, version: String, provider: &Bound<'_, PyAny>) -> PyResult<()> {
    let provider = PythonProvider {
        // There are few, and they stay.
        name: Box::leak(name.into_boxed_str()),
        version,
        object: provider.clone().unbind(),
        host: Cpu::default(),
    };
    Ok(providers::register(Arc::new(provider))?)
}

struct PythonProvider {
    name: &'static str,
    version: String,
    object: Py<PyAny>,
    /// Who moves data for it, and on whose threads it works.
    host: Cpu,
}

impl PythonProvider {
    /// The kernel of a layer, or why there is none.
    fn ask(&self, network: &Network, id: LayerId) -> Result<std::result::Result<Py<PyAny>, String>> {
        let layer = &network[id];
        let inputs: Vec<TensorId> = layer.inputs.iter().flatten().copied().collect();
        let tys =
            |tensors: &[TensorId]| -> Vec<TensorType> { tensors.iter().map(|&t| network[t].ty.clone()).collect() };
        calls::attached(|py| {
            let present = PyList::new(py, layer.inputs.iter().map(Option::is_some))?;
            let arguments = (
                (&layer.name, layer.op.name),
                attrs::write(py, &layer.attrs)?,
                present,
                types(py, &tys(&inputs))?,
                types(py, &tys(&layer.outputs))?,
            );
            let found = calls::call_method(self.object.bind(py), "offer", arguments)?;
            match found.cast::<PyString>() {
                Ok(reason) => Ok(Err(reason.to_string())),
                Err(_) => Ok(Ok(found.unbind())),
            }
        })
    }
}

impl Provider for PythonProvider {
    fn name(&self) -> &'static str {
        self.name
    }

    fn conditions(&self, settings: &Settings) -> Vec<(String, String)> {
        let mut found = vec![("version".into(), self.version.to_string())];
        found.extend(self.host.conditions(settings));
        found
    }

    fn device(&self) -> &dyn Device {
        self.host.device()
    }

    fn compute_dtype(&self, dtype: DType) -> DType {
        self.host.compute_dtype(dtype)
    }

    fn candidates(&self, network: &Network, id: LayerId, _settings: &Settings) -> Offer {
        let layer = &network[id];
        let refusal = |reason: String| Refusal {
            provider: self.name.into(),
            layer: layer.name.clone(),
            reason,
            hint: String::new(),
        };
        if let Some(dim) = network.unknown_size(id) {
            return Err(refusal(format!("the size of its result, {dim}, depends on data")));
        }
        let found = self.ask(network, id).map_err(|e| refusal(e.message().into()))?;
        let object = found.map_err(refusal)?;
        let inputs: Vec<TensorId> = layer.inputs.iter().flatten().copied().collect();
        let kernel = PythonKernel {
            name: format!("{} {}", self.name, layer.op.name),
            forms: uniform_forms(&[Layout::Plain], inputs.len(), layer.outputs.len()),
            object,
        };
        Ok(vec![Candidate {
            kernel: Arc::new(kernel),
            layers: vec![id],
            inputs,
            outputs: layer.outputs.clone(),
        }])
    }

    fn reorder(&self, from: Layout, to: Layout, ty: &TensorType) -> Arc<dyn Kernel> {
        self.host.reorder(from, to, ty)
    }

    fn run(&self, threads: usize, job: Job) -> Result<()> {
        self.host.run(threads, job)
    }
}

struct PythonKernel {
    name: String,
    forms: Vec<Form>,
    object: Py<PyAny>,
}

impl Kernel for PythonKernel {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn identity(&self) -> String {
        self.name.clone()
    }

    fn forms(&self) -> Vec<Form> {
        self.forms.clone()
    }

    fn is_timed(&self) -> bool {
        false
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        calls::attached(|py| {
            let (inputs, outputs) = (shaped(request.inputs), shaped(request.outputs));
            let arguments = (py.None(), described(py, &inputs)?, described(py, &outputs)?);
            let made = calls::call_method(self.object.bind(py), "prepare", arguments)?;
            let (name, mut prepared) = (self.name.clone(), PythonPrepared::new(&made)?);
            let workspace = prepared.workspace();
            let launch = move |call: &Call| {
                let run = Run {
                    inputs: call.inputs,
                    outputs: call.outputs,
                    workspace: call.workspace,
                    stream: call.stream,
                };
                prepared.run(&run).map_err(|e| e.during(format!("provider {name}")))
            };
            let instance = Instance::new("the provider's own code", launch);
            Ok(instance.with_workspace(workspace).into())
        })
        .map_err(|e: Error| e.during(format!("provider {}", self.name)))
    }
}
