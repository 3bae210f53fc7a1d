//! Whole calls as captured graphs, by the addresses of the caller's arrays: one launch in place of one for each copy and one for
//! what lies between them.

use crate::device::Stream;
use crate::error::Result;
use crate::plan::program::Program;
use crate::runtime::bindings::Bindings;
use crate::runtime::captured_graph::CapturedGraph;
use crate::runtime::segment::{CallState, Launch, capture};
use std::collections::HashSet;

/// Graphs for so many sets of addresses are kept: a caller who makes new arrays for each result goes through a few.
const KEPT: usize = 8;

/// A call whose arrays came at least once.
struct Entry {
    /// Where they lie, and the allocations that they are in.
    addresses: Vec<usize>,
    allocations: Vec<u64>,
    /// Not captured yet where they came only once.
    graph: CapturedGraph,
}

/// The captured calls of a program that one provider runs from end to end.
pub(super) struct GraphCache {
    provider: usize,
    /// The most recently used first.
    entries: Vec<Entry>,
}

impl GraphCache {
    /// `None` where calls can't be captured whole. `bound` are the launches that use an array of the caller.
    pub fn of(
        program: &Program,
        launches: &[Launch],
        bound: &HashSet<usize>,
        can_capture: impl Fn(usize) -> bool,
    ) -> Option<Self> {
        let provider = program.lane(launches.first()?.command);
        let joins = |(at, launch): (usize, &Launch)| {
            let copies = bound.contains(&at) && program.commands[launch.command].layers.is_empty();
            program.lane(launch.command) == provider && (launch.instance.capturable || copies)
        };
        let whole = can_capture(provider) && launches.iter().enumerate().all(joins);
        whole.then(|| Self {
            provider,
            entries: vec![],
        })
    }

    /// Launches the graph of the call, which is captured when its arrays come for the second time; says whether it did.
    ///
    /// # Errors
    /// If a kernel or the device fails.
    pub fn launch(&mut self, bindings: &Bindings, state: &mut CallState) -> Result<bool> {
        let stream = state.streams.get(self.provider)?;
        if stream.is_capturing() {
            return Ok(false);
        }
        let Some(addresses) = bindings.addresses() else {
            return Ok(false);
        };
        let known = |entry: &Entry| entry.addresses == addresses && entry.graph.has_only_kernels();
        let mut found = self.entries.iter().position(known);
        let mut allocations = vec![];
        if found.is_none() {
            // To ask for these takes longer than all else that a graph needs.
            match bindings.allocations(state.program) {
                Some(numbers) => allocations = numbers,
                None => return Ok(false),
            }
            let known = |entry: &Entry| entry.addresses == addresses && entry.allocations == allocations;
            found = self.entries.iter().position(known);
        }
        let Some(at) = found else {
            // A graph that goes may still run in a stream of the caller's: devices keep it until then (for
            // cuGraphExecDestroy NVIDIA says: "If the executable graph is in-flight, it will not be terminated, but rather
            // freed asynchronously on completion"), and what it works on stays.
            self.entries.truncate(KEPT - 1);
            let graph = CapturedGraph::default();
            self.entries.insert(
                0,
                Entry {
                    addresses,
                    allocations,
                    graph,
                },
            );
            return Ok(false);
        };
        self.entries[..=at].rotate_right(1);
        let graph = &mut self.entries[0].graph;
        graph.capture(state.program, || capture(state, self.provider, 0..state.launches.len()));
        match graph.get() {
            Some(graph) => graph.launch(stream).map(|()| true),
            None => Ok(false),
        }
    }

    /// Drops the graphs, whose addresses no longer hold.
    pub fn clear(&mut self) {
        self.entries
            .iter_mut()
            .for_each(|entry| entry.graph = CapturedGraph::default());
    }

    /// Waits until the call is done.
    ///
    /// # Errors
    /// If some of it failed, or something was wrong with its data; names the layer.
    pub fn synchronize(&self, state: &mut CallState) -> Result<()> {
        let stream: &dyn Stream = state.streams.get(self.provider)?;
        stream.synchronize()?;
        let program = state.program;
        state.launches.iter_mut().try_for_each(|launch| launch.check(program))
    }
}
