//! A graph that is captured when it is first wanted; where capture keeps failing, its kernels are launched one by one.

use crate::device::Graph;
use crate::error::Result;
use crate::runtime::executable::Executable;

/// A graph, once it is captured.
#[derive(Default)]
pub(super) struct CapturedGraph {
    graph: Option<Box<dyn Graph>>,
    failures: u32,
}

/// A single failure may be a passing lack of memory; each attempt takes longer than a call.
const ATTEMPTS: u32 = 3;

impl CapturedGraph {
    /// The graph, if it was captured.
    pub fn get(&mut self) -> Option<&mut (dyn Graph + 'static)> {
        self.graph.as_deref_mut()
    }

    /// Whether it is captured, and one of kernels alone.
    pub fn has_only_kernels(&self) -> bool {
        self.graph.as_ref().is_some_and(|graph| graph.has_only_kernels())
    }

    /// Captures it, unless that was done or given up. That it was given up stands in the program's report.
    pub fn capture(&mut self, program: &Executable, capture: impl FnOnce() -> Result<Box<dyn Graph>>) {
        if self.graph.is_some() || self.failures >= ATTEMPTS {
            return;
        }
        match capture() {
            Ok(graph) => self.graph = Some(graph),
            Err(error) => {
                self.failures += 1;
                if self.failures == ATTEMPTS {
                    program.degrade(format!(
                        "a recording failed, so that its kernels are launched one by one: {error}"
                    ));
                }
            }
        }
    }
}
