//! A program at concrete shapes: kernels instantiated, addresses decided. Owned by one context.

use crate::error::{Error, Result};
use crate::network::Source;
use crate::network::array::Array;
use crate::network::dim::Binding;
use crate::plan::layout::{Operand, Space};
use crate::plan::place::{Home, Places, is_ahead, place};
use crate::plan::program::{Program, SlotId, Step, operand};
use crate::plan::{Alias, Call, Instance, Memory, Queue, Recording, Request};
use std::collections::HashSet;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Instant;

/// A program at concrete shapes.
pub struct ProgramInstance {
    program: Arc<Program>,
    runs: Vec<Run>,
    stretches: Vec<Stretch>,
    patches: Vec<Patch>,
    outputs: Vec<Operand>,
    threads: usize,
    /// The queue of each provider that runs something.
    queues: Vec<Option<Box<dyn Queue>>>,
    arenas: Vec<(Space, Box<dyn Memory>)>,
    unshared: usize,
    // What fixed addresses point to.
    _fixed: Vec<Fixed>,
}

/// One kernel with its addresses.
struct Run {
    step: usize,
    instance: Box<dyn Instance>,
    inputs: Vec<*const u8>,
    outputs: Vec<*mut u8>,
    workspace: *mut u8,
}

/// Neighbouring runs of one provider. Those that a queue may record are recorded, and replayed from then on.
struct Stretch {
    provider: usize,
    runs: Range<usize>,
    /// Whether all addresses are fixed, and all instances may be recorded.
    recordable: bool,
    /// It ran once: whatever libraries load at a first run is there.
    warm: bool,
    recording: Option<Box<dyn Recording>>,
    /// Whether somebody else reads what it gives.
    last: bool,
}

/// An address that changes from call to call: that of the caller's array.
struct Patch {
    run: usize,
    operand: usize,
    writes: bool,
    home: Home,
    offset: usize,
}

/// Memory that does not change between calls.
enum Fixed {
    Array(Array),
    Memory(Arc<dyn Memory>),
}

impl Fixed {
    fn address(&self) -> *mut u8 {
        match self {
            Fixed::Array(array) => array.bytes().as_ptr().cast_mut(),
            Fixed::Memory(memory) => memory.address(),
        }
    }
}

// SAFETY: the addresses point into memory that the instance owns (arena, fixed), into constants that never
// change, or (patched at each run) into arrays that the caller of `run` vouches for.
unsafe impl Send for ProgramInstance {}

/// How long one step took in one run.
#[derive(Debug, Clone)]
pub struct StepTime {
    /// The step.
    pub step: usize,
    /// Nanoseconds.
    pub nanoseconds: u64,
    /// Which implementation ran.
    pub implementation: String,
}

/// A program that took less than this when it was tuned runs on the caller's thread: handing over costs more.
const SMALL: f64 = 15_000.0;

impl ProgramInstance {
    /// Instantiates every kernel at these shapes.
    ///
    /// # Errors
    /// If a kernel can't serve these shapes; names the layer.
    pub fn new(program: Arc<Program>, binding: &Binding) -> Result<Self> {
        let operands = program
            .slots
            .iter()
            .map(|slot| operand(&program.network, slot.tensor, slot.layout, binding));
        let operands = operands.collect::<Result<Vec<_>>>()?;
        let threads = threads_for(&program, &operands);
        let mut places = place(&program, operands);
        let fixed = fixed_slots(&program, &places, binding, threads)?;
        let mut instances = vec![];
        for step in (0..program.steps.len()).filter(|&s| !is_ahead(&program, s)) {
            let made = instantiate(&program, step, &places, binding, threads)
                .map_err(|e| e.layer(describe(&program, &program.steps[step])))?;
            instances.extend(made.map(|instance| (step, instance)));
        }
        let mut workspaces = vec![0; program.steps.len()];
        instances
            .iter()
            .for_each(|(step, instance)| workspaces[*step] = instance.workspace());
        let workspaces = places.assign(&program, &workspaces);
        let allocate = |&(space, bytes): &(Space, usize)| {
            let owner = program.providers.iter().find(|p| p.space() == space);
            let owner = owner.ok_or_else(|| Error::internal("nobody owns a memory"))?;
            Ok((space, owner.allocate(bytes)?))
        };
        let arenas = places.arenas.iter().map(allocate).collect::<Result<_>>()?;
        let mut this = Self {
            outputs: program
                .outputs
                .iter()
                .map(|&slot| places.operands[slot].clone())
                .collect(),
            runs: vec![],
            stretches: vec![],
            patches: vec![],
            threads,
            unshared: places.unshared_bytes(),
            queues: program.providers.iter().map(|_| None).collect(),
            arenas,
            _fixed: vec![],
            program,
        };
        for (step, instance) in instances {
            this.link(step, instance, &places, &fixed, workspaces[step]);
        }
        this._fixed = fixed.into_iter().flatten().collect();
        this.stretch();
        for provider in this.stretches.iter().map(|stretch| stretch.provider) {
            if this.queues[provider].is_none() {
                this.queues[provider] = Some(this.program.providers[provider].queue()?);
            }
        }
        Ok(this)
    }

    /// Cuts the runs where the provider changes, and where something may not be recorded.
    fn stretch(&mut self) {
        let patched: HashSet<usize> = self.patches.iter().map(|patch| patch.run).collect();
        let mut stretches: Vec<Stretch> = vec![];
        for (at, run) in self.runs.iter().enumerate() {
            let provider = self.program.steps[run.step].provider;
            let recordable = !patched.contains(&at) && run.instance.capturable();
            match stretches.last_mut() {
                Some(last) if last.provider == provider && last.recordable == recordable => last.runs.end = at + 1,
                before => {
                    if let Some(before) = before {
                        before.last = before.provider != provider;
                    }
                    stretches.push(Stretch {
                        provider,
                        runs: at..at + 1,
                        recordable,
                        warm: false,
                        recording: None,
                        last: true,
                    });
                }
            }
        }
        self.stretches = stretches;
    }

    fn arena(&self, space: Space) -> *mut u8 {
        let arena = self.arenas.iter().find(|(of, _)| *of == space);
        arena.map_or(std::ptr::null_mut(), |(_, memory)| memory.address())
    }

    fn link(
        &mut self,
        step: usize,
        instance: Box<dyn Instance>,
        places: &Places,
        fixed: &[Option<Fixed>],
        workspace: usize,
    ) {
        let run = self.runs.len();
        let mut patches = vec![];
        let mut address = |slots: &[SlotId], writes: bool| -> Vec<*mut u8> {
            let one = |(operand, &slot): (usize, &SlotId)| {
                let (home, offset) = (places.homes[slot], places.offsets[slot]);
                match home {
                    Home::Arena(start) => self.arena(self.program.slots[slot].space).wrapping_add(start + offset),
                    Home::Fixed => {
                        // A view of a constant lies where the constant does.
                        let held = fixed[slot].as_ref().or(fixed[places.root(slot)].as_ref());
                        held.map_or(std::ptr::null_mut(), |held| held.address().wrapping_add(offset))
                    }
                    Home::Input(_) | Home::Output(_) => {
                        patches.push(Patch {
                            run,
                            operand,
                            writes,
                            home,
                            offset,
                        });
                        std::ptr::null_mut()
                    }
                }
            };
            slots.iter().enumerate().map(one).collect()
        };
        let ProgramStep { inputs, outputs } = slots_of(&self.program.steps[step]);
        let inputs = address(&inputs, false).into_iter().map(|p| p.cast_const()).collect();
        let outputs = address(&outputs, true);
        let provider = &self.program.providers[self.program.steps[step].provider];
        let workspace = self.arena(provider.space()).wrapping_add(workspace);
        self.patches.extend(patches);
        self.runs.push(Run {
            step,
            instance,
            inputs,
            outputs,
            workspace,
        });
    }

    /// dtype and shape of each result.
    pub fn outputs(&self) -> &[Operand] {
        &self.outputs
    }

    /// Bytes of the arenas.
    pub fn arena_bytes(&self) -> usize {
        self.arenas.iter().map(|(_, arena)| arena.bytes()).sum()
    }

    /// Bytes that the arena would need if nothing in it shared memory.
    pub fn unshared_bytes(&self) -> usize {
        self.unshared
    }

    /// Threads that run it.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Runs the program on the arrays at these addresses.
    ///
    /// # Safety
    /// Each address must be valid for the bytes of its input (to read) or output (to write) during the call.
    ///
    /// # Errors
    /// If a kernel fails; names the layer.
    pub unsafe fn run(&mut self, inputs: &[*const u8], outputs: &[*mut u8]) -> Result<()> {
        self.patch(inputs, outputs);
        let Self {
            program,
            runs,
            stretches,
            queues,
            threads,
            ..
        } = self;
        for stretch in stretches {
            let queue = queue_of(queues, stretch.provider)?;
            stretch.run(program, &mut runs[stretch.runs.clone()], queue, *threads)?;
            if stretch.last {
                queue.finish()?;
            }
        }
        Ok(())
    }

    /// As [`ProgramInstance::run`], timing each step.
    ///
    /// # Safety
    /// As [`ProgramInstance::run`].
    ///
    /// # Errors
    /// As [`ProgramInstance::run`].
    pub unsafe fn profile(&mut self, inputs: &[*const u8], outputs: &[*mut u8]) -> Result<Vec<StepTime>> {
        self.patch(inputs, outputs);
        let mut times = vec![];
        let Self {
            program,
            runs,
            stretches,
            queues,
            threads,
            ..
        } = self;
        for stretch in stretches {
            let queue = Shared(queue_of(queues, stretch.provider)?);
            each(
                program,
                &mut runs[stretch.runs.clone()],
                stretch.provider,
                *threads,
                |run| {
                    let start = Instant::now();
                    run.run(program, queue.get())?;
                    queue.get().finish()?;
                    times.push(StepTime {
                        step: run.step,
                        nanoseconds: start.elapsed().as_nanos() as u64,
                        implementation: run.instance.implementation(),
                    });
                    Ok(())
                },
            )?;
        }
        Ok(times)
    }

    /// The implementation of each step that runs.
    pub fn implementations(&self) -> Vec<(usize, String)> {
        self.runs
            .iter()
            .map(|run| (run.step, run.instance.implementation()))
            .collect()
    }

    fn patch(&mut self, inputs: &[*const u8], outputs: &[*mut u8]) {
        for patch in &self.patches {
            let run = &mut self.runs[patch.run];
            let base = match patch.home {
                Home::Input(i) => inputs[i].cast_mut(),
                Home::Output(i) => outputs[i],
                Home::Arena(_) | Home::Fixed => continue,
            };
            let address = base.wrapping_add(patch.offset);
            if patch.writes {
                run.outputs[patch.operand] = address
            } else {
                run.inputs[patch.operand] = address
            }
        }
    }
}

impl Stretch {
    fn run(&mut self, program: &Program, runs: &mut [Run], queue: &dyn Queue, threads: usize) -> Result<()> {
        if let Some(recording) = &mut self.recording {
            return recording.replay();
        }
        let shared = Shared(queue);
        let mut all = || {
            each(program, runs, self.provider, threads, |run| {
                run.run(program, shared.get())
            })
        };
        if self.warm && self.recordable {
            self.recording = queue.record(&mut all)?;
            // Whoever can't record once never can.
            self.recordable = self.recording.is_some();
            if let Some(recording) = &mut self.recording {
                return recording.replay();
            }
        }
        self.warm = true;
        all()
    }
}

/// Does something with each of some runs where their provider wants it done.
fn each(
    program: &Program,
    runs: &mut [Run],
    provider: usize,
    threads: usize,
    mut body: impl FnMut(&mut Run) -> Result<()> + Send,
) -> Result<()> {
    let mut segment = Segment(runs);
    program.providers[provider].run(threads, &mut || segment.get().iter_mut().try_for_each(&mut body))
}

fn queue_of(queues: &[Option<Box<dyn Queue>>], provider: usize) -> Result<&dyn Queue> {
    let queue = queues[provider].as_deref();
    queue.ok_or_else(|| Error::internal("a provider has no queue"))
}

/// A queue that crosses to the provider's thread.
struct Shared<'a>(&'a dyn Queue);

// SAFETY: one thread at a time uses the queue: the one that runs the job, while the caller waits for it.
unsafe impl Send for Shared<'_> {}
// SAFETY: as above.
unsafe impl Sync for Shared<'_> {}

impl Shared<'_> {
    fn get(&self) -> &dyn Queue {
        self.0
    }
}

/// A stretch of steps that crosses to the provider's thread.
struct Segment<'a>(&'a mut [Run]);

// SAFETY: as for ProgramInstance; the segment is borrowed exclusively for the duration of the job.
unsafe impl Send for Segment<'_> {}

impl Segment<'_> {
    fn get(&mut self) -> &mut [Run] {
        self.0
    }
}

impl Run {
    fn run(&mut self, program: &Program, queue: &dyn Queue) -> Result<()> {
        let call = Call {
            inputs: &self.inputs,
            outputs: &self.outputs,
            workspace: self.workspace,
            queue: queue.raw(),
        };
        self.instance
            .run(&call)
            .map_err(|e| e.layer(describe(program, &program.steps[self.step])))
    }
}

struct ProgramStep {
    inputs: Vec<SlotId>,
    outputs: Vec<SlotId>,
}

fn slots_of(step: &Step) -> ProgramStep {
    ProgramStep {
        inputs: step.inputs.clone(),
        outputs: step.outputs.clone(),
    }
}

/// The names of the layers of a step, for messages.
pub fn describe(program: &Program, step: &Step) -> String {
    let names: Vec<_> = step.layers.iter().map(|&l| program.network[l].name.as_str()).collect();
    if names.is_empty() {
        step.kernel.name()
    } else {
        names.join(" + ")
    }
}

/// One thread for a program that is over before others could help.
fn threads_for(program: &Program, operands: &[Operand]) -> usize {
    let time: f64 = program.steps.iter().map(|s| s.time).sum();
    /// Elements that a kernel goes through in about the time of a hand-over.
    const FEW: usize = 4096;
    // Reorders and what only moves data are not timed; the sizes of their operands tell enough.
    let timed = |step: &Step| step.time > 0.0 || step.layers.is_empty() || step.kernel.alias() != Alias::None;
    let timed = program.steps.iter().all(timed);
    let short = timed && time < SMALL && operands.iter().all(|o| o.elements() <= FEW);
    if short { 1 } else { program.threads }
}

/// Instantiates a step; `None` if there is nothing to do: no element to compute, or operands that lie in one another.
fn instantiate(
    program: &Program,
    step: usize,
    places: &Places,
    binding: &Binding,
    threads: usize,
) -> Result<Option<Box<dyn Instance>>> {
    let step = &program.steps[step];
    let mut inputs: Vec<_> = step.inputs.iter().map(|&s| places.operands[s].clone()).collect();
    let mut outputs: Vec<_> = step.outputs.iter().map(|&s| places.operands[s].clone()).collect();
    if outputs.iter().all(Operand::is_empty) {
        return Ok(None);
    }
    match step.kernel.alias() {
        Alias::Reshape if places.shares(step.inputs[0], step.outputs[0]) => return Ok(None),
        Alias::Concat(_) => {
            for (operand, &slot) in inputs.iter_mut().zip(&step.inputs) {
                operand.in_place = places.shares(slot, step.outputs[0]);
            }
            if inputs.iter().all(|o| o.in_place) {
                return Ok(None);
            }
        }
        Alias::Split(..) => {
            for (operand, &slot) in outputs.iter_mut().zip(&step.outputs) {
                operand.in_place = places.shares(slot, step.inputs[0]);
            }
            if outputs.iter().all(|o| o.in_place) {
                return Ok(None);
            }
        }
        _ => {
            for (i, o) in step.kernel.in_place() {
                inputs[i].in_place = places.shares(step.inputs[i], step.outputs[o]);
            }
        }
    }
    let request = Request {
        form: &step.form,
        inputs: &inputs,
        outputs: &outputs,
        binding,
        threads,
    };
    create(program, step, &request).map(Some)
}

/// Instantiates a kernel where its provider wants it made.
fn create(program: &Program, step: &Step, request: &Request) -> Result<Box<dyn Instance>> {
    let mut instance = None;
    program.providers[step.provider].run(request.threads, &mut || {
        instance = Some(step.kernel.instantiate(request)?);
        Ok(())
    })?;
    instance.ok_or_else(|| Error::internal("the provider did not run the job"))
}

/// The memory of every fixed slot: constants, symbolic values, and constants brought to another layout.
fn fixed_slots(program: &Program, places: &Places, binding: &Binding, threads: usize) -> Result<Vec<Option<Fixed>>> {
    let mut fixed: Vec<Option<Fixed>> = program.slots.iter().map(|_| None).collect();
    for (i, slot) in program
        .slots
        .iter()
        .enumerate()
        .filter(|(i, _)| places.homes[*i] == Home::Fixed)
    {
        let tensor = &program.network[slot.tensor];
        fixed[i] = match &tensor.source {
            Source::Constant(constant) => Some(Fixed::Array(constant.array.clone())),
            Source::Symbolic => {
                let values = tensor
                    .ty
                    .value
                    .iter()
                    .flatten()
                    .map(|d| d.eval(binding))
                    .collect::<Result<Vec<_>>>()?;
                let shape = places.operands[i].shape.clone();
                Some(Fixed::Array(Array::from_i64(tensor.ty.dtype, shape, &values)?))
            }
            _ => None,
        };
    }
    for index in (0..program.steps.len()).filter(|&s| is_ahead(program, s)) {
        let (input, output) = (program.steps[index].inputs[0], program.steps[index].outputs[0]);
        let source = fixed[input]
            .as_ref()
            .map(Fixed::address)
            .ok_or_else(|| Error::internal("a constant has no memory"))?;
        let constant = matches!(
            program.network[program.slots[output].tensor].source,
            Source::Constant(_)
        );
        let mut kept = program.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let before = kept.get(&output).and_then(Weak::upgrade).filter(|_| constant);
        let memory = match before {
            Some(memory) => memory,
            None => reorder_ahead(program, index, places, binding, threads, source)?,
        };
        if constant {
            kept.insert(output, Arc::downgrade(&memory));
        }
        fixed[output] = Some(Fixed::Memory(memory));
    }
    Ok(fixed)
}

/// Runs a step on a constant, once for all calls.
fn reorder_ahead(
    program: &Program,
    step: usize,
    places: &Places,
    binding: &Binding,
    threads: usize,
    source: *const u8,
) -> Result<Arc<dyn Memory>> {
    let step = &program.steps[step];
    let (inputs, outputs) = (
        [places.operands[step.inputs[0]].clone()],
        [places.operands[step.outputs[0]].clone()],
    );
    let request = Request {
        form: &step.form,
        inputs: &inputs,
        outputs: &outputs,
        binding,
        threads,
    };
    let owner = |space: Space| program.providers.iter().find(|p| p.space() == space);
    let owner = owner(program.slots[step.outputs[0]].space).ok_or_else(|| Error::internal("nobody owns a memory"))?;
    let target: Arc<dyn Memory> = Arc::from(owner.allocate(outputs[0].bytes())?);
    let provider = &program.providers[step.provider];
    let mut instance = create(program, step, &request)?;
    let workspace = provider.allocate(instance.workspace())?;
    let queue = provider.queue()?;
    let (from, to, raw) = (source as usize, target.address() as usize, queue.raw() as usize);
    provider.run(threads, &mut || {
        let call = Call {
            inputs: &[from as *const u8],
            outputs: &[to as *mut u8],
            workspace: workspace.address(),
            queue: raw as *mut c_void,
        };
        instance.run(&call)
    })?;
    queue.finish()?;
    Ok(target)
}
