//! A program at concrete shapes: kernels made ready, addresses decided. Owned by one context.

use crate::device::{Memory, Space};
use crate::error::{Error, Result};
use crate::knobs;
use crate::network::dim::Binding;
use crate::network::guard_pages;
use crate::plan::arena::Placed;
use crate::plan::build_jobs;
use crate::plan::layout::Operand;
use crate::plan::placement::place;
use crate::plan::program::{Command, Program};
use crate::runtime::addresses::{ArenaBases, Linker};
use crate::runtime::bindings::{ArrayAddress, Bindings};
use crate::runtime::constants::{Fixed, fixed_memory};
use crate::runtime::context_memory::{ContextMemory, Resources};
use crate::runtime::dependencies;
use crate::runtime::executable::Executable;
use crate::runtime::graph_cache::GraphCache;
use crate::runtime::hazards;
use crate::runtime::prepare::{PreparedProgram, finish_all, prepare, prepare_command};
use crate::runtime::segment::{CallState, Launch, Segment};
use crate::runtime::streams::CallerStream;
use std::collections::HashSet;
use std::sync::{Arc, Weak};

/// A program at concrete shapes.
pub struct ProgramInstance {
    program: Arc<Executable>,
    launches: Vec<Launch>,
    segments: Vec<Segment>,
    graphs: Option<GraphCache>,
    bindings: Bindings,
    outputs: Vec<Operand>,
    threads: usize,
    memory: ContextMemory,
    /// Bytes of the arena that it uses in each memory.
    needs: Vec<(Space, usize)>,
    /// What is in the arenas, when.
    blocks: Vec<Placed>,
    /// The arenas of the last call. An address may come back with other memory behind it, and a copy in a graph stands for the
    /// allocation, not for its address.
    arenas: Vec<Weak<dyn Memory>>,
    unshared: usize,
    /// Whether the last call returned before its work was done, so that what the device found wrong was not asked for yet.
    in_flight: bool,
    /// The arenas of a call that the caller captured into a graph of his own.
    captured: Option<Vec<Arc<dyn Memory>>>,
    // What addresses of constants point to.
    _fixed: Vec<Fixed>,
}

// SAFETY: the addresses point into memory that the instance owns (fixed), into constants that never change, or, set anew
// before each call, into the arenas of its context or into arrays that the caller of `run` vouches for.
unsafe impl Send for ProgramInstance {}

/// How long a kernel took in one call.
#[derive(Debug, Clone)]
pub struct KernelTime {
    /// The command.
    pub command: usize,
    /// Nanoseconds.
    pub nanoseconds: u64,
    /// Which implementation ran.
    pub implementation: String,
}

impl ProgramInstance {
    /// Makes every kernel ready at these shapes. The arenas are made at the first run.
    ///
    /// # Errors
    /// If a kernel can't serve these shapes; names the layer.
    pub fn new(program: Arc<Executable>, binding: &Binding, memory: &ContextMemory) -> Result<Self> {
        let PreparedProgram {
            program,
            mut places,
            commands,
            threads,
        } = prepare(program, binding)?;
        let fixed = fixed_memory(&program, &places, binding, threads)?;
        let instances = finish_all(&program, commands, &places, binding, threads)?;
        let mut sizes = vec![0; program.commands.len()];
        instances
            .iter()
            .for_each(|(command, instance)| sizes[*command] = instance.workspace);
        let workspaces = places.assign(&program, &sizes);
        let mut linker = Linker {
            program: &program,
            places: &places,
            fixed: &fixed,
            launches: vec![],
            bound: vec![],
        };
        for (command, instance) in instances {
            linker.link(command, instance, workspaces[command]);
        }
        let Linker {
            mut launches, bound, ..
        } = linker;
        dependencies::place_full_barriers(&mut launches, |launch| program.lane(launch.command));
        if cfg!(debug_assertions) || knobs::VERIFY.get()? {
            let scratch: Vec<(usize, usize)> = workspaces.into_iter().zip(sizes).collect();
            hazards::check(&program, &places, &launches, &scratch)?;
        }
        let bindings = Bindings::new(&program, &launches, &places, bound);
        let bound: HashSet<usize> = bindings.bound().collect();
        let mut resources = memory.lock();
        resources.streams.open(&program, &launches)?;
        let captures = !knobs::is_disabled("graphs")?;
        let can_capture = |provider| {
            let stream = resources.streams.own(provider)?;
            Ok::<_, Error>(captures && stream.capture().is_some())
        };
        let segments = Segment::cut(&program, &launches, &bound, can_capture)?;
        let graphs = GraphCache::of(&program, &launches, &bound, |provider| {
            can_capture(provider).unwrap_or(false)
        });
        drop(resources);
        Ok(Self {
            outputs: program
                .outputs
                .iter()
                .map(|&slot| places.operands[slot].clone())
                .collect(),
            launches,
            segments,
            graphs,
            bindings,
            threads,
            unshared: places.unshared_bytes(),
            in_flight: false,
            captured: None,
            memory: memory.clone(),
            needs: places.arenas,
            blocks: places.blocks,
            arenas: vec![],
            _fixed: fixed.into_iter().flatten().collect(),
            program,
        })
    }

    /// The program that it runs: the one that it was made of, perhaps in other forms.
    pub fn program(&self) -> &Arc<Executable> {
        &self.program
    }

    /// dtype and shape of each result.
    pub fn outputs(&self) -> &[Operand] {
        &self.outputs
    }

    /// Bytes that a run needs of the arenas, and of what stands in for the caller's arrays.
    pub fn arena_bytes(&self) -> usize {
        let arenas = self.needs.iter().map(|(_, bytes)| bytes);
        arenas.sum::<usize>() + self.bindings.bytes()
    }

    /// What lies in the arenas, when.
    pub fn blocks(&self) -> &[Placed] {
        &self.blocks
    }

    /// Bytes that the arena would need if nothing in it shared memory.
    pub fn unshared_bytes(&self) -> usize {
        self.unshared
    }

    /// Threads that run it.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Runs the program on the arrays at these places. On a device the work goes into the caller's stream, if he brings one,
    /// and then goes on when the call has returned, where all arrays lie on that device; [`ProgramInstance::finish`] waits
    /// for it. Without one it is done when the call returns.
    ///
    /// # Safety
    /// Each place must be valid for the bytes of its input (to read) or output (to write) until the work is done.
    ///
    /// # Errors
    /// If a kernel fails, or an earlier call found something wrong with its data; names the layer.
    pub unsafe fn run(
        &mut self,
        inputs: &[ArrayAddress],
        outputs: &[ArrayAddress],
        caller: Option<&CallerStream>,
    ) -> Result<()> {
        let memory = self.memory.clone();
        let mut resources = memory.lock();
        self.enter(&mut resources)?;
        let done = self.go(&resources, inputs, outputs, caller);
        if done.is_err() {
            // What went into the streams before the failure must not work on while the next call uses the same memory.
            resources.streams.drain(&self.program, caller);
        }
        done
    }

    /// Moves to the arenas as they are now, which grow if they are too small.
    fn enter(&mut self, resources: &mut Resources) -> Result<()> {
        self.rebase(resources)?;
        if guard_pages::placement().is_some() {
            self.fence(resources);
        }
        Ok(())
    }

    /// Closes what lies between its blocks in the processor's arena, which other programs use too.
    fn fence(&self, resources: &Resources) {
        let host = self.blocks.iter().filter(|placed| placed.space == Space::Host);
        let open: Vec<_> = host
            .map(|placed| placed.offset..placed.offset + placed.block.bytes)
            .collect();
        if let Some(arena) = resources.arena(Space::Host, 1) {
            // SAFETY: an arena of whole pages; the memory is locked, so that nobody else works in it.
            unsafe { guard_pages::fence(arena.address(), arena.bytes(), &open) };
        }
    }

    fn rebase(&mut self, resources: &mut Resources) -> Result<()> {
        let stays = |(&(space, bytes), before): (&(Space, usize), &Weak<dyn Memory>)| {
            let same = |arena: &Arc<dyn Memory>| std::ptr::addr_eq(Arc::as_ptr(arena), before.as_ptr());
            resources.arena(space, bytes).is_some_and(same)
        };
        let same = self.arenas.len() == self.needs.len() && self.needs.iter().zip(&self.arenas).all(stays);
        // A graph of the caller's goes on in the arenas that it was captured in.
        if same || self.is_captured() {
            return Ok(());
        }
        let reserve = |&(space, bytes): &(Space, usize)| {
            let owner = self.program.provider_of(space)?;
            Ok((space, resources.reserve(&**owner, bytes)?))
        };
        let arenas: Vec<(Space, Arc<dyn Memory>)> = self.needs.iter().map(reserve).collect::<Result<_>>()?;
        let bases: ArenaBases = arenas.iter().map(|(space, arena)| (*space, arena.address())).collect();
        self.arenas = arenas.iter().map(|(_, arena)| Arc::downgrade(arena)).collect();
        self.launches.iter_mut().for_each(|launch| launch.rebase(&bases));
        self.segments.iter_mut().for_each(Segment::clear);
        self.graphs.iter_mut().for_each(GraphCache::clear);
        Ok(())
    }

    fn go(
        &mut self,
        resources: &Resources,
        inputs: &[ArrayAddress],
        outputs: &[ArrayAddress],
        caller: Option<&CallerStream>,
    ) -> Result<()> {
        let works_on_host = self
            .needs
            .iter()
            .any(|&(space, bytes)| space == Space::Host && bytes > 0);
        let reads_host = inputs.iter().any(|input| input.space == Space::Host);
        if works_on_host || reads_host {
            // The processor works at once, where a device may still copy from or to the same memory: an arena or a staging buffer.
            resources.streams.synchronize()?;
        }
        let streams = resources.streams.enter(&self.program, caller)?;
        streams.follow_default(&self.program, &[inputs, outputs])?;
        let mut state = CallState {
            program: &self.program,
            launches: &mut self.launches,
            streams: &streams,
            threads: self.threads,
        };
        self.bindings.bind(&mut state, inputs, outputs)?;
        // A graph that the caller captures would read a staging buffer whenever he launches it.
        let may_return = !(reads_host && streams.is_capturing());
        let last = self.segments.last().map(Segment::lane);
        let in_callers = streams
            .callers_lane()
            .is_some_and(|lane| last.is_none_or(|last| last == lane));
        let asynchronous = in_callers && may_return && self.bindings.can_be_asynchronous();
        let launched = match &mut self.graphs {
            Some(graphs) => graphs.launch(&self.bindings, &mut state)?,
            None => false,
        };
        match &self.graphs {
            Some(graphs) if launched && !asynchronous => graphs.synchronize(&mut state)?,
            _ if launched => {}
            _ => launch_segments(&mut self.segments, &mut state, asynchronous)?,
        }
        streams.leave(asynchronous)?;
        self.in_flight = asynchronous;
        if streams.is_capturing() && self.captured.is_none() {
            let arenas = self
                .needs
                .iter()
                .filter_map(|&(space, bytes)| resources.arena(space, bytes));
            self.captured = Some(arenas.cloned().collect());
        }
        if asynchronous {
            Ok(())
        } else {
            self.bindings.write_back(&self.program, &streams)
        }
    }

    /// Whether the caller captured a call into a graph of his own, and so may launch it again in this memory at any time.
    pub fn is_captured(&self) -> bool {
        self.captured.is_some()
    }

    /// Waits for what earlier calls left in the caller's stream.
    ///
    /// # Errors
    /// If some of it failed, or something was wrong with its data; names the layer.
    pub fn finish(&mut self) -> Result<()> {
        self.memory.lock().streams.synchronize()?;
        self.in_flight = false;
        self.check()
    }

    /// Asks for what was wrong with the data of the last call, if it returned before its work was done.
    ///
    /// # Errors
    /// That; names the layer.
    pub fn check_last(&mut self) -> Result<()> {
        if self.in_flight { self.check() } else { Ok(()) }
    }

    /// What the device found wrong with the data of calls that returned before their work was done.
    fn check(&mut self) -> Result<()> {
        let program = &self.program;
        self.launches.iter_mut().try_for_each(|launch| launch.check(program))
    }

    /// As [`ProgramInstance::run`] without a stream, timing each command.
    ///
    /// # Safety
    /// As [`ProgramInstance::run`].
    ///
    /// # Errors
    /// As [`ProgramInstance::run`].
    pub unsafe fn profile(&mut self, inputs: &[ArrayAddress], outputs: &[ArrayAddress]) -> Result<Vec<KernelTime>> {
        let memory = self.memory.clone();
        let mut resources = memory.lock();
        self.enter(&mut resources)?;
        resources.streams.synchronize()?;
        let streams = resources.streams.enter(&self.program, None)?;
        streams.follow_default(&self.program, &[inputs, outputs])?;
        let mut state = CallState {
            program: &self.program,
            launches: &mut self.launches,
            streams: &streams,
            threads: self.threads,
        };
        self.bindings.bind(&mut state, inputs, outputs)?;
        let mut times = vec![];
        for segment in &mut self.segments {
            segment.profile(&mut state, &mut times)?;
        }
        self.bindings.write_back(&self.program, &streams)?;
        Ok(times)
    }

    /// The implementation of each command that is launched.
    pub fn implementations(&self) -> Vec<(usize, String)> {
        self.launches
            .iter()
            .map(|launch| (launch.command, launch.instance.implementation.clone()))
            .collect()
    }
}

impl Drop for ProgramInstance {
    fn drop(&mut self) {
        // Work that is under way would use memory that is freed now. A failure was, or will be, somebody else's to report.
        let _ = self.memory.lock().streams.synchronize();
    }
}

/// Launches segment by segment; an `asynchronous` call does not wait for the last one.
fn launch_segments(segments: &mut [Segment], state: &mut CallState, asynchronous: bool) -> Result<()> {
    let last = segments.len().wrapping_sub(1);
    let mut all = segments.iter_mut().enumerate();
    all.try_for_each(|(at, segment)| segment.launch(state, asynchronous && at == last))
}

/// Compiles what runs on a device, so that it is there when a call comes with these shapes. Plans of libraries, which no file
/// keeps, are left to that call.
///
/// # Errors
/// If a kernel can't serve these shapes; names the layer.
pub fn rehearse(program: &Executable, binding: &Binding) -> Result<()> {
    let places = place(program, program.operands(binding)?);
    let mut jobs = vec![];
    for (number, command) in program.commands.iter().enumerate() {
        if program.providers[command.provider].space() != Space::Host {
            let prepared = prepare_command(program, number, &places, binding, program.threads);
            let prepared = prepared.map_err(|e| e.layer(describe(program, command)))?;
            jobs.extend(prepared.into_iter().flat_map(|prepared| prepared.jobs));
        }
    }
    build_jobs::run(jobs.into_iter().filter(|job| job.is_kept));
    Ok(())
}

/// The names of the layers of a command, for messages.
pub fn describe(program: &Program, command: &Command) -> String {
    let names: Vec<_> = command
        .layers
        .iter()
        .map(|&l| program.network[l].name.as_str())
        .collect();
    if names.is_empty() {
        command.kernel.name()
    } else {
        names.join(" + ")
    }
}
