//! The engines that the library proposes for a graph, and plans that run in them.
//!
//! An engine is known by its place among the proposals, which a version of the library gives in the same order again for
//! the same problem and GPU: so the plan of one engine is built without those of the others.

use super::descriptor::Descriptor;
use super::graph::Drawn;
use super::numbers::{HEURISTICS, kind, name, note, ty};
use super::{Cudnn, cudnn};
use crate::error::{Error, Result};
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

    /// The graph of it.
    ///
    /// # Errors
    /// If the library has no such graph.
    fn draw(&self, library: &'static Cudnn, handle: Handle) -> Result<Drawn>;
}

/// Something that was asked about, with the plans that were built for it.
pub struct Problem {
    subject: Box<dyn Subject>,
    proposed: OnceLock<usize>,
    plans: Mutex<HashMap<usize, Slot>>,
}

type Slot = Arc<OnceLock<Result<Arc<Plan>>>>;

/// A graph that is ready to run.
pub struct Plan {
    plan: Descriptor,
    ids: Vec<i64>,
    workspace: usize,
}

impl Plan {
    /// Bytes of scratch memory that it needs.
    pub fn workspace(&self) -> usize {
        self.workspace
    }
}

impl Problem {
    /// Whether the plan in an engine was asked for already.
    pub fn has(&self, number: usize) -> bool {
        lock(&self.plans).contains_key(&number)
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
                proposed: OnceLock::new(),
                plans: Mutex::default(),
            })
        };
        problems.entry(format!("{subject:?}")).or_insert_with(new).clone()
    }

    /// How many engines the library proposes. Some of them may find that they can't do it after all.
    pub fn engines(&self, problem: &Problem) -> usize {
        let ask = || {
            let count = |handle| {
                let (_drawn, proposals) = self.proposals(&*problem.subject, handle)?;
                Ok(proposals.len())
            };
            // What can't even be drawn has no engine.
            self.with_builder(count).unwrap_or(0)
        };
        *problem.proposed.get_or_init(ask)
    }

    /// The plan in the `number`th of the engines that the library proposes; for 0, in the first that can do it.
    ///
    /// # Errors
    /// If there is no such engine, or it can't do it.
    pub fn plan(&self, problem: &Problem, number: usize) -> Result<Arc<Plan>> {
        let slot = lock(&problem.plans).entry(number).or_default().clone();
        // Who wants the same plan waits for it, and does not build it too.
        slot.get_or_init(|| self.with_builder(|handle| self.build(&*problem.subject, number, handle)))
            .clone()
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

    fn build(&self, subject: &dyn Subject, number: usize, handle: Handle) -> Result<Arc<Plan>> {
        let (drawn, proposals) = self.proposals(subject, handle)?;
        let wanted = match number {
            0 => proposals.as_slice(),
            _ => proposals.get(number..=number).unwrap_or_default(),
        };
        let ready = wanted.iter().find_map(|config| self.finish(handle, config).ok());
        let plan = ready.ok_or_else(|| {
            Error::unsupported("cuDNN has no such engine for a graph")
                .expected(format!("engine {number}"))
                .got(format!("{} engines for {subject:?}", proposals.len()))
        })?;
        let mut workspace = [0i64];
        plan.get(name::PLAN_WORKSPACE, ty::INT64, &mut workspace)?;
        Ok(Arc::new(Plan {
            plan,
            ids: drawn.ids,
            workspace: workspace[0].max(0) as usize,
        }))
    }

    fn finish(&self, handle: Handle, config: &Descriptor) -> Result<Descriptor> {
        let plan = Descriptor::new(self.library, kind::PLAN)?;
        plan.set(name::PLAN_HANDLE, ty::HANDLE, &[handle])?
            .link(name::PLAN_CONFIG, &[config])?;
        plan.finish()
    }

    /// The engines that may be taken, each as the library would set it, the best guess first.
    fn proposals(&self, subject: &dyn Subject, handle: Handle) -> Result<(Drawn, Vec<Descriptor>)> {
        let drawn = subject.draw(self.library, handle)?;
        let mut proposals = vec![];
        for mode in HEURISTICS {
            for config in self.configurations(&drawn.graph, mode)? {
                if self.is_exact(&config, subject.dtype())? {
                    proposals.push(config);
                }
            }
        }
        Ok((drawn, proposals))
    }

    fn configurations(&self, graph: &Descriptor, mode: i32) -> Result<Vec<Descriptor>> {
        /// For float32 those without tensor cores come last, behind some thirty others.
        const MOST: usize = 64;
        let heuristic = Descriptor::new(self.library, kind::ENGINE_HEURISTIC)?;
        heuristic
            .link(name::HEURISTIC_GRAPH, &[graph])?
            .set(name::HEURISTIC_MODE, ty::HEURISTIC_MODE, &[mode])?;
        // A mode may know nothing of a graph.
        let Ok(heuristic) = heuristic.finish() else {
            return Ok(vec![]);
        };
        let room = (0..MOST).map(|_| Descriptor::new(self.library, kind::ENGINE_CONFIG));
        let mut room = room.collect::<Result<Vec<_>>>()?;
        let mut handles: Vec<Handle> = room.iter().map(|config| config.handle).collect();
        let count = heuristic.get(name::HEURISTIC_RESULTS, ty::DESCRIPTOR, &mut handles)?;
        room.truncate(count);
        Ok(room)
    }

    /// Whether an engine neither rounds operands nor sums to less than float32, and gives the same result again. float32 is
    /// not transformed either: products of integers, which come as such, are exact.
    fn is_exact(&self, config: &Descriptor, dtype: DType) -> Result<bool> {
        let engine = Descriptor::new(self.library, kind::ENGINE)?;
        config.get(name::CONFIG_ENGINE, ty::DESCRIPTOR, &mut [engine.handle])?;
        let mut notes = [-1i32; 16];
        let count = engine.get(name::ENGINE_NOTES, ty::NUMERICAL_NOTE, &mut notes)?;
        let refused = |given: &i32| match *given {
            note::TENSOR_CORE | note::FFT | note::WINOGRAD..=note::LAST_WINOGRAD => dtype == DType::Float32,
            note::DOWN_CONVERT_INPUTS | note::REDUCED_PRECISION_REDUCTION | note::NONDETERMINISTIC => true,
            _ => false,
        };
        Ok(!notes[..count.min(notes.len())].iter().any(refused))
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
