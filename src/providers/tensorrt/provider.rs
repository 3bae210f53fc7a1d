//! TensorRT as a provider: it runs regions, in the memory and the streams of the CUDA provider's GPU.

use super::NAME;
use super::keep::Compiler;
use super::library::Library;
use super::regions;
use crate::device::{Capture, Device, Memory, Stream, in_sequence};
use crate::error::Result;
use crate::network::dtype::DType;
use crate::network::op::TensorType;
use crate::network::{LayerId, Network};
use crate::plan::layout::{Layout, Operand};
use crate::plan::regions::Regions;
use crate::plan::{Call, Instance, Job, Kernel, Offer, Provider, Request, Settings};
use crate::providers::cuda::Cuda;
use std::collections::HashSet;
use std::sync::Arc;

/// TensorRT on one GPU.
pub struct TensorRt {
    compiler: Compiler,
}

impl TensorRt {
    /// The provider for a library and a GPU.
    pub fn new(library: Arc<Library>, gpu: Arc<Cuda>) -> Self {
        let device = gpu.device();
        let family = if library.is_rtx() { "TensorRT-RTX" } else { "TensorRT" };
        let signature = format!(
            "tensorrt {} {family} {} {} {}.{} {} SMs driver {}",
            env!("CARGO_PKG_VERSION"),
            library.version(),
            device.name,
            device.capability.0,
            device.capability.1,
            device.multiprocessors,
            device.driver_version
        );
        Self {
            compiler: Compiler::new(library, gpu, signature),
        }
    }

    fn gpu(&self) -> &Arc<Cuda> {
        &self.compiler.gpu
    }
}

impl Provider for TensorRt {
    fn name(&self) -> &'static str {
        NAME
    }

    fn conditions(&self, _settings: &Settings) -> Vec<(String, String)> {
        vec![("compiler".into(), self.compiler.signature.clone())]
    }

    fn device(&self) -> &dyn Device {
        Provider::device(&**self.gpu())
    }

    fn compute_dtype(&self, dtype: DType) -> DType {
        dtype
    }

    fn has_tf32(&self) -> bool {
        self.gpu().has_tf32()
    }

    fn candidates(&self, network: &Network, layer: LayerId, _settings: &Settings) -> Offer {
        Err(regions::refuse_alone(network, layer))
    }

    fn regions(&self, network: &Network, free: &HashSet<LayerId>, settings: &Settings) -> Option<Result<Regions>> {
        if free.is_empty() {
            return Some(Ok(Regions::default()));
        }
        if settings.deterministic {
            return Some(Ok(regions::refuse_to_repeat(network, free)));
        }
        let entered = self.gpu().device().enter();
        Some(entered.and_then(|_entered| regions::find(&self.compiler, network, free, settings)))
    }

    fn reorder(&self, from: Layout, to: Layout, ty: &TensorType) -> Arc<dyn Kernel> {
        self.gpu().reorder(from, to, ty)
    }

    fn transfer(&self) -> Option<Arc<dyn Kernel>> {
        self.gpu().transfer()
    }

    fn reorder_time(&self, bytes: f64) -> f64 {
        self.gpu().reorder_time(bytes)
    }

    /// Recorded where that goes, as it will run. A region's own activations leave no cache as it was between its runs.
    fn time(&self, instance: &mut Instance, request: &Request) -> Result<u64> {
        const REPEATS: usize = 5;
        /// A small number in each floating-point type; integers may be indices, and are 0.
        const PATTERN: u8 = 0x3c;
        let device = self.gpu().device();
        let stream = device.stream()?;
        let fill = |operand: &Operand| {
            let memory = device.allocate(operand.bytes())?;
            let byte = if operand.dtype.is_float() { PATTERN } else { 0 };
            device.fill(&memory, byte, &stream)?;
            Ok(memory)
        };
        let fill_all = |operands: &[Operand]| operands.iter().map(fill).collect::<Result<Vec<_>>>();
        let (inputs, outputs) = (fill_all(request.inputs)?, fill_all(request.outputs)?);
        let workspace = device.allocate(instance.workspace)?;
        let inputs: Vec<_> = inputs
            .iter()
            .map(|memory| (memory, memory.address().cast_const()))
            .collect();
        let outputs: Vec<_> = outputs.iter().map(|memory| (memory, memory.address())).collect();
        let (from, to) = (inputs.iter().map(|(_, at)| *at), outputs.iter().map(|(_, at)| *at));
        let (from, to): (Vec<_>, Vec<_>) = (from.collect(), to.collect());
        let capturable = instance.capturable;
        let mut launch = |stream: &dyn Stream| {
            instance.launch(&Call {
                inputs: &from,
                outputs: &to,
                workspace: workspace.address(),
                stream: stream.raw(),
            })
        };
        launch(&stream)?;
        stream.synchronize()?;
        let mut recording = match capturable {
            true => Some(stream.graph(&in_sequence(1), &mut |_, stream| launch(stream))?),
            false => None,
        };
        let best = stream.least_time(REPEATS, &mut || match &mut recording {
            Some(recording) => recording.launch(&stream),
            None => launch(&stream),
        })?;
        Ok(best as u64)
    }

    fn run(&self, threads: usize, job: Job) -> Result<()> {
        self.gpu().run(threads, job)
    }
}
