//! What runs layers: kernels, the forms in which they can be called, and what they are at concrete shapes.

use crate::error::Result;
use crate::network::dim::{Binding, Dim};
use crate::network::dtype::DType;
use crate::plan::build_jobs::BuildJob;
use crate::plan::layout::{Layout, Operand};
use crate::plan::tactic::Tactic;
use serde::{Deserialize, Serialize};
use std::ffi::c_void;

/// One way to call a kernel: the layout of each operand, and which of the kernel's algorithms.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Form {
    /// The algorithm; ties in time go to the form that comes first.
    pub tactic: Tactic,
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
    /// So, in layouts that undo a Transpose: along axis i of the output lies this axis of the input.
    Bitcast(Vec<usize>),
    /// Output 0 is the inputs, one after another along this axis.
    Concat(usize),
    /// The outputs are input 0 from this element along this axis on, one after another.
    Split(usize, Dim),
}

impl Alias {
    /// That of a Transpose by these axes: the layouts of its operands may undo it.
    pub fn of_transpose(perm: &[usize], form: &Form) -> Self {
        let [from, to] = [form.inputs[0], form.outputs[0]].map(|layout| layout.order(perm.len()));
        let moved = to.map(|to| to.into_iter().map(|axis| perm[axis]).collect::<Vec<_>>());
        if moved.is_some() && moved == from {
            Alias::Bitcast(perm.to_vec())
        } else {
            Alias::None
        }
    }
}

/// What a kernel is prepared for.
pub struct Request<'a> {
    /// The chosen form.
    pub form: &'a Form,
    /// The inputs.
    pub inputs: &'a [Operand],
    /// The outputs.
    pub outputs: &'a [Operand],
    /// The value of every symbol.
    pub binding: &'a Binding,
    /// That at the shapes to optimise for.
    pub opt: &'a Binding,
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

    /// Whether it only moves data in this form, so that the planner may save it.
    fn alias(&self, _form: &Form) -> Alias {
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

    /// Whether slices may take it much longer than dense operands, so that both are timed.
    fn times_slices(&self, _form: &Form) -> bool {
        false
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

    /// What its products are of, where that has 8 bits, whatever its layers say: int8, or a float.
    fn products_of_8_bits(&self) -> Option<DType> {
        None
    }

    /// What the addresses of its operands must be multiples of, where those of their elements are not enough.
    fn alignment(&self) -> usize {
        1
    }

    /// What its compiler says of what is in it, as JSON.
    fn details(&self) -> Option<String> {
        None
    }

    /// What it needs at concrete shapes. What takes long (compilations, plans that a library compiles) is left to jobs.
    ///
    /// # Errors
    /// If the form can't serve these shapes.
    fn prepare(&self, request: &Request) -> Result<Prepared>;
}

/// How well an implementation serves the shapes that it was prepared for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// As well as any.
    Specialised,
    /// The fallback of its library for shapes that no specialised implementation takes. It may be the fastest at the shapes at
    /// which it was timed; far from these, forms are chosen again.
    LibraryFallback,
    /// A reference implementation: correct but slow, never timed, and chosen only where no other form runs.
    Reference,
}

/// A kernel at concrete shapes, before what it needs was built.
pub struct Prepared {
    /// How well it serves the shapes.
    pub tier: Tier,
    /// What is built before it is finished, with the jobs of others.
    pub jobs: Vec<BuildJob>,
    finish: Finish,
}

enum Finish {
    Ready(Instance),
    Deferred(Box<dyn FnOnce() -> Result<Instance> + Send>),
}

impl Prepared {
    /// What is ready: an instance of this implementation, without workspace, that may be captured.
    pub fn new(implementation: impl Into<String>, launcher: impl Launcher + 'static) -> Self {
        Instance::new(implementation, launcher).into()
    }

    /// What `finish` makes when the jobs have run. It takes what they left in a cache, and builds itself what is not there: jobs
    /// whose results nobody shares need not have run.
    pub fn deferred(jobs: Vec<BuildJob>, finish: impl FnOnce() -> Result<Instance> + Send + 'static) -> Self {
        Self {
            tier: Tier::Specialised,
            jobs,
            finish: Finish::Deferred(Box::new(finish)),
        }
    }

    /// The same of another tier.
    pub fn with_tier(self, tier: Tier) -> Self {
        Self { tier, ..self }
    }

    /// The same with another instance in place of what comes of it.
    pub fn map(self, other: impl FnOnce(Result<Instance>) -> Result<Instance> + Send + 'static) -> Self {
        let Self { tier, jobs, finish } = self;
        Self::deferred(jobs, move || other(finish.call())).with_tier(tier)
    }

    /// Whether nothing is left to be made.
    pub fn is_ready(&self) -> bool {
        matches!(self.finish, Finish::Ready(_))
    }

    /// The instance, made where its provider wants it made.
    ///
    /// # Errors
    /// If a compiler, a library or a device failed.
    pub fn finish(self) -> Result<Instance> {
        self.finish.call()
    }
}

impl Finish {
    fn call(self) -> Result<Instance> {
        match self {
            Self::Ready(instance) => Ok(instance),
            Self::Deferred(make) => make(),
        }
    }
}

impl From<Instance> for Prepared {
    fn from(instance: Instance) -> Self {
        Self {
            tier: Tier::Specialised,
            jobs: vec![],
            finish: Finish::Ready(instance),
        }
    }
}

/// How an instance takes part in programmatic dependent launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pdl {
    /// How many of its inputs, from the first on, it reads only behind its wait (`griddepcontrol.wait`); the others may be read
    /// before its predecessor completes.
    pub wait_inputs: usize,
    /// Whether it may trigger dependent launch before its writes are visible; never before its predecessor completes.
    pub triggers: bool,
}

impl Default for Pdl {
    /// It waits before it reads anything, and may trigger early.
    fn default() -> Self {
        Self {
            wait_inputs: usize::MAX,
            triggers: true,
        }
    }
}

/// A kernel at concrete shapes that is ready to be launched; owned by one context.
pub struct Instance {
    /// Which implementation it is, for reports.
    pub implementation: String,
    /// Bytes of scratch memory that a launch needs.
    pub workspace: usize,
    /// Whether its stream may record it: it does nothing but put work there.
    pub capturable: bool,
    /// Its part in programmatic dependent launch.
    pub pdl: Pdl,
    launcher: Box<dyn Launcher>,
}

impl Instance {
    /// An instance without workspace, that may be captured.
    pub fn new(implementation: impl Into<String>, launcher: impl Launcher + 'static) -> Self {
        Self {
            implementation: implementation.into(),
            workspace: 0,
            capturable: true,
            pdl: Pdl::default(),
            launcher: Box::new(launcher),
        }
    }

    /// The same with so many bytes of scratch memory.
    pub fn with_workspace(self, workspace: usize) -> Self {
        Self { workspace, ..self }
    }

    /// The same, which its stream may not record unless `capturable`.
    pub fn with_capturable(self, capturable: bool) -> Self {
        Self { capturable, ..self }
    }

    /// The same, of whose inputs only so many are read behind its wait.
    pub fn with_wait_inputs(mut self, wait_inputs: usize) -> Self {
        self.pdl.wait_inputs = wait_inputs;
        self
    }

    /// Launches it.
    ///
    /// # Errors
    /// If a library or device failed.
    pub fn launch(&mut self, call: &Call) -> Result<()> {
        self.launcher.launch(call)
    }

    /// What the device found wrong with the data, asked when what it put into its stream is done.
    ///
    /// # Errors
    /// That: an index out of range.
    pub fn finished(&mut self) -> Result<()> {
        self.launcher.finished()
    }
}

/// What an instance does; a closure may.
pub trait Launcher: Send {
    /// As [`Instance::launch`].
    ///
    /// # Errors
    /// If a library or device failed.
    fn launch(&mut self, call: &Call) -> Result<()>;

    /// As [`Instance::finished`].
    ///
    /// # Errors
    /// What was found wrong.
    fn finished(&mut self) -> Result<()> {
        Ok(())
    }
}

impl<F: FnMut(&Call) -> Result<()> + Send> Launcher for F {
    fn launch(&mut self, call: &Call) -> Result<()> {
        self(call)
    }
}

/// The addresses of one launch, in the provider's space.
pub struct Call<'a> {
    /// One per input.
    pub inputs: &'a [*const u8],
    /// One per output.
    pub outputs: &'a [*mut u8],
    /// As many bytes as the instance asked for.
    pub workspace: *mut u8,
    /// The stream that the work goes into, as [`crate::device::Stream::raw`] gives it.
    pub stream: *mut c_void,
}
