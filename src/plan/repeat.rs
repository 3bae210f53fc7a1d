//! Whole calls that were recorded, for arrays that come again at the same addresses: one launch in place of one for each
//! copy and one for what lies between them.

use crate::error::Result;
use crate::plan::Queue;
use crate::plan::boundary::{Boundary, Spot};
use crate::plan::program::Program;
use crate::plan::stretch::{Run, Running, record};
use crate::plan::tape::Tape;
use std::collections::HashSet;

/// Arrays at so many sets of addresses are remembered: a caller who makes new ones for each result goes through a few.
const KEPT: usize = 4;

/// Where a caller's arrays lie, and the recording of the call; none yet where they came only once.
type Known = (Vec<Spot>, Tape);

/// The recordings of a program that one provider runs from end to end.
pub(super) struct Repeats {
    provider: usize,
    /// The last one used in front.
    known: Vec<Known>,
}

impl Repeats {
    /// `None` where calls can't be recorded whole.
    pub fn of(
        program: &Program,
        runs: &[Run],
        patched: &HashSet<usize>,
        records: impl Fn(usize) -> bool,
    ) -> Option<Self> {
        let provider = program.lane(runs.first()?.step);
        let joins = |(at, run): (usize, &Run)| {
            program.lane(run.step) == provider && (run.instance.capturable() || patched.contains(&at))
        };
        let whole = records(provider) && runs.iter().enumerate().all(joins);
        whole.then(|| Self {
            provider,
            known: vec![],
        })
    }

    /// Runs the call by a recording, which it makes when arrays come for the second time; says whether it did.
    ///
    /// # Errors
    /// If a kernel or the device fails.
    pub fn run(&mut self, boundary: &Boundary, running: &mut Running) -> Result<bool> {
        let Some(spots) = boundary.spots(running.program) else {
            return Ok(false);
        };
        let queue = running.queues.get(self.provider)?;
        if queue.is_recording() {
            return Ok(false);
        }
        let Some(at) = self.known.iter().position(|(known, _)| *known == spots) else {
            // A recording that goes may still run in a queue of the caller's: devices keep it until then (for
            // cuGraphExecDestroy NVIDIA says: "If the executable graph is in-flight, it will not be terminated, but rather
            // freed asynchronously on completion"), and what it works on stays.
            self.known.truncate(KEPT - 1);
            self.known.insert(0, (spots, Tape::default()));
            return Ok(false);
        };
        self.known[..=at].rotate_right(1);
        let tape = &mut self.known[0].1;
        tape.make(running.program, || {
            let spared = boundary.join(running.runs);
            let made = record(running, self.provider, 0..running.runs.len(), &spared);
            boundary.part(running);
            made
        });
        match tape.made() {
            Some(recording) => recording.replay(queue).map(|()| true),
            None => Ok(false),
        }
    }

    /// Gives up what was recorded at addresses that no longer hold.
    pub fn forget(&mut self) {
        self.known.iter_mut().for_each(|(_, tape)| *tape = Tape::default());
    }

    /// Waits until the call is done.
    ///
    /// # Errors
    /// If some of it failed, or something was wrong with its data; names the layer.
    pub fn finish(&self, running: &mut Running) -> Result<()> {
        let queue: &dyn Queue = running.queues.get(self.provider)?;
        queue.finish()?;
        let program = running.program;
        running.runs.iter_mut().try_for_each(|run| run.finished(program))
    }
}
