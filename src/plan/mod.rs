//! From a Network to a plan: who runs what, in which layout, at which address.
//!
//! The traits here are what a provider implements; the planner names no provider.

pub mod arena;
pub mod boundary;
pub mod choose;
pub mod cover;
mod effort;
mod emit;
mod fixed;
pub mod ground;
mod hazards;
pub mod instance;
pub mod layout;
mod linking;
pub mod order;
pub mod place;
mod prepare;
pub mod program;
pub mod queues;
pub mod regions;
mod repeat;
mod reselect;
mod rivals;
mod stretch;
mod tape;
pub mod timing;
mod tuning;

use crate::error::Result;
use crate::network::array::Buffer;
use crate::network::dim::{Binding, Symbols};
use crate::network::dtype::DType;
use crate::network::op::TensorType;
use crate::network::{LayerId, Network, TensorId};
use layout::{Layout, Operand, Space};
use regions::{Regions, Watch};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::ffi::c_void;
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
    /// Who is told of each step of the build, and what compilers of others do.
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

/// One way to call a kernel: the layout of each operand, and which of the kernel's algorithms.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Form {
    /// The number of the algorithm; ties in time go to the lower one.
    pub tactic: u32,
    /// The layout of each input.
    pub inputs: Vec<Layout>,
    /// The layout of each output.
    pub outputs: Vec<Layout>,
}

/// How the output of a kernel may lie in the memory of its inputs, or the inputs in that of its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Alias {
    /// It computes something.
    None,
    /// The bytes of output 0 are those of input 0 (both in the plain layout).
    Reshape,
    /// Output 0 is the inputs, one after another along this axis.
    Concat(usize),
    /// The outputs are input 0 from this element along this axis on, one after another.
    Split(usize, crate::network::dim::Dim),
}

/// What a kernel is instantiated for.
pub struct Request<'a> {
    /// The chosen form.
    pub form: &'a Form,
    /// The inputs.
    pub inputs: &'a [Operand],
    /// The outputs.
    pub outputs: &'a [Operand],
    /// The value of every symbol.
    pub binding: &'a Binding,
    /// Threads that will run it.
    pub threads: usize,
}

/// What runs layers: immutable, shared by all contexts; keeps its packed constants.
pub trait Kernel: Send + Sync {
    /// For reports: `conv+add+relu`.
    fn name(&self) -> String;

    /// Everything but shapes, dtypes and layouts of the operands that its speed depends on; for the timing cache.
    fn identity(&self) -> String;

    /// The forms in which it can be called, the first being the best guess without timing.
    fn forms(&self) -> Vec<Form>;

    /// Whether it only moves data, so that the planner may save it.
    fn alias(&self) -> Alias {
        Alias::None
    }

    /// Pairs of input and output that may be the same memory.
    fn in_place(&self) -> Vec<(usize, usize)> {
        vec![]
    }

    /// Whether (inputs, outputs) may be slices along the channels of larger tensors in this form.
    fn takes_slices(&self, _form: &Form) -> (bool, bool) {
        (false, false)
    }

    /// Whether the build may run it to time it. The code of others runs in calls alone.
    fn is_timed(&self) -> bool {
        true
    }

    /// Whether a compiler that is not ours made it: then it serves the shapes of the profiles alone, and what it computes is
    /// compared with kernels of ours.
    fn is_foreign(&self) -> bool {
        false
    }

    /// What the addresses of its operands must be multiples of, where those of their elements are not enough.
    fn alignment(&self) -> usize {
        1
    }

    /// What its compiler says of what is in it, as JSON.
    fn details(&self) -> Option<String> {
        None
    }

    /// Told before the first kernel is timed: one of its forms at the shapes to optimise for, and whether that will be timed.
    /// What takes long to get ready for that may begin, for all kernels at once.
    fn expect(&self, _request: &Request, _timed: bool) {}

    /// Prepares it for concrete shapes.
    ///
    /// # Errors
    /// If the form can't serve these shapes.
    fn instantiate(&self, request: &Request) -> Result<Box<dyn Instance>>;
}

/// A kernel at concrete shapes, owned by one context.
pub trait Instance: Send {
    /// Makes what was put off until all instances of a program are there; asked before anything else.
    ///
    /// # Errors
    /// If that fails, so that nobody keeps an instance that can't run.
    fn ready(&self) -> Result<()> {
        Ok(())
    }

    /// Bytes of scratch memory that a run needs.
    fn workspace(&self) -> usize {
        0
    }

    /// Which implementation it is, for reports.
    fn implementation(&self) -> String;

    /// Whether it is loops that are right but not fast, to be taken where nothing else runs.
    fn naive(&self) -> bool {
        false
    }

    /// Whether it is what its library falls back on where nothing better fits. It may have won at the shapes at which it was
    /// timed; far from them forms are chosen again.
    fn fallback(&self) -> bool {
        false
    }

    /// Whether its queue may record it: it does nothing but put work there.
    fn capturable(&self) -> bool {
        true
    }

    /// How many of its inputs, from the first one on, it reads only when what is before it in its queue has ended.
    fn waits_for(&self) -> usize {
        usize::MAX
    }

    /// Whether what is behind it in its queue may begin before all that it gives is there, though not before what is in front of
    /// it has ended.
    fn gives_way(&self) -> bool {
        true
    }

    /// Runs it.
    ///
    /// # Errors
    /// If a library or device failed.
    fn run(&mut self, call: &Call) -> Result<()>;

    /// Asked when what it put into its queue is done: what the device found wrong with the data.
    ///
    /// # Errors
    /// That: an index out of range.
    fn finished(&mut self) -> Result<()> {
        Ok(())
    }
}

/// The addresses of one run, in the provider's space.
pub struct Call<'a> {
    /// One per input.
    pub inputs: &'a [*const u8],
    /// One per output.
    pub outputs: &'a [*mut u8],
    /// As many bytes as the instance asked for.
    pub workspace: *mut u8,
    /// The queue that the work goes into, as [`Queue::raw`] names it.
    pub queue: *mut c_void,
}

/// A job that a provider runs where its work belongs (its threads, its stream).
pub type Job<'a> = &'a mut (dyn FnMut() -> Result<()> + Send);

/// Memory that somebody owns.
pub trait Memory: Send + Sync {
    /// The address of the first byte, in the space that it was allocated in.
    fn address(&self) -> *mut u8;

    /// The number of bytes.
    fn bytes(&self) -> usize;
}

impl Memory for Buffer {
    fn address(&self) -> *mut u8 {
        self.as_ptr()
    }

    fn bytes(&self) -> usize {
        self.len()
    }
}

/// Where the work of one context goes: a stream of a GPU. On a processor a run is over when it returns.
pub trait Queue: Send {
    /// What kernels call it.
    fn raw(&self) -> *mut c_void {
        std::ptr::null_mut()
    }

    /// Waits until all that went in is done.
    ///
    /// # Errors
    /// If some of it failed.
    fn finish(&self) -> Result<()> {
        Ok(())
    }

    /// Whether its owner records what goes into it, so that nobody may wait for it or replay a recording into it.
    fn is_recording(&self) -> bool {
        false
    }

    /// What records work in place of running it, if the queue can.
    fn recorder(&self) -> Option<&dyn Recorder> {
        None
    }
}

/// A point in a queue.
pub trait Fence: Send {
    /// Moves it to where the queue is now.
    ///
    /// # Errors
    /// If the device refuses.
    fn set(&self, _queue: &dyn Queue) -> Result<()> {
        Ok(())
    }

    /// Lets what goes into a queue from now on wait for it.
    ///
    /// # Errors
    /// If the device refuses.
    fn hold(&self, _queue: &dyn Queue) -> Result<()> {
        Ok(())
    }

    /// Waits for it.
    ///
    /// # Errors
    /// If some of what went before failed.
    fn finish(&self) -> Result<()> {
        Ok(())
    }
}

/// A queue that can record.
pub trait Recorder {
    /// Records what some jobs put into a queue that each is given. `after` has a list for each: the numbers of the jobs
    /// before it that it has to wait for.
    ///
    /// # Errors
    /// What a job returns, or if it can't be recorded.
    fn record(&self, after: &[Vec<usize>], job: NumberedJob) -> Result<Box<dyn Recording>>;
}

/// Puts the job of a number into a queue.
pub type NumberedJob<'a> = &'a mut dyn FnMut(usize, &dyn Queue) -> Result<()>;

/// The queue of a processor, and the points in it.
pub struct AtOnce;

impl Queue for AtOnce {}

impl Fence for AtOnce {}

/// Work that was recorded, at fixed addresses.
pub trait Recording: Send {
    /// Puts it into a queue of the provider that recorded it.
    ///
    /// # Errors
    /// If the device refuses.
    fn replay(&mut self, queue: &dyn Queue) -> Result<()>;
}

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

    /// Where its operands live.
    fn space(&self) -> Space;

    /// The narrowest dtype it computes `dtype` in: itself, or a wider one where it has no arithmetic for it.
    fn compute_dtype(&self, dtype: DType) -> DType;

    /// Sets up what it sets up once a process, so that a build need not wait for it. What goes wrong is found again by a build.
    fn warm_up(&self) {}

    /// Whether products of float32 that have leave to may round what they multiply to tf32 there.
    fn has_tf32(&self) -> bool {
        false
    }

    /// The kernels that run this layer, fused with others where that pays; the last one must run it alone.
    ///
    /// # Errors
    /// The refusal, when it can't run the layer.
    fn candidates(&self, network: &Network, layer: LayerId, settings: &Settings) -> Offer;

    /// What it makes of those of a network's layers that are `free`, where it runs many of them as one kernel; it is not asked
    /// for [`Provider::candidates`] then. `None`: it goes layer by layer. An error ends the build; what can't be had is refused.
    fn regions(&self, _network: &Network, _free: &HashSet<LayerId>, _settings: &Settings) -> Option<Result<Regions>> {
        None
    }

    /// A kernel that brings a tensor from one layout to another.
    fn reorder(&self, from: Layout, to: Layout, ty: &TensorType) -> Arc<dyn Kernel>;

    /// A kernel that copies between its space and the processor's memory, either way; `None` where they are the same.
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

    /// Memory in its space.
    ///
    /// # Errors
    /// If there is not so much.
    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>> {
        Ok(Box::new(Buffer::try_zeroed(bytes)?))
    }

    /// A queue for one context.
    ///
    /// # Errors
    /// If the device has none left.
    fn queue(&self) -> Result<Box<dyn Queue>> {
        Ok(Box::new(AtOnce))
    }

    /// The caller's own queue, as he names it, for one call.
    ///
    /// # Safety
    /// It must be a queue of this device, and live until the call has returned.
    unsafe fn adopt(&self, _raw: *mut c_void) -> Box<dyn Queue> {
        Box::new(AtOnce)
    }

    /// Lets what goes into a queue from now on wait for what the device's default queue holds: the arrays of a caller who
    /// names no queue may be written there.
    ///
    /// # Errors
    /// If the device refuses.
    fn follow_default(&self, _queue: &dyn Queue) -> Result<()> {
        Ok(())
    }

    /// Lets what goes into a queue from now on begin when what is there has ended, and not a moment sooner.
    ///
    /// # Errors
    /// If the device refuses.
    fn part(&self, _queue: &dyn Queue) -> Result<()> {
        Ok(())
    }

    /// A point in queues.
    ///
    /// # Errors
    /// If the device has none left.
    fn fence(&self) -> Result<Box<dyn Fence>> {
        Ok(Box::new(AtOnce))
    }

    /// A number that the allocation around an address has as long as it lives, and that no other one ever gets; `None` where
    /// nobody can tell.
    fn allocation_at(&self, _address: *const u8) -> Option<u64> {
        None
    }

    /// Whether its kernels and copies may use an address of the caller's, who says that it lies in this memory.
    fn reaches(&self, _address: *const u8) -> bool {
        true
    }

    /// Memory of the processor that its copies reach fastest.
    ///
    /// # Errors
    /// If there is not so much.
    fn allocate_near(&self, bytes: usize) -> Result<Box<dyn Memory>> {
        Ok(Box::new(Buffer::try_zeroed(bytes)?))
    }

    /// Nanoseconds of a run of an instance, as it will run.
    ///
    /// # Errors
    /// If it fails.
    fn time(&self, instance: &mut dyn Instance, request: &Request) -> Result<u64> {
        timing::repeat(instance, request)
    }

    /// Runs a job on so many threads (1: on the caller's own).
    ///
    /// # Errors
    /// What the job returns, or that it panicked.
    fn run(&self, threads: usize, job: Job) -> Result<()>;
}
