//! A region as a kernel: a plan in the library's hands.

use super::contexts::Contexts;
use super::runtime::{Context, Engine, IoTensor};
use crate::device::Stream;
use crate::error::{Error, Result};
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Form, Instance, Kernel, Prepared, Request};
use crate::providers::common::scope::uniform_forms;
use crate::providers::cuda::Cuda;
use std::sync::Arc;

/// What TensorRT asks of addresses.
const ALIGNMENT: usize = 256;

/// A plan that runs.
pub struct Region {
    /// Taken when it is dropped, while its GPU is the current one.
    engine: Option<Arc<Engine>>,
    /// Its GPU.
    pub gpu: Arc<Cuda>,
    key: String,
    /// The names of its inputs.
    pub inputs: Vec<String>,
    /// The names of its outputs.
    pub outputs: Vec<String>,
    layers: usize,
}

impl Region {
    /// A plan of so many layers, with the names of its inputs and outputs.
    ///
    /// # Errors
    /// If the plan has others, or wants some in the processor's memory.
    pub fn new(
        engine: Arc<Engine>,
        gpu: Arc<Cuda>,
        key: String,
        (inputs, outputs): (Vec<String>, Vec<String>),
        layers: usize,
    ) -> Result<Self> {
        let named = inputs
            .iter()
            .map(|name| (name, true))
            .chain(outputs.iter().map(|name| (name, false)));
        for (name, is_input) in named {
            check(engine.tensor(name)?, is_input)?;
        }
        if engine.tensors().len() != inputs.len() + outputs.len() {
            return Err(Error::device("the plan has other inputs and outputs than the region")
                .expected([&inputs[..], &outputs[..]].concat().join(", "))
                .got(
                    engine
                        .tensors()
                        .iter()
                        .map(|t| t.name.as_str())
                        .collect::<Vec<_>>()
                        .join(", "),
                ));
        }
        Ok(Self {
            engine: Some(engine),
            gpu,
            key,
            inputs,
            outputs,
            layers,
        })
    }

    /// The plan.
    ///
    /// # Errors
    /// Never while it lives.
    pub fn engine(&self) -> Result<&Arc<Engine>> {
        self.engine
            .as_ref()
            .ok_or_else(|| Error::internal("a region without its plan"))
    }

    /// The smallest profile that holds these shapes.
    fn profile(&self, inputs: &[Operand]) -> Result<usize> {
        let engine = self.engine()?;
        let named = || self.inputs.iter().zip(inputs);
        let spread = |profile: usize| -> Option<i64> {
            named()
                .map(|(name, operand)| {
                    let tensor = engine.tensor(name).ok()?;
                    let Some(bounds) = tensor.profiles.get(profile).filter(|_| tensor.shape.contains(&-1)) else {
                        return Some(0);
                    };
                    let dims = operand.shape.iter().zip(bounds.min.iter().zip(&bounds.max));
                    dims.map(|(&dim, (&min, &max))| (min..=max).contains(&(dim as i64)).then_some(max - min))
                        .sum()
                })
                .sum()
        };
        let fitting = (0..engine.profiles()).filter_map(|profile| Some((spread(profile)?, profile)));
        fitting.min().map(|(_, profile)| profile).ok_or_else(|| {
            let shapes: Vec<_> = named()
                .map(|(name, operand)| format!("{name} {:?}", operand.shape))
                .collect();
            Error::shape("the shapes lie outside of every profile that TensorRT compiled").got(shapes.join(", "))
        })
    }

    /// A context at these shapes of a profile.
    ///
    /// # Errors
    /// If TensorRT gives none, does not take the shapes, or makes others of them than the network.
    pub fn context(&self, profile: usize, inputs: &[Operand], outputs: &[Operand]) -> Result<Context> {
        let mut context = Context::new(self.engine()?)?;
        if profile != 0 {
            let stream = self.gpu.device().stream()?;
            // SAFETY: the stream is one of this GPU, whose context is current.
            unsafe { context.set_profile(profile, stream.raw()) }?;
            stream.synchronize()?;
        }
        for (name, operand) in self.inputs.iter().zip(inputs) {
            context.set_shape(name, &dims(operand))?;
        }
        let missing = context.infer()?;
        if !missing.is_empty() {
            return Err(Error::device("TensorRT can't tell the shapes of a region").got(missing.join(", ")));
        }
        for (name, operand) in self.outputs.iter().zip(outputs) {
            let (found, want) = (context.shape(name)?, dims(operand));
            if found != want {
                return Err(Error::device("TensorRT gives another shape than the network")
                    .tensor(name)
                    .expected(format!("{want:?}"))
                    .got(format!("{found:?}")));
            }
        }
        Ok(context)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let _entered = self.gpu.device().enter();
        self.engine = None;
    }
}

fn dims(operand: &Operand) -> Vec<i64> {
    operand.shape.iter().map(|&dim| dim as i64).collect()
}

fn check(tensor: &IoTensor, is_input: bool) -> Result<()> {
    if tensor.is_input != is_input {
        return Err(Error::device("the plan has inputs for outputs").tensor(&tensor.name));
    }
    match tensor.on_host {
        true => Err(Error::unsupported("TensorRT wants it in the processor's memory").tensor(&tensor.name)),
        false => Ok(()),
    }
}

/// A region as the planner sees it.
pub struct RegionKernel(pub Arc<Region>);

impl Kernel for RegionKernel {
    fn name(&self) -> String {
        format!("region of {} layers", self.0.layers)
    }

    fn identity(&self) -> String {
        self.0.key.clone()
    }

    fn forms(&self) -> Vec<Form> {
        uniform_forms(&[Layout::Plain], self.0.inputs.len(), self.0.outputs.len())
    }

    fn is_foreign(&self) -> bool {
        true
    }

    fn alignment(&self) -> usize {
        ALIGNMENT
    }

    fn details(&self) -> Option<String> {
        let _entered = self.0.gpu.device().enter().ok()?;
        self.0.engine().ok()?.layers().ok()
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let region = self.0.clone();
        let profile = region.profile(request.inputs)?;
        let (inputs, outputs) = (request.inputs.to_vec(), request.outputs.to_vec());
        Ok(Prepared::deferred(vec![], move || {
            instance(region, profile, inputs, outputs)
        }))
    }
}

fn instance(region: Arc<Region>, profile: usize, inputs: Vec<Operand>, outputs: Vec<Operand>) -> Result<Instance> {
    let mut first = region.context(profile, &inputs, &outputs)?;
    let stream = region.gpu.device().stream()?;
    let how = format!("TensorRT's plan, profile {profile} of {}", region.engine()?.profiles());
    let (memory, capturable) = (first.memory()?, first.capturable(stream.raw()));
    let contexts = Contexts {
        memory,
        cold: Some(first),
        warm: vec![],
        spent: vec![],
        ran: false,
        profile,
        inputs,
        outputs,
        region,
    };
    let instance = Instance::new(how, contexts).with_workspace(memory);
    // What its kernels wait for is not known.
    Ok(instance.with_capturable(capturable).with_wait_inputs(0))
}
