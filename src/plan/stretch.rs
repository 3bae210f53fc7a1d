//! Neighbouring runs of one queue, which go into its queue together: recorded and replayed where it can record.

use crate::error::{Error, Result};
use crate::interrupt;
use crate::plan::instance::{StepTime, describe};
use crate::plan::linking::{Bases, Spots};
use crate::plan::order::{self, Touched};
use crate::plan::program::Program;
use crate::plan::queues::{Entered, Queues};
use crate::plan::tape::Tape;
use crate::plan::{Call, Instance, Queue, Recording};
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
    pub parted: bool,
    spots: Spots,
}

impl Run {
    /// A run without addresses yet.
    pub fn new(step: usize, instance: Box<dyn Instance>, spots: Spots, touched: Touched) -> Self {
        Self {
            step,
            instance,
            inputs: vec![std::ptr::null(); spots.inputs.len()],
            outputs: vec![std::ptr::null_mut(); spots.outputs.len()],
            workspace: std::ptr::null_mut(),
            touched,
            parted: false,
            spots,
        }
    }

    /// Takes its place in the arenas.
    pub fn settle(&mut self, bases: &Bases) {
        for (input, address) in self
            .inputs
            .iter_mut()
            .zip(self.spots.inputs.iter().map(|spot| spot.address(bases)))
        {
            *input = address.map_or(*input, <*mut u8>::cast_const);
        }
        for (output, address) in self
            .outputs
            .iter_mut()
            .zip(self.spots.outputs.iter().map(|spot| spot.address(bases)))
        {
            *output = address.unwrap_or(*output);
        }
        self.workspace = self.spots.workspace.address(bases).unwrap_or(self.workspace);
    }

    fn run(&mut self, program: &Program, queue: &dyn Queue) -> Result<()> {
        interrupt::poll()?;
        let call = Call {
            inputs: &self.inputs,
            outputs: &self.outputs,
            workspace: self.workspace,
            queue: queue.raw(),
        };
        let parted = match self.parted {
            true => program.providers[program.lane(self.step)].part(queue),
            false => Ok(()),
        };
        parted
            .and_then(|()| self.instance.run(&call))
            .map_err(|e| e.layer(describe(program, &program.steps[self.step])))
    }

    pub fn finished(&mut self, program: &Program) -> Result<()> {
        let done = self.instance.finished();
        done.map_err(|e| e.layer(describe(program, &program.steps[self.step])))
    }
}

/// Neighbouring runs of one queue.
pub(super) struct Stretch {
    /// The provider whose queue it is.
    provider: usize,
    runs: Range<usize>,
    /// Whether the queue records, all addresses are fixed, and all instances may be recorded.
    recordable: bool,
    /// It ran once: whatever libraries load at a first run is there.
    warm: bool,
    tape: Tape,
    /// Whether somebody else reads what it gives, who waits for it and for what went into its queue before.
    awaited: Option<Range<usize>>,
}

/// What a stretch runs on.
pub(super) struct Running<'a> {
    pub program: &'a Program,
    pub runs: &'a mut [Run],
    pub queues: &'a Entered<'a>,
    pub bases: &'a Bases,
    pub threads: usize,
}

impl Stretch {
    /// Cuts runs where the queue changes and, where its queue records, between what may be recorded and what not.
    /// `patched` are the runs whose addresses change.
    ///
    /// # Errors
    /// If a provider has no queue.
    pub fn cut(program: &Program, runs: &[Run], patched: &HashSet<usize>, queues: &Queues) -> Result<Vec<Self>> {
        let mut stretches: Vec<Self> = vec![];
        for (at, run) in runs.iter().enumerate() {
            let provider = program.lane(run.step);
            let records = queues.own(provider)?.recorder().is_some();
            let recordable = records && !patched.contains(&at) && run.instance.capturable();
            match stretches.last_mut() {
                Some(last) if last.provider == provider && last.recordable == recordable => last.runs.end = at + 1,
                _ => stretches.push(Self {
                    provider,
                    runs: at..at + 1,
                    recordable,
                    warm: false,
                    tape: Tape::default(),
                    awaited: None,
                }),
            }
        }
        for neighbours in stretches.chunk_by_mut(|a, b| a.provider == b.provider) {
            let first = neighbours[0].runs.start;
            if let Some(last) = neighbours.last_mut() {
                last.awaited = Some(first..last.runs.end);
            }
        }
        Ok(stretches)
    }

    /// Runs it, or replays what was recorded; waits for it where somebody else goes on, unless it `lasts`.
    ///
    /// # Errors
    /// If a kernel fails; names the layer.
    pub fn run(&mut self, running: &mut Running, lasts: bool) -> Result<()> {
        let queue = running.queues.get(self.provider)?;
        if queue.is_recording() {
            self.refuse_recording(running)?;
        }
        let replays = self.warm && self.recordable && !queue.is_recording();
        if replays {
            let program = running.program;
            let record = || record(running, self.provider, self.runs.clone(), &HashSet::new());
            self.tape.make(program, record);
        }
        match self.tape.made() {
            Some(recording) if replays => recording.replay(queue)?,
            _ => self.each(running, queue, |program, run, queue| run.run(program, queue))?,
        }
        self.warm = true;
        let Some(awaited) = self.awaited.clone().filter(|_| !lasts) else {
            return Ok(());
        };
        queue.finish()?;
        let program = running.program;
        running.runs[awaited]
            .iter_mut()
            .try_for_each(|run| run.finished(program))
    }

    /// Refuses that a caller records what can't be: his recording would leave it out.
    fn refuse_recording(&self, running: &Running) -> Result<()> {
        let program = running.program;
        let mut runs = running.runs[self.runs.clone()].iter();
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
        self.tape = Tape::default();
    }

    /// Runs it kernel by kernel, waiting for each, and says how long each took.
    ///
    /// # Errors
    /// As [`Stretch::run`].
    pub fn profile(&self, running: &mut Running, times: &mut Vec<StepTime>) -> Result<()> {
        let queue = running.queues.get(self.provider)?;
        self.each(running, queue, |program, run, queue| {
            let start = Instant::now();
            run.run(program, queue)?;
            queue.finish()?;
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
        running: &mut Running,
        queue: &dyn Queue,
        mut body: impl FnMut(&Program, &mut Run, &dyn Queue) -> Result<()> + Send,
    ) -> Result<()> {
        let program = running.program;
        let mut crossing = Crossing {
            runs: &mut running.runs[self.runs.clone()],
            queue,
        };
        program.providers[self.provider].run(running.threads, &mut || {
            let Crossing { runs, queue } = crossing.get();
            runs.iter_mut().try_for_each(|run| body(program, run, *queue))
        })
    }
}

/// Records runs of one provider, but for some whose numbers are `spared`.
///
/// # Errors
/// If a kernel fails, or its queue can't record.
pub(super) fn record(
    running: &mut Running,
    provider: usize,
    runs: Range<usize>,
    spared: &HashSet<usize>,
) -> Result<Box<dyn Recording>> {
    let program = running.program;
    let after = order::after(&running.runs[runs.clone()]);
    let mut crossing = Crossing {
        runs: &mut running.runs[runs],
        queue: running.queues.own(provider)?,
    };
    let mut recording = None;
    program.providers[provider].run(running.threads, &mut || {
        let Crossing { runs, queue } = crossing.get();
        let recorder = queue.recorder();
        let recorder = recorder.ok_or_else(|| Error::internal("a queue that can't record"))?;
        let mut put = |number: usize, queue: &dyn Queue| match spared.contains(&number) {
            true => Ok(()),
            false => runs[number].run(program, queue),
        };
        recording = Some(Recorded(recorder.record(&after, &mut put)?));
        Ok(())
    })?;
    let recorded = recording.ok_or_else(|| Error::internal("the provider did not run the job"))?;
    Ok(recorded.0)
}

/// A recording, on its way back.
struct Recorded(Box<dyn Recording>);

/// Runs and their queue, on the way to the provider's thread.
struct Crossing<'a> {
    runs: &'a mut [Run],
    queue: &'a dyn Queue,
}

// SAFETY: the addresses in the runs are vouched for by whoever runs the program; one thread at a time uses runs and
// queue: the one that does the job, while the caller waits for it.
unsafe impl Send for Crossing<'_> {}

impl<'a> Crossing<'a> {
    fn get(&mut self) -> &mut Self {
        self
    }
}
