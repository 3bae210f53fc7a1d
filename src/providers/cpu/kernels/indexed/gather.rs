//! Runs that are read from where indices say.

use super::plain;
use super::run_offsets::RunOffsets;
use crate::error::Result;
use crate::plan::{Call, Form, Instance, Kernel, Launcher, Prepared, Request};
use crate::providers::common::indexed::Rule;
use crate::providers::cpu::kernels::parallel::{self, Shared};
use std::ops::Range;

/// Bytes that a thread should at least write.
const GRAIN: usize = 32 << 10;

/// Gather, GatherElements or GatherND.
pub struct Gather {
    pub name: &'static str,
    pub rule: Rule,
}

impl Kernel for Gather {
    fn name(&self) -> String {
        self.name.into()
    }

    fn identity(&self) -> String {
        format!("{} {:?}", self.name, self.rule)
    }

    fn forms(&self) -> Vec<Form> {
        plain(2)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let (x, indices) = (&request.inputs[0], &request.inputs[1]);
        let launcher = Gathering {
            runs: RunOffsets::new(self.rule, x, indices),
            size: x.dtype.size(),
        };
        let workspace = launcher.runs.workspace();
        Ok(Instance::new("indexed copy", launcher).with_workspace(workspace).into())
    }
}

struct Gathering {
    runs: RunOffsets,
    size: usize,
}

/// The offsets of a call.
struct Runs<'a> {
    of: &'a Gathering,
    starts: &'a [usize],
}

impl Runs<'_> {
    /// Copies numbered runs.
    ///
    /// # Safety
    /// The operands of the request must lie at the addresses.
    unsafe fn copy(&self, source: *const u8, target: *mut u8, runs: Range<usize>) {
        let size = self.of.size;
        let bytes = self.of.runs.run * size;
        // SAFETY: the caller's promise; the starts are those of runs in the source.
        unsafe {
            match bytes {
                1 => self.typed::<u8>(source, target, runs),
                2 => self.typed::<u16>(source, target, runs),
                4 => self.typed::<u32>(source, target, runs),
                8 => self.typed::<u64>(source, target, runs),
                _ => {
                    for run in runs {
                        let from = source.add(self.start(run) * size);
                        std::ptr::copy_nonoverlapping(from, target.add(run * bytes), bytes);
                    }
                }
            }
        }
    }

    /// Where a run starts in the source.
    fn start(&self, run: usize) -> usize {
        let count = self.starts.len();
        run / count * self.of.runs.repeats[1] + self.starts[run % count]
    }

    unsafe fn typed<T: Copy>(&self, source: *const u8, target: *mut u8, runs: Range<usize>) {
        for run in runs {
            // SAFETY: the caller's promise; runs of several narrow elements need not be aligned.
            unsafe {
                let element = source.add(self.start(run) * self.of.size).cast::<T>().read_unaligned();
                target.cast::<T>().add(run).write_unaligned(element);
            }
        }
    }
}

impl Launcher for Gathering {
    fn launch(&mut self, call: &Call) -> Result<()> {
        // SAFETY: the planner gives addresses that hold the operands of the request, and the workspace.
        let starts = unsafe { self.runs.resolve(call.inputs[1], call.workspace)? };
        let (all, call) = (Runs { of: self, starts }, Shared(call));
        let bytes = self.runs.run * self.size;
        let runs = if bytes == 0 {
            0
        } else {
            self.runs.repeats[0] * starts.len()
        };
        parallel::over(runs, GRAIN / bytes.max(1), |runs| {
            let call = call.get();
            // SAFETY: as above.
            unsafe { all.copy(call.inputs[0], call.outputs[0], runs) }
        })
    }
}
