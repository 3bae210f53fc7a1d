//! Launch segments: neighbouring launches that go into one stream together, as a captured graph where the device captures.

use crate::device::{Graph, Stream};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::plan::program::Program;
use crate::plan::{Call, Instance};
use crate::runtime::addresses::{Addresses, ArenaBases};
use crate::runtime::captured_graph::CapturedGraph;
use crate::runtime::dependencies::{self, Accesses};
use crate::runtime::executable::Executable;
use crate::runtime::instance::{KernelTime, describe};
use crate::runtime::streams::CallStreams;
use std::collections::HashSet;
use std::ops::Range;

/// One kernel with its addresses.
pub(super) struct Launch {
    /// The command of the program that it runs.
    pub command: usize,
    pub instance: Instance,
    pub inputs: Vec<*const u8>,
    pub outputs: Vec<*mut u8>,
    pub workspace: *mut u8,
    pub accesses: Accesses,
    /// Whether it may start only when its predecessor is complete, programmatic dependent launch or not.
    pub full_barrier: bool,
    addresses: Addresses,
}

impl Launch {
    /// A launch without addresses yet.
    pub fn new(command: usize, instance: Instance, addresses: Addresses, accesses: Accesses) -> Self {
        Self {
            command,
            instance,
            inputs: vec![std::ptr::null(); addresses.inputs.len()],
            outputs: vec![std::ptr::null_mut(); addresses.outputs.len()],
            workspace: std::ptr::null_mut(),
            accesses,
            full_barrier: false,
            addresses,
        }
    }

    /// Takes the addresses that follow from where the arenas begin; those of the caller's arrays stay.
    pub fn rebase(&mut self, bases: &ArenaBases) {
        for (input, address) in self.inputs.iter_mut().zip(&self.addresses.inputs) {
            *input = address.at(bases).map_or(*input, <*mut u8>::cast_const);
        }
        for (output, address) in self.outputs.iter_mut().zip(&self.addresses.outputs) {
            *output = address.at(bases).unwrap_or(*output);
        }
        self.workspace = self.addresses.workspace.at(bases).unwrap_or(self.workspace);
    }

    fn launch(&mut self, program: &Program, stream: &dyn Stream) -> Result<()> {
        interrupt::poll()?;
        let call = Call {
            inputs: &self.inputs,
            outputs: &self.outputs,
            workspace: self.workspace,
            stream: stream.raw(),
        };
        let barrier = match self.full_barrier {
            true => program.providers[program.lane(self.command)]
                .device()
                .full_barrier(stream),
            false => Ok(()),
        };
        barrier
            .and_then(|()| self.instance.launch(&call))
            .map_err(|e| e.layer(describe(program, &program.commands[self.command])))
    }

    /// What the device found wrong with the data of a launch that is complete.
    ///
    /// # Errors
    /// That; names the layer.
    pub fn check(&mut self, program: &Program) -> Result<()> {
        let done = self.instance.finished();
        done.map_err(|e| e.layer(describe(program, &program.commands[self.command])))
    }
}

/// Neighbouring launches of one stream.
pub(super) struct Segment {
    /// The provider whose stream it is.
    provider: usize,
    launches: Range<usize>,
    /// Whether the stream captures, all addresses are fixed, and all instances may be captured.
    capturable: bool,
    /// It ran once: what libraries load at a first launch is there.
    warm: bool,
    graph: CapturedGraph,
    /// The launches of this stream for which somebody else waits behind it, if anybody does.
    awaited: Option<Range<usize>>,
}

/// What the segments of a call have in common.
pub(super) struct CallState<'a> {
    pub program: &'a Executable,
    pub launches: &'a mut [Launch],
    pub streams: &'a CallStreams<'a>,
    pub threads: usize,
}

impl Segment {
    /// Cuts launches where the stream changes and, where it captures, between what may be captured and what not. `bound` are the
    /// launches that use an array of the caller.
    ///
    /// # Errors
    /// If a provider has no stream.
    pub fn cut(
        program: &Program,
        launches: &[Launch],
        bound: &HashSet<usize>,
        can_capture: impl Fn(usize) -> Result<bool>,
    ) -> Result<Vec<Self>> {
        let mut captured = vec![];
        for (at, launch) in launches.iter().enumerate() {
            let captures = can_capture(program.lane(launch.command))?;
            captured.push(captures && !bound.contains(&at) && launch.instance.capturable);
        }
        leave_short_runs(program, launches, &mut captured);
        let mut segments: Vec<Self> = vec![];
        for (at, (launch, capturable)) in launches.iter().zip(captured).enumerate() {
            let provider = program.lane(launch.command);
            match segments.last_mut() {
                Some(last) if last.provider == provider && last.capturable == capturable => {
                    last.launches.end = at + 1;
                }
                _ => segments.push(Self {
                    provider,
                    launches: at..at + 1,
                    capturable,
                    warm: false,
                    graph: CapturedGraph::default(),
                    awaited: None,
                }),
            }
        }
        for neighbours in segments.chunk_by_mut(|a, b| a.provider == b.provider) {
            let first = neighbours[0].launches.start;
            if let Some(last) = neighbours.last_mut() {
                last.awaited = Some(first..last.launches.end);
            }
        }
        Ok(segments)
    }

    /// The provider whose stream it is.
    pub fn lane(&self) -> usize {
        self.provider
    }

    /// Launches it, as a graph from the second time on; waits for it where somebody else goes on, unless the call is
    /// `asynchronous`.
    ///
    /// # Errors
    /// If a kernel fails; names the layer.
    pub fn launch(&mut self, state: &mut CallState, asynchronous: bool) -> Result<()> {
        let stream = state.streams.get(self.provider)?;
        if stream.is_capturing() {
            self.refuse_capture(state)?;
        }
        let as_graph = self.warm && self.capturable && !stream.is_capturing();
        if as_graph {
            let program = state.program;
            self.graph
                .capture(program, || capture(state, self.provider, self.launches.clone()));
        }
        match self.graph.get() {
            Some(graph) if as_graph => graph.launch(stream)?,
            _ => self.each(state, stream, |program, launch, stream| launch.launch(program, stream))?,
        }
        self.warm = true;
        let Some(awaited) = self.awaited.clone().filter(|_| !asynchronous) else {
            return Ok(());
        };
        stream.synchronize()?;
        let program = state.program;
        state.launches[awaited]
            .iter_mut()
            .try_for_each(|launch| launch.check(program))
    }

    /// Refuses that a caller captures what can't be: his graph would leave it out.
    fn refuse_capture(&self, state: &CallState) -> Result<()> {
        let program = state.program;
        let mut launches = state.launches[self.launches.clone()].iter();
        // Copies to and from the caller's arrays run no layer, and he captures them.
        let odd = |launch: &&Launch| !launch.instance.capturable && !program.commands[launch.command].layers.is_empty();
        match launches.find(odd).map(|launch| &program.commands[launch.command]) {
            Some(command) => Err(Error::unsupported("the stream of the caller records what can't be recorded")
                .layer(describe(program, command))
                .hint("call outside of the recording, or let the plugin say `capturable = True` if it may be recorded")),
            None => Ok(()),
        }
    }

    /// Drops the graph, whose addresses no longer hold.
    pub fn clear(&mut self) {
        self.graph = CapturedGraph::default();
    }

    /// Launches it kernel by kernel, waiting for each, and says how long each took.
    ///
    /// # Errors
    /// As [`Segment::launch`].
    pub fn profile(&self, state: &mut CallState, times: &mut Vec<KernelTime>) -> Result<()> {
        let stream = state.streams.get(self.provider)?;
        self.each(state, stream, |program, launch, stream| {
            let nanoseconds = stream.time(&mut || launch.launch(program, stream))?;
            launch.check(program)?;
            times.push(KernelTime {
                command: launch.command,
                nanoseconds,
                implementation: launch.instance.implementation.clone(),
            });
            Ok(())
        })
    }

    /// Does something with each launch where the provider wants it done.
    fn each(
        &self,
        state: &mut CallState,
        stream: &dyn Stream,
        mut body: impl FnMut(&Program, &mut Launch, &dyn Stream) -> Result<()> + Send,
    ) -> Result<()> {
        let program = state.program;
        let mut crossing = Crossing {
            launches: &mut state.launches[self.launches.clone()],
            stream,
        };
        program.providers[self.provider].run(state.threads, &mut || {
            let Crossing { launches, stream } = crossing.get();
            launches
                .iter_mut()
                .try_for_each(|launch| body(program, launch, *stream))
        })
    }
}

/// Takes back that runs of few launches are captured between kernels that are launched one by one, such as those that use the
/// caller's arrays: a graph for each costs more than their launches, and none of them begins before the graph in front of it is complete.
fn leave_short_runs(program: &Program, launches: &[Launch], captured: &mut [bool]) {
    /// So many launches are worth a graph.
    const WORTH: usize = 8;
    let is_kernel = |at: usize| !program.commands[launches[at].command].layers.is_empty();
    let mut start = 0usize;
    for run in captured.chunk_by_mut(|a, b| a == b) {
        let (before, end) = (start.checked_sub(1), start + run.len());
        let between = end < launches.len() && is_kernel(end) && before.is_some_and(is_kernel);
        if between && run.len() < WORTH {
            run.fill(false);
        }
        start = end;
    }
}

/// Captures launches of one provider.
///
/// # Errors
/// If a kernel fails, or its stream can't capture.
pub(super) fn capture(state: &mut CallState, provider: usize, range: Range<usize>) -> Result<Box<dyn Graph>> {
    let program = state.program;
    let after = dependencies::predecessors(&state.launches[range.clone()]);
    let mut crossing = Crossing {
        launches: &mut state.launches[range],
        stream: state.streams.own(provider)?,
    };
    let mut captured = None;
    program.providers[provider].run(state.threads, &mut || {
        let Crossing { launches, stream } = crossing.get();
        let capture = stream.capture();
        let capture = capture.ok_or_else(|| Error::internal("a stream that can't capture"))?;
        let mut put = |number: usize, stream: &dyn Stream| launches[number].launch(program, stream);
        captured = Some(OfProvider(capture.graph(&after, &mut put)?));
        Ok(())
    })?;
    let captured = captured.ok_or_else(|| Error::internal("the provider did not run the job"))?;
    Ok(captured.0)
}

/// A graph, on its way back from the provider's thread.
struct OfProvider(Box<dyn Graph>);

/// Launches and their stream, on the way to the provider's thread.
struct Crossing<'a> {
    launches: &'a mut [Launch],
    stream: &'a dyn Stream,
}

// SAFETY: the addresses in the launches are vouched for by whoever runs the program; one thread at a time uses launches and
// stream: the one that does the job, while the caller waits for it.
unsafe impl Send for Crossing<'_> {}

impl<'a> Crossing<'a> {
    fn get(&mut self) -> &mut Self {
        self
    }
}
