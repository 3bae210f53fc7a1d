//! A region at concrete shapes: contexts that work in the planner's memory.
//!
//! A context belongs to one recording, and is to run once before it is recorded. So those that were recorded are not touched
//! any more, and others are made ready by calls that are not.

use super::region::Region;
use super::runtime::Context;
use crate::device::Stream;
use crate::error::{Error, Result};
use crate::plan::layout::Operand;
use crate::plan::{Call, Launcher};
use std::ffi::c_void;
use std::sync::Arc;

/// So many contexts are made ready by the first call: one may be recorded by us, one by the caller.
const READY: usize = 2;
/// After so many recordings no more are made: nobody tells which of them are gone.
const MOST: usize = 16;

/// A region at concrete shapes.
pub struct Contexts {
    pub(super) region: Arc<Region>,
    pub(super) profile: usize,
    pub(super) inputs: Vec<Operand>,
    pub(super) outputs: Vec<Operand>,
    /// Bytes of scratch memory.
    pub(super) memory: usize,
    /// One that has not run.
    pub(super) cold: Option<Context>,
    /// Those that ran, and are in no recording.
    pub(super) warm: Vec<Context>,
    /// Those that were recorded.
    pub(super) spent: Vec<Context>,
    /// Whether there was a call.
    pub(super) ran: bool,
}

impl Launcher for Contexts {
    fn launch(&mut self, call: &Call) -> Result<()> {
        // SAFETY: the planner's stream is a stream of this GPU, and outlives the call.
        let stream = unsafe { self.region.gpu.device().adopt(call.stream) };
        if stream.is_capturing() {
            return self.record(call);
        }
        let ready = if self.ran { 1 } else { READY };
        while self.warm.len() < ready {
            let mut context = match self.cold.take() {
                Some(context) => context,
                None => self.region.context(self.profile, &self.inputs, &self.outputs)?,
            };
            self.enqueue(&mut context, call)?;
            self.warm.push(context);
            if self.warm.len() == ready {
                self.ran = true;
                return Ok(());
            }
        }
        let mut context = self.warm.pop().ok_or_else(|| Error::internal("no context is ready"))?;
        let done = self.enqueue(&mut context, call);
        self.warm.push(context);
        done
    }
}

impl Contexts {
    fn record(&mut self, call: &Call) -> Result<()> {
        if self.spent.len() >= MOST {
            return Err(Error::unsupported(format!(
                "a region of TensorRT was recorded {MOST} times at these shapes"
            ))
            .hint("let arrays come again at the same addresses"));
        }
        let Some(mut context) = self.warm.pop() else {
            return Err(
                Error::unsupported("a context of TensorRT runs once before it is recorded")
                    .hint("call once more outside of the recording"),
            );
        };
        let done = self.enqueue(&mut context, call);
        self.spent.push(context);
        done
    }

    fn enqueue(&self, context: &mut Context, call: &Call) -> Result<()> {
        let ports = |names: &[String]| names.to_vec();
        let inputs = ports(&self.region.inputs)
            .into_iter()
            .zip(call.inputs.iter().map(|&at| at.cast_mut()));
        let outputs = ports(&self.region.outputs)
            .into_iter()
            .zip(call.outputs.iter().copied());
        let operands = self.inputs.iter().chain(&self.outputs);
        for ((name, address), operand) in inputs.chain(outputs).zip(operands) {
            // TensorRT wants an address of what has no elements, too.
            let address = if operand.is_empty() { call.workspace } else { address };
            // SAFETY: the planner vouches for the addresses, and for the bytes of each operand there, until the work is done.
            unsafe { context.set_address(&name, address.cast::<c_void>()) }?;
        }
        // SAFETY: as above; the workspace has as many bytes as were asked for.
        unsafe { context.set_memory(call.workspace.cast(), self.memory) }?;
        // SAFETY: as above; the stream is a stream of this GPU.
        unsafe { context.enqueue(call.stream) }
    }
}

impl Drop for Contexts {
    fn drop(&mut self) {
        let _entered = self.region.gpu.device().enter();
        self.cold = None;
        self.warm.clear();
        self.spent.clear();
    }
}
