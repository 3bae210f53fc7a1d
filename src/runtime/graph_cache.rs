//! Whole calls that were recorded, for arrays that come again at the same addresses: one launch in place of one for each
//! copy and one for what lies between them.

use crate::device::Stream;
use crate::error::Result;

use crate::plan::program::Program;
use crate::runtime::bindings::{ArrayKey, Bindings};
use crate::runtime::captured_graph::CapturedGraph;
use crate::runtime::segment::{CallState, Run, record};
use std::collections::HashSet;

/// Arrays at so many sets of addresses are remembered: a caller who makes new ones for each result goes through a few.
const KEPT: usize = 4;

/// Where a caller's arrays lie, and the recording of the call; none yet where they came only once.
type Known = (Vec<ArrayKey>, CapturedGraph);

/// The recordings of a program that one provider runs from end to end.
pub(super) struct GraphCache {
    provider: usize,
    /// The last one used in front.
    known: Vec<Known>,
}

impl GraphCache {
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
    pub fn run(&mut self, bindings: &Bindings, state: &mut CallState) -> Result<bool> {
        let Some(keys) = bindings.keys(state.program) else {
            return Ok(false);
        };
        let stream = state.streams.get(self.provider)?;
        if stream.is_capturing() {
            return Ok(false);
        }
        let Some(at) = self.known.iter().position(|(known, _)| *known == keys) else {
            // A recording that goes may still run in a stream of the caller's: devices keep it until then (for
            // cuGraphExecDestroy NVIDIA says: "If the executable graph is in-flight, it will not be terminated, but rather
            // freed asynchronously on completion"), and what it works on stays.
            self.known.truncate(KEPT - 1);
            self.known.insert(0, (keys, CapturedGraph::default()));
            return Ok(false);
        };
        self.known[..=at].rotate_right(1);
        let graph = &mut self.known[0].1;
        graph.make(state.program, || {
            let spared = bindings.join(state.runs);
            let made = record(state, self.provider, 0..state.runs.len(), &spared);
            bindings.part(state);
            made
        });
        match graph.made() {
            Some(recording) => recording.launch(stream).map(|()| true),
            None => Ok(false),
        }
    }

    /// Gives up what was recorded at addresses that no longer hold.
    pub fn forget(&mut self) {
        self.known
            .iter_mut()
            .for_each(|(_, graph)| *graph = CapturedGraph::default());
    }

    /// Waits until the call is done.
    ///
    /// # Errors
    /// If some of it failed, or something was wrong with its data; names the layer.
    pub fn finish(&self, state: &mut CallState) -> Result<()> {
        let stream: &dyn Stream = state.streams.get(self.provider)?;
        stream.synchronize()?;
        let program = state.program;
        state.runs.iter_mut().try_for_each(|run| run.finished(program))
    }
}
