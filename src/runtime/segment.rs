//! Neighbouring runs of one stream, which go into its stream together: recorded and replayed where it can record.

use crate::device::{Graph, Stream};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::plan::program::Program;
use crate::plan::{Call, Instance};
use crate::runtime::addresses::{Addresses, Bases};
use crate::runtime::captured_graph::CapturedGraph;
use crate::runtime::dependencies::{self, Touched};
use crate::runtime::executable::Executable;
use crate::runtime::instance::{StepTime, describe};
use crate::runtime::streams::{Entered, Streams};
use std::collections::HashSet;
use std::ops::Range;
use std::time::Instant;

/// One kernel with its addresses.
pub(super) struct Run {
    pub step: usize,
    pub instance: Box<dyn Instance>,
    pub inputs: Vec<*const u8>,
    pub outputs: Vec<*mut u8>,
    pub workspace: *mut u8,
    pub touched: Touched,
    /// Whether it must not even begin before what is in front of it has ended.
    pub full_barrier: bool,
    addresses: Addresses,
}

impl Run {
    /// A run without addresses yet.
    pub fn new(step: usize, instance: Box<dyn Instance>, addresses: Addresses, touched: Touched) -> Self {
        Self {
            step,
            instance,
            inputs: vec![std::ptr::null(); addresses.inputs.len()],
            outputs: vec![std::ptr::null_mut(); addresses.outputs.len()],
            workspace: std::ptr::null_mut(),
            touched,
            full_barrier: false,
            addresses,
        }
    }

    /// Takes its place in the arenas.
    pub fn settle(&mut self, bases: &Bases) {
        for (input, address) in self
            .inputs
            .iter_mut()
            .zip(self.addresses.inputs.iter().map(|address| address.address(bases)))
        {
            *input = address.map_or(*input, <*mut u8>::cast_const);
        }
        for (output, address) in self
            .outputs
            .iter_mut()
            .zip(self.addresses.outputs.iter().map(|address| address.address(bases)))
        {
            *output = address.unwrap_or(*output);
        }
        self.workspace = self.addresses.workspace.address(bases).unwrap_or(self.workspace);
    }

    fn run(&mut self, program: &Program, stream: &dyn Stream) -> Result<()> {
        interrupt::poll()?;
        let call = Call {
            inputs: &self.inputs,
            outputs: &self.outputs,
            workspace: self.workspace,
            stream: stream.raw(),
        };
        let full_barrier = match self.full_barrier {
            true => program.providers[program.lane(self.step)].device().full_barrier(stream),
            false => Ok(()),
        };
        full_barrier
            .and_then(|()| self.instance.run(&call))
            .map_err(|e| e.layer(describe(program, &program.steps[self.step])))
    }

    pub fn finished(&mut self, program: &Program) -> Result<()> {
        let done = self.instance.finished();
        done.map_err(|e| e.layer(describe(program, &program.steps[self.step])))
    }
}

/// Neighbouring runs of one stream.
pub(super) struct Segment {
    /// The provider whose stream it is.
    provider: usize,
    runs: Range<usize>,
    /// Whether the stream records, all addresses are fixed, and all instances may be recorded.
    recordable: bool,
    /// It ran once: whatever libraries load at a first run is there.
    warm: bool,
    graph: CapturedGraph,
    /// Whether somebody else reads what it gives, who waits for it and for what went into its stream before.
    awaited: Option<Range<usize>>,
}

/// What a segment runs on.
pub(super) struct CallState<'a> {
    pub program: &'a Executable,
    pub runs: &'a mut [Run],
    pub streams: &'a Entered<'a>,
    pub bases: &'a Bases,
    pub threads: usize,
}

impl Segment {
    /// Cuts runs where the stream changes and, where its stream records, between what may be recorded and what not.
    /// `patched` are the runs whose addresses change.
    ///
    /// # Errors
    /// If a provider has no stream.
    pub fn cut(program: &Program, runs: &[Run], patched: &HashSet<usize>, streams: &Streams) -> Result<Vec<Self>> {
        let mut segments: Vec<Self> = vec![];
        for (at, run) in runs.iter().enumerate() {
            let provider = program.lane(run.step);
            let records = streams.own(provider)?.capture().is_some();
            let recordable = records && !patched.contains(&at) && run.instance.capturable();
            match segments.last_mut() {
                Some(last) if last.provider == provider && last.recordable == recordable => last.runs.end = at + 1,
                _ => segments.push(Self {
                    provider,
                    runs: at..at + 1,
                    recordable,
                    warm: false,
                    graph: CapturedGraph::default(),
                    awaited: None,
                }),
            }
        }
        for neighbours in segments.chunk_by_mut(|a, b| a.provider == b.provider) {
            let first = neighbours[0].runs.start;
            if let Some(last) = neighbours.last_mut() {
                last.awaited = Some(first..last.runs.end);
            }
        }
        Ok(segments)
    }

    /// Runs it, or replays what was recorded; waits for it where somebody else goes on, unless it `lasts`.
    ///
    /// # Errors
    /// If a kernel fails; names the layer.
    pub fn run(&mut self, state: &mut CallState, lasts: bool) -> Result<()> {
        let stream = state.streams.get(self.provider)?;
        if stream.is_capturing() {
            self.refuse_recording(state)?;
        }
        let replays = self.warm && self.recordable && !stream.is_capturing();
        if replays {
            let program = state.program;
            let record = || record(state, self.provider, self.runs.clone(), &HashSet::new());
            self.graph.make(program, record);
        }
        match self.graph.made() {
            Some(recording) if replays => recording.launch(stream)?,
            _ => self.each(state, stream, |program, run, stream| run.run(program, stream))?,
        }
        self.warm = true;
        let Some(awaited) = self.awaited.clone().filter(|_| !lasts) else {
            return Ok(());
        };
        stream.synchronize()?;
        let program = state.program;
        state.runs[awaited].iter_mut().try_for_each(|run| run.finished(program))
    }

    /// Refuses that a caller records what can't be: his recording would leave it out.
    fn refuse_recording(&self, state: &CallState) -> Result<()> {
        let program = state.program;
        let mut runs = state.runs[self.runs.clone()].iter();
        // Copies to and from the caller's arrays run no layer, and he records them.
        let odd = |run: &&Run| !run.instance.capturable() && !program.steps[run.step].layers.is_empty();
        match runs.find(odd).map(|run| &program.steps[run.step]) {
            Some(step) => Err(Error::unsupported("the stream of the caller records what can't be recorded")
                .layer(describe(program, step))
                .hint("call outside of the recording, or let the plugin say `capturable = True` if it may be recorded")),
            None => Ok(()),
        }
    }

    /// Gives up what was recorded at addresses that no longer hold.
    pub fn forget(&mut self) {
        self.graph = CapturedGraph::default();
    }

    /// Runs it kernel by kernel, waiting for each, and says how long each took.
    ///
    /// # Errors
    /// As [`Segment::run`].
    pub fn profile(&self, state: &mut CallState, times: &mut Vec<StepTime>) -> Result<()> {
        let stream = state.streams.get(self.provider)?;
        self.each(state, stream, |program, run, stream| {
            let start = Instant::now();
            run.run(program, stream)?;
            stream.synchronize()?;
            run.finished(program)?;
            times.push(StepTime {
                step: run.step,
                nanoseconds: start.elapsed().as_nanos() as u64,
                implementation: run.instance.implementation(),
            });
            Ok(())
        })
    }

    /// Does something with each run where the provider wants it done.
    fn each(
        &self,
        state: &mut CallState,
        stream: &dyn Stream,
        mut body: impl FnMut(&Program, &mut Run, &dyn Stream) -> Result<()> + Send,
    ) -> Result<()> {
        let program = state.program;
        let mut crossing = Crossing {
            runs: &mut state.runs[self.runs.clone()],
            stream,
        };
        program.providers[self.provider].run(state.threads, &mut || {
            let Crossing { runs, stream } = crossing.get();
            runs.iter_mut().try_for_each(|run| body(program, run, *stream))
        })
    }
}

/// Records runs of one provider, but for some whose numbers are `spared`.
///
/// # Errors
/// If a kernel fails, or its stream can't record.
pub(super) fn record(
    state: &mut CallState,
    provider: usize,
    runs: Range<usize>,
    spared: &HashSet<usize>,
) -> Result<Box<dyn Graph>> {
    let program = state.program;
    let after = dependencies::after(&state.runs[runs.clone()]);
    let mut crossing = Crossing {
        runs: &mut state.runs[runs],
        stream: state.streams.own(provider)?,
    };
    let mut recording = None;
    program.providers[provider].run(state.threads, &mut || {
        let Crossing { runs, stream } = crossing.get();
        let recorder = stream.capture();
        let recorder = recorder.ok_or_else(|| Error::internal("a stream that can't record"))?;
        let mut put = |number: usize, stream: &dyn Stream| match spared.contains(&number) {
            true => Ok(()),
            false => runs[number].run(program, stream),
        };
        recording = Some(Recorded(recorder.graph(&after, &mut put)?));
        Ok(())
    })?;
    let recorded = recording.ok_or_else(|| Error::internal("the provider did not run the job"))?;
    Ok(recorded.0)
}

/// A recording, on its way back.
struct Recorded(Box<dyn Graph>);

/// Runs and their stream, on the way to the provider's thread.
struct Crossing<'a> {
    runs: &'a mut [Run],
    stream: &'a dyn Stream,
}

// SAFETY: the addresses in the runs are vouched for by whoever runs the program; one thread at a time uses runs and
// stream: the one that does the job, while the caller waits for it.
unsafe impl Send for Crossing<'_> {}

impl<'a> Crossing<'a> {
    fn get(&mut self) -> &mut Self {
        self
    }
}
