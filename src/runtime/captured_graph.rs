//! A recording that is made when it is first wanted, and given up where it can't be made.

use crate::device::Graph;
use crate::error::Result;

use crate::runtime::executable::Executable;

/// Perhaps a recording.
#[derive(Default)]
pub(super) struct CapturedGraph {
    made: Option<Box<dyn Graph>>,
    failures: u32,
}

/// What failed once may have lacked memory just then; what failed so often fails always, and each attempt takes longer than
/// a call.
const ATTEMPTS: u32 = 3;

impl CapturedGraph {
    /// The recording, if there is one.
    pub fn made(&mut self) -> Option<&mut (dyn Graph + 'static)> {
        self.made.as_deref_mut()
    }

    /// Makes it, unless it is there or was given up. Whoever goes on without one does the same work more slowly, and says
    /// what fails if that does, too; that it was given up stands in the program's report.
    pub fn make(&mut self, program: &Executable, record: impl FnOnce() -> Result<Box<dyn Graph>>) {
        if self.made.is_some() || self.failures >= ATTEMPTS {
            return;
        }
        match record() {
            Ok(recording) => self.made = Some(recording),
            Err(error) => {
                self.failures += 1;
                if self.failures == ATTEMPTS {
                    let reason = format!("a recording failed, so that its kernels are launched one by one: {error}");
                    program.degrade(reason);
                }
            }
        }
    }
}
