//! The CUDA provider: NVIDIA's libraries and kernels of our own, compiled at run time, for GPUs from compute capability
//! 7.5 on.

mod compile;
pub mod device;
mod kernels;
pub mod library;

use crate::device::{Capture, Memory, Stream, in_sequence};
use crate::error::Result;
use crate::network::dtype::DType;
use crate::network::op::TensorType;
use crate::network::plugin::{Plugin, Prepared, Shaped, blame};
use crate::network::{LayerId, Network};
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Call, Candidate, Instance, Job, Kernel, Offer, Provider, Refusal, Request, Settings};
use crate::providers::common::scope::{Orders, Scope};
use device::Device;
use kernels::transfer::Transfer;
use kernels::{Gpu, Reorder};
use library::cublaslt::cublaslt;
use library::cudnn::cudnn;
use library::nvrtc::nvrtc;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// One GPU.
pub struct Cuda {
    gpu: Arc<Gpu>,
    orders: Orders,
}

impl Cuda {
    /// The provider for a GPU.
    ///
    /// # Errors
    /// If there is no driver, no such GPU, or one of the libraries is missing; says which.
    fn open(ordinal: u32) -> Result<Self> {
        let device = Device::open(ordinal)?;
        nvrtc()?;
        cublaslt()?;
        cudnn()?;
        Ok(Self {
            gpu: Arc::new(Gpu::new(device)),
            orders: Orders::default(),
        })
    }

    fn scope<'a>(&'a self, network: &'a Network, layer: LayerId) -> Scope<'a> {
        Scope {
            network,
            layer,
            orders: &self.orders,
        }
    }

    /// The provider for a GPU, opened once a process: handles and compiled kernels are kept.
    ///
    /// # Errors
    /// As [`Cuda::open`].
    pub fn shared(ordinal: u32) -> Result<Arc<Self>> {
        static OPEN: Mutex<BTreeMap<u32, Arc<Cuda>>> = Mutex::new(BTreeMap::new());
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cuda) = open.get(&ordinal) {
            return Ok(cuda.clone());
        }
        let cuda = Arc::new(Self::open(ordinal)?);
        open.insert(ordinal, cuda.clone());
        Ok(cuda)
    }

    /// A GPU's memory, streams and copies alone, for those who bring kernels of their own.
    ///
    /// # Errors
    /// If there is no driver, or no such GPU.
    pub fn without_kernels(ordinal: u32) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            gpu: Arc::new(Gpu::new(Device::open(ordinal)?)),
            orders: Orders::default(),
        }))
    }

    /// The GPU.
    pub fn device(&self) -> &Arc<Device> {
        &self.gpu.device
    }

    /// A plugin at concrete shapes on this GPU, for those who run it without an engine of ours.
    ///
    /// # Errors
    /// If it does not run there; names the plugin.
    pub fn prepare_plugin(
        &self,
        plugin: &dyn Plugin,
        inputs: &[Shaped],
        outputs: &[Shaped],
    ) -> Result<Box<dyn Prepared>> {
        let _entered = self.gpu.device.enter()?;
        kernels::plugin::prepare(&self.gpu, plugin, inputs, outputs).map_err(blame(&plugin.identity()))
    }

    /// What is known of the GPU and its libraries.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn facts(&self) -> Result<Facts> {
        let device = &self.gpu.device;
        let (free_memory, _) = device.memory()?;
        Ok(Facts {
            name: device.name.clone(),
            capability: device.capability,
            total_memory: device.total_memory,
            free_memory,
            multiprocessors: device.multiprocessors,
            driver_version: format!("{}.{}", device.driver_version / 1000, device.driver_version % 1000 / 10),
            libraries: self.gpu.libraries(),
        })
    }

    /// Addresses of operands that lie one after another from `start` on.
    fn lay(start: *mut u8, operands: &[Operand], at: &mut usize) -> Vec<*mut u8> {
        let one = |operand: &Operand| {
            let address = start.wrapping_add(*at);
            *at += operand.reach().next_multiple_of(ALIGNMENT);
            address
        };
        operands.iter().map(one).collect()
    }
}

/// What is known of a GPU.
pub struct Facts {
    /// Its name.
    pub name: String,
    /// Its compute capability: major, minor.
    pub capability: (i32, i32),
    /// Bytes of its memory.
    pub total_memory: usize,
    /// Bytes that are free now.
    pub free_memory: usize,
    /// Number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// The newest CUDA that the driver knows.
    pub driver_version: String,
    /// The versions of NVIDIA's libraries that were found.
    pub libraries: BTreeMap<String, String>,
}

/// What the libraries ask of addresses.
const ALIGNMENT: usize = 256;
/// A pattern that is a small number in each floating-point type: products of zeros would run faster than those of data.
const PATTERN: u8 = 0x3c;

impl Provider for Cuda {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn conditions(&self, _settings: &Settings) -> Vec<(String, String)> {
        let device = &self.gpu.device;
        // Kernels that are generated come with the version, those in files with their digest.
        let mut found = vec![
            ("neurenix".into(), env!("CARGO_PKG_VERSION").into()),
            ("kernels".into(), env!("NEURENIX_KERNELS").into()),
            ("GPU".into(), device.name.clone()),
            ("SMs".into(), device.multiprocessors.to_string()),
            ("driver".into(), device.driver_version.to_string()),
        ];
        found.extend(self.gpu.libraries());
        found
    }

    fn device(&self) -> &dyn crate::device::Device {
        &*self.gpu
    }

    fn compute_dtype(&self, dtype: DType) -> DType {
        dtype
    }

    fn warm_up(&self) {
        self.gpu.warm_up();
    }

    fn has_tf32(&self) -> bool {
        self.gpu.has_tf32()
    }

    fn has_int8(&self) -> bool {
        self.gpu.has_int8()
    }

    fn has_fp8(&self) -> bool {
        self.gpu.has_fp8()
    }

    fn has_packed_weights(&self) -> bool {
        self.gpu.has_packed_weights()
    }

    fn candidates(&self, network: &Network, layer: LayerId, _settings: &Settings) -> Offer {
        kernels::candidates(&self.scope(network, layer), &self.gpu).map_err(|why| Refusal {
            provider: self.name().into(),
            layer: network[layer].name.clone(),
            reason: why.reason,
            hint: why.hint.into(),
        })
    }

    fn unplanned(&self, network: &Network, layer: LayerId) -> Vec<Candidate> {
        kernels::unplanned(&self.scope(network, layer), &self.gpu)
    }

    fn reorder(&self, from: Layout, to: Layout, ty: &TensorType) -> Arc<dyn Kernel> {
        Arc::new(Reorder {
            from,
            to,
            bitcast: from.is_bitcast(to, &ty.shape),
            gpu: self.gpu.clone(),
        })
    }

    fn transfer(&self) -> Option<Arc<dyn Kernel>> {
        Some(Arc::new(Transfer { gpu: self.gpu.clone() }))
    }

    fn reorder_time(&self, bytes: f64) -> f64 {
        /// Bytes that memory moves in a nanosecond; what a kernel costs in a graph besides.
        const BANDWIDTH: f64 = 2_000.0;
        const LAUNCH: f64 = 1_500.0;
        LAUNCH + 2.0 * bytes / BANDWIDTH
    }

    /// In a graph, as it will run: launched one by one, the gaps between launches would hide the differences. What takes so long
    /// that they hide nothing is launched without one: engines of cuDNN that launch a kernel for each group make graphs which the
    /// driver takes seconds to instantiate. The operands of neighbouring launches differ, so that no cache holds them.
    fn time(&self, instance: &mut Instance, request: &Request) -> Result<u64> {
        const MOST_SETS: usize = 16;
        const LAUNCHES: usize = 16;
        const REPEATS: usize = 3;
        /// Nanoseconds beside which a gap is nothing, and how often what takes longer is launched.
        const LONG: f64 = 200_000.0;
        const LONG_LAUNCHES: usize = 4;
        let all = || request.inputs.iter().chain(request.outputs);
        let set: usize = all().map(|operand| operand.reach().next_multiple_of(ALIGNMENT)).sum();
        let sets = (2 * self.gpu.device.l2_bytes / set.max(1) + 1).min(MOST_SETS);
        let memory = self.gpu.device.allocate(set * sets)?;
        let workspace = self.gpu.device.allocate(instance.workspace)?;
        let stream = self.gpu.device.stream()?;
        self.gpu.device.fill(&memory, PATTERN, &stream)?;
        let mut launch = |number: usize, stream: &dyn Stream| {
            let mut at = number % sets * set;
            let inputs = Self::lay(memory.address(), request.inputs, &mut at);
            let outputs = Self::lay(memory.address(), request.outputs, &mut at);
            instance.launch(&Call {
                inputs: &inputs.into_iter().map(<*mut u8>::cast_const).collect::<Vec<_>>(),
                outputs: &outputs,
                workspace: workspace.address(),
                stream: stream.raw(),
            })
        };
        launch(0, &stream)?;
        stream.synchronize()?;
        let once = stream.nanoseconds(&mut || launch(1, &stream))?;
        if once > LONG {
            let mut in_turn = || (0..LONG_LAUNCHES).try_for_each(|number| launch(number, &stream));
            return Ok((stream.least_time(REPEATS, &mut in_turn)? / LONG_LAUNCHES as f64) as u64);
        }
        let mut graph = stream.graph(&in_sequence(LAUNCHES), &mut launch)?;
        let best = stream.least_time(REPEATS, &mut || graph.launch(&stream))?;
        Ok((best / LAUNCHES as f64) as u64)
    }

    fn run(&self, _threads: usize, job: Job) -> Result<()> {
        let _entered = self.gpu.device.enter()?;
        job().map_err(|error| self.gpu.device.blame(error))
    }
}
