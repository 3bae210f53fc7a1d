//! What runs layers: kernels, the forms in which they can be called, and their instances at concrete shapes.

use crate::error::Result;
use crate::network::dim::{Binding, Dim};
use crate::plan::layout::{Layout, Operand};
use serde::{Deserialize, Serialize};
use std::ffi::c_void;

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
    Split(usize, Dim),
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

    /// Enqueues the builds that one of its forms needs at the shapes to optimise for (compilations, plans of libraries), so that
    /// those of all kernels run in parallel. Called before the first kernel is timed; `timed`: whether this form will be.
    fn enqueue_builds(&self, _request: &Request, _timed: bool) {}

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

    /// Whether it is a reference implementation: correct but slow, never timed, and chosen only where no other form runs.
    fn is_reference(&self) -> bool {
        false
    }

    /// Whether it is the fallback of its library for shapes that no specialised implementation takes. It may be the fastest at
    /// the shapes at which it was timed; far from these, forms are chosen again.
    fn is_library_fallback(&self) -> bool {
        false
    }

    /// Whether its stream may record it: it does nothing but put work there.
    fn capturable(&self) -> bool {
        true
    }

    /// How many of its inputs, from the first on, it reads only behind its PDL wait (`griddepcontrol.wait`); the others may be
    /// read before its predecessor completes.
    fn pdl_wait_inputs(&self) -> usize {
        usize::MAX
    }

    /// May trigger dependent launch before its writes are visible; never before its predecessor completes.
    fn pdl_triggers(&self) -> bool {
        true
    }

    /// Runs it.
    ///
    /// # Errors
    /// If a library or device failed.
    fn run(&mut self, call: &Call) -> Result<()>;

    /// Asked when what it put into its stream is done: what the device found wrong with the data.
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
    /// The stream that the work goes into, as [`crate::device::Stream::raw`] gives it.
    pub stream: *mut c_void,
}
