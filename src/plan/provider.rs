//! What a provider implements: who can run which layers, and as which kernels.

use crate::device::{Device, Space};
use crate::error::Result;
use crate::network::dim::Symbols;
use crate::network::dtype::DType;
use crate::network::op::TensorType;
use crate::network::{LayerId, Network, TensorId};
use crate::plan::kernel::{Form, Instance, Kernel, Request};
use crate::plan::layout::Layout;
use crate::plan::regions::{Regions, Watch};
use crate::plan::timing;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// A form of a kernel that must not be chosen: what it computes was found wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExcludedForm {
    /// The name of the provider.
    pub provider: String,
    /// The names of the layers that the kernel runs.
    pub layers: Vec<String>,
    /// The form.
    pub form: Form,
}

impl ExcludedForm {
    /// Whether it is this form of the kernel that runs these layers.
    pub fn is(&self, provider: &dyn Provider, network: &Network, layers: &[LayerId], form: &Form) -> bool {
        let names = layers.iter().map(|&layer| &*network[layer].name);
        self.form == *form && self.provider == provider.name() && names.eq(self.layers.iter().map(String::as_str))
    }
}

/// What the builder asks of a provider.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Threads of a CPU that one call runs on; at least 1.
    pub threads: usize,
    /// 0 (no timing, rules alone) to 5; `BuilderConfig` says what each means.
    pub optimization_level: u8,
    /// Whether builds must repeat, so that nothing may be timed by anybody.
    pub deterministic: bool,
    /// By provider, the names of ops or layers that it must not run.
    pub exclude: BTreeMap<String, Vec<String>>,
    /// Forms that must not be chosen.
    pub excluded_forms: Vec<ExcludedForm>,
    /// The ranges of shapes that calls come in; none: those of the network's symbols.
    pub profiles: Vec<Symbols>,
    /// Bytes of scratch memory that one kernel may use; `None`: what is free.
    pub workspace: Option<usize>,
    /// Callbacks for progress and for messages of compilers.
    pub watch: Watch,
}

impl Default for Settings {
    /// One thread, nothing is timed.
    fn default() -> Self {
        Self {
            threads: 1,
            optimization_level: 0,
            deterministic: false,
            exclude: BTreeMap::new(),
            excluded_forms: vec![],
            profiles: vec![],
            workspace: None,
            watch: Watch::default(),
        }
    }
}

/// Why a provider does not run a layer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Refusal {
    /// The provider.
    pub provider: String,
    /// The layer.
    pub layer: String,
    /// Why not.
    pub reason: String,
    /// What the user can do about it; empty if nothing.
    pub hint: String,
}

/// A way to run a convex set of layers as one kernel.
#[derive(Clone)]
pub struct Candidate {
    /// The kernel.
    pub kernel: Arc<dyn Kernel>,
    /// The layers that it runs, the one that was asked for among them.
    pub layers: Vec<LayerId>,
    /// The tensors that it reads; constants that the kernel keeps itself are left out.
    pub inputs: Vec<TensorId>,
    /// The tensors that it gives.
    pub outputs: Vec<TensorId>,
}

/// What a provider answers: candidates, or why it can run none.
pub type Offer = std::result::Result<Vec<Candidate>, Refusal>;

/// A job that a provider runs where its work belongs (its threads, its stream).
pub type Job<'a> = &'a mut (dyn FnMut() -> Result<()> + Send);

/// Something that can run layers: a processor, a GPU, a foreign compiler.
pub trait Provider: Send + Sync {
    /// Its name in options and reports.
    fn name(&self) -> &'static str;

    /// What timings depend on, by name: device, instruction sets, threads, versions of libraries.
    fn conditions(&self, settings: &Settings) -> Vec<(String, String)>;

    /// Its name and its conditions in one line, for the timing cache.
    fn signature(&self, settings: &Settings) -> String {
        let conditions = self.conditions(settings).into_iter();
        let all: Vec<_> = conditions.map(|(name, value)| format!("{name} {value}")).collect();
        format!("{} {}", self.name(), all.join(" "))
    }

    /// The device that its kernels run on, in whose memory their operands live.
    fn device(&self) -> &dyn Device;

    /// Where its operands live.
    fn space(&self) -> Space {
        self.device().space()
    }

    /// The narrowest dtype it computes `dtype` in: itself, or a wider one where it has no arithmetic for it.
    fn compute_dtype(&self, dtype: DType) -> DType;

    /// How many times float32's time its products take in a dtype that it computes in; `None` where it measures that of none.
    fn slowdown(&self, _dtype: DType) -> Option<f64> {
        None
    }

    /// Sets up what it sets up once a process, so that a build need not wait for it. What goes wrong is found again by a build.
    fn warm_up(&self) {}

    /// Whether it has kernels that round the operands of TF32-eligible products to TF32.
    fn has_tf32(&self) -> bool {
        false
    }

    /// Whether it has kernels that multiply integers of 8 bits.
    fn has_int8(&self) -> bool {
        false
    }

    /// Whether it has kernels that multiply float8_e4m3fn.
    fn has_fp8(&self) -> bool {
        false
    }

    /// Whether it has kernels for products of floats with weights that stay in few bits.
    fn has_packed_weights(&self) -> bool {
        false
    }

    /// The kernels that run this layer, fused with others where that pays; the last one must run it alone.
    ///
    /// # Errors
    /// The refusal, when it can't run the layer.
    fn candidates(&self, network: &Network, layer: LayerId, settings: &Settings) -> Offer;

    /// Kernels besides that no plan takes, since none was seen to win by them; conformance runs them.
    fn unplanned(&self, _network: &Network, _layer: LayerId) -> Vec<Candidate> {
        vec![]
    }

    /// What it makes of those of a network's layers that are `free`, where it runs many of them as one kernel; it is not asked
    /// for [`Provider::candidates`] then. `None`: it goes layer by layer. An error ends the build; what can't be had is refused.
    fn regions(&self, _network: &Network, _free: &HashSet<LayerId>, _settings: &Settings) -> Option<Result<Regions>> {
        None
    }

    /// A kernel that brings a tensor from one layout to another.
    fn reorder(&self, from: Layout, to: Layout, ty: &TensorType) -> Arc<dyn Kernel>;

    /// A kernel that copies between its space and the processor's memory, either way, or from another device of its kind; `None`
    /// where its space is the processor's memory.
    fn transfer(&self) -> Option<Arc<dyn Kernel>> {
        None
    }

    /// Nanoseconds of a reorder of so many bytes, about.
    fn reorder_time(&self, bytes: f64) -> f64 {
        /// Bytes that a processor moves in a nanosecond; what a reorder costs besides.
        const BANDWIDTH: f64 = 6.0;
        const LAUNCH: f64 = 1_500.0;
        LAUNCH + 2.0 * bytes / BANDWIDTH
    }

    /// Nanoseconds of a run of an instance, as it will run.
    ///
    /// # Errors
    /// If it fails.
    fn time(&self, instance: &mut Instance, request: &Request) -> Result<u64> {
        timing::repeat(instance, request)
    }

    /// Runs a job on so many threads (1: on the caller's own).
    ///
    /// # Errors
    /// What the job returns, or that it panicked.
    fn run(&self, threads: usize, job: Job) -> Result<()>;
}
