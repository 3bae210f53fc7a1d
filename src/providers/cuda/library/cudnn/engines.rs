//! Plans of graphs in the engines that the library proposes for them.
//!
//! A plan is asked for by its engine's place among the proposals, which a version of the library gives in the same order
//! again for the same problem and GPU. They are asked for once: it takes longer than to build a plan.

use super::descriptor::Descriptor;
use super::graph::Drawn;
use super::numbers::{kind, name, ty};
use super::proposals::{Engine, Proposals};
use super::{Cudnn, cudnn, supported};
use crate::error::{Error, ErrorKind, Result};
use crate::network::dtype::DType;
use crate::providers::cuda::library::driver::Handle;
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The library on the current GPU.
pub struct Dnn {
    library: &'static Cudnn,
    /// The handle that plans run with, one at a time: not every engine's plan may be run by two threads at once.
    runner: Mutex<Raw>,
    /// Handles that plans are built with and that nobody uses now.
    builders: Mutex<Vec<Raw>>,
    problems: Mutex<HashMap<String, Arc<Problem>>>,
}

struct Raw(Handle);

// SAFETY: a handle may be used from any thread, one at a time: a mutex is around it, or one thread took it.
unsafe impl Send for Raw {}

/// What plans compute; two that print alike are the same.
pub trait Subject: Debug + Send + Sync {
    /// The element type of what it reads.
    fn dtype(&self) -> DType;

    /// Whether it may be rounded to tf32, if it is float32.
    fn tf32(&self) -> bool {
        false
    }

    /// Whether it has a Relu in it, which may lose a NaN.
    fn clamps(&self) -> bool;

    /// The graph of it; a Relu keeps NaNs where that is said, or does what it likes.
    ///
    /// # Errors
    /// If the library has no such graph.
    fn draw(&self, library: &'static Cudnn, handle: Handle, keeps_nan: bool) -> Result<Drawn>;
}

/// Something that was asked about, with the plans that were built for it.
pub struct Problem {
    subject: Box<dyn Subject>,
    proposals: OnceLock<Proposals>,
    plans: Mutex<HashMap<usize, Slot>>,
}

/// A plan, or why there can't be one; nothing if nobody built it, or it failed for lack of memory or of a device.
type Slot = Arc<Mutex<Option<Result<Arc<Plan>>>>>;

/// A graph that is ready to run.
pub struct Plan {
    plan: Descriptor,
    ids: Vec<i64>,
    workspace: usize,
    rounds: bool,
}

impl Plan {
    /// What it is, for reports.
    pub fn name(&self) -> &'static str {
        if self.rounds { "cuDNN in tf32" } else { "cuDNN" }
    }

    /// Bytes of scratch memory that it needs.
    pub fn workspace(&self) -> usize {
        self.workspace
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves each of them whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// So many problems are remembered after nobody runs them any more.
const MOST_PROBLEMS: usize = 512;

impl Dnn {
    /// A handle on the current GPU.
    ///
    /// # Errors
    /// If there is no library, or it fails.
    pub fn new() -> Result<Self> {
        let library = cudnn()?;
        Ok(Self {
            library,
            runner: Mutex::new(Self::handle(library)?),
            builders: Mutex::default(),
            problems: Mutex::default(),
        })
    }

    fn handle(library: &Cudnn) -> Result<Raw> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the handle is written; it lives as long as the process, as the GPU's context does.
        library.check("cudnnCreate", unsafe { (library.cudnnCreate)(&mut handle) })?;
        Ok(Raw(handle))
    }

    /// A convolution or a product as a problem: the one that is known, if there is one.
    pub fn problem(&self, subject: &(impl Subject + Clone + 'static)) -> Arc<Problem> {
        let mut problems = lock(&self.problems);
        if problems.len() >= MOST_PROBLEMS {
            problems.retain(|_, problem| Arc::strong_count(problem) > 1);
        }
        let new = || {
            Arc::new(Problem {
                subject: Box::new(subject.clone()),
                proposals: OnceLock::new(),
                plans: Mutex::default(),
            })
        };
        problems.entry(format!("{subject:?}")).or_insert_with(new).clone()
    }

    /// The engines that the library proposes, the best guess first; none where it can't even draw the problem. Some of them
    /// may find that they can't do it after all.
    ///
    /// # Errors
    /// If memory is short or the device fails.
    pub fn engines<'a>(&self, problem: &'a Problem) -> Result<&'a [Engine]> {
        Ok(&self.proposals(problem)?.engines)
    }

    fn proposals<'a>(&self, problem: &'a Problem) -> Result<&'a Proposals> {
        if let Some(known) = problem.proposals.get() {
            return Ok(known);
        }
        let ask = |handle| Proposals::of(self.library, &*problem.subject, handle);
        let found = supported(self.with_builder(ask))?.unwrap_or_default();
        Ok(problem.proposals.get_or_init(|| found))
    }

    /// The plan in the `number`th of the engines that the library proposes.
    ///
    /// # Errors
    /// If there is no such engine, it can't do it, or memory or the device fails.
    pub fn plan(&self, problem: &Problem, number: usize) -> Result<Arc<Plan>> {
        let slot = lock(&problem.plans).entry(number).or_default().clone();
        // Who wants the same plan waits for it, and does not build it too.
        let mut slot = lock(&slot);
        if let Some(known) = &*slot {
            return known.clone();
        }
        let built = self
            .proposals(problem)
            .and_then(|proposals| self.with_builder(|handle| self.build(&*problem.subject, proposals, number, handle)));
        let lasting = built.as_ref().err().is_none_or(|e| e.kind() == ErrorKind::Unsupported);
        if lasting {
            *slot = Some(built.clone());
        }
        built
    }

    /// The plan in the first engine that can do it, if there is one.
    ///
    /// # Errors
    /// If memory or the device fails.
    pub fn first(&self, problem: &Problem) -> Result<Option<Arc<Plan>>> {
        let plans = (0..self.engines(problem)?.len()).map(|number| supported(self.plan(problem, number)));
        plans.filter_map(Result::transpose).next().transpose()
    }

    /// Runs a job with a handle that no other thread uses.
    fn with_builder<T>(&self, job: impl FnOnce(Handle) -> Result<T>) -> Result<T> {
        let idle = lock(&self.builders).pop();
        let handle = match idle {
            Some(handle) => handle,
            None => Self::handle(self.library)?,
        };
        let done = job(handle.0);
        lock(&self.builders).push(handle);
        done
    }

    fn build(&self, subject: &dyn Subject, proposals: &Proposals, number: usize, handle: Handle) -> Result<Arc<Plan>> {
        let engine = proposals.engines.get(number).ok_or_else(|| {
            Error::unsupported("cuDNN has no such engine for a graph")
                .expected(format!("engine {number}"))
                .got(format!("{} engines for {subject:?}", proposals.engines.len()))
        })?;
        let drawn = subject.draw(self.library, handle, proposals.keeps_nan)?;
        let plan = self.finish(handle, &engine.configure(&drawn.graph)?.config)?;
        let mut workspace = [0i64];
        plan.get(name::PLAN_WORKSPACE, ty::INT64, &mut workspace)?;
        Ok(Arc::new(Plan {
            plan,
            ids: drawn.ids,
            workspace: workspace[0].max(0) as usize,
            rounds: subject.dtype() == DType::Float32 && engine.on_tensor_cores,
        }))
    }

    fn finish(&self, handle: Handle, config: &Descriptor) -> Result<Descriptor> {
        let plan = Descriptor::new(self.library, kind::PLAN)?;
        plan.set(name::PLAN_HANDLE, ty::HANDLE, &[handle])?
            .link(name::PLAN_CONFIG, &[config])?;
        plan.finish()
    }

    /// Puts a graph into a stream. The addresses are those of its operands as they were drawn (of a convolution: input,
    /// weights, bias and residual where they are; of a product: both matrices, the other operands), of the result, and of
    /// scratch memory.
    ///
    /// # Safety
    /// Each address must hold its tensor until the stream has run the graph.
    ///
    /// # Errors
    /// If the library refuses.
    pub unsafe fn run(&self, plan: &Plan, addresses: &[*mut u8], workspace: *mut u8, stream: Handle) -> Result<()> {
        let pack = Descriptor::new(self.library, kind::VARIANT_PACK)?;
        pack.set(name::PACK_IDS, ty::INT64, &plan.ids)?
            .set(name::PACK_POINTERS, ty::POINTER, addresses)?
            .set(name::PACK_WORKSPACE, ty::POINTER, &[workspace])?;
        let pack = pack.finish()?;
        let runner = lock(&self.runner);
        // SAFETY: the caller vouches for the addresses; the handle is locked.
        unsafe {
            self.library
                .check("cudnnSetStream", (self.library.cudnnSetStream)(runner.0, stream))?;
            let status = (self.library.cudnnBackendExecute)(runner.0, plan.plan.handle, pack.handle);
            self.library.check("cudnnBackendExecute", status)
        }
    }
}
