//! A provider for tests, which computes with the reference.

mod fault;

pub use fault::Fault;
use neurenix::context::{ExecutionContext, TensorSpec};
use neurenix::device::{Capture, Device, Event, Graph, Host, Memory, NumberedJob, Space, Stream};
use neurenix::engine::Engine;
use neurenix::error::{Error, Result};
use neurenix::network::array::{Array, Buffer};
use neurenix::network::attr::{Attrs, attrs};
use neurenix::network::dtype::DType;
use neurenix::network::op::{OpDef, TensorType};
use neurenix::network::{LayerId, Network, TensorId, reference};
use neurenix::plan::layout::{Layout, Operand};
use neurenix::plan::{
    Alias, Call, Candidate, Form, Instance, Job, Kernel, Launcher, Offer, Prepared, Provider, Tactic,
};
use neurenix::plan::{Refusal, Request, Settings};
use neurenix::runtime::bindings::ArrayAddress;
use neurenix::runtime::streams::CallerStream;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A provider that computes with the reference. A far one has memory of its own, may leave some ops alone, and records.
#[derive(Clone)]
pub struct Toy {
    /// The device whose memory it works in; none: the processor.
    pub far: Option<u32>,
    /// It leaves nothing alone.
    pub all: bool,
    pub room: Arc<Room>,
    /// What is wrong with the first of its two forms for an op.
    pub fault: Option<(&'static str, Fault)>,
    /// The largest batch that the first of its two forms serves.
    pub largest_batch: Option<usize>,
    /// Nanoseconds of a kernel whose operands are slices, where they differ from those of others.
    pub slice_time: Option<u64>,
}

impl Toy {
    pub fn new(far: bool, all: bool) -> Self {
        let room = Arc::default();
        let far = far.then_some(0);
        Self {
            far,
            all,
            room,
            fault: None,
            largest_batch: None,
            slice_time: None,
        }
    }
}

/// The memory that a provider gives out.
pub struct Room {
    pub taken: AtomicUsize,
    pub size: AtomicUsize,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            taken: AtomicUsize::new(0),
            size: AtomicUsize::new(usize::MAX),
        }
    }
}

/// One layer on the reference; with no op it copies, between the memories where it transfers.
#[derive(Clone)]
struct ToyKernel {
    op: Option<&'static OpDef>,
    attrs: Attrs,
    constants: Vec<Option<Array>>,
    inputs: usize,
    far: Option<u32>,
    transfers: bool,
    fault: Option<Fault>,
    largest_batch: Option<usize>,
    times_slices: bool,
}

#[derive(Clone)]
struct ToyInstance {
    kernel: ToyKernel,
    inputs: Vec<Operand>,
    output: Operand,
}

/// What is added to an address in the memory of device 0, and twice that in the memory of device 1: nothing can be read there.
pub const AWAY: usize = 1 << 62;

/// What is added to an address there.
fn away(far: Option<u32>) -> usize {
    far.map_or(0, |device| AWAY * (device as usize + 1))
}

pub struct ToyMemory {
    buffer: Buffer,
    away: usize,
    room: Arc<Room>,
}

impl Memory for ToyMemory {
    fn address(&self) -> *mut u8 {
        self.buffer.as_ptr().map_addr(|address| address + self.away)
    }
    fn bytes(&self) -> usize {
        self.buffer.len()
    }
}

impl Drop for ToyMemory {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.buffer.len(), Ordering::Relaxed);
    }
}

type Command = Arc<dyn Fn() -> Result<()> + Send + Sync>;

/// Runs what comes in at once, or keeps it while it is recorded.
#[derive(Default)]
pub struct FarStream(Mutex<Option<Vec<Command>>>);

impl Stream for FarStream {
    fn raw(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }
    fn capture(&self) -> Option<&dyn Capture> {
        Some(self)
    }
}

impl Capture for FarStream {
    /// Keeps the jobs in an order that is far from theirs: the last one comes first of those that wait for nobody.
    fn graph(&self, after: &[Vec<usize>], job: NumberedJob) -> Result<Box<dyn Graph>> {
        let mut jobs = vec![];
        for number in 0..after.len() {
            *self.0.lock().unwrap() = Some(vec![]);
            job(number, self)?;
            jobs.push(self.0.lock().unwrap().take().unwrap());
            RECORDED.fetch_add(1, Ordering::Relaxed);
        }
        let mut order: Vec<usize> = vec![];
        let next = |order: &[usize]| {
            let ready = |job: &usize| !order.contains(job) && after[*job].iter().all(|other| order.contains(other));
            (0..after.len()).rev().find(ready)
        };
        while let Some(job) = next(&order) {
            order.push(job);
        }
        assert_eq!(order.len(), after.len());
        let commands = order.into_iter().flat_map(|number| jobs[number].clone()).collect();
        Ok(Box::new(Captured(commands)))
    }
}

pub static RECORDED: AtomicUsize = AtomicUsize::new(0);

struct Captured(Vec<Command>);

impl Graph for Captured {
    fn launch(&mut self, _: &dyn Stream) -> Result<()> {
        self.0.iter().try_for_each(|command| command())
    }
    fn has_only_kernels(&self) -> bool {
        false
    }
}

/// A far stream of the caller's.
struct Adopted(*mut c_void);

// SAFETY: the stream behind it may be used from any thread.
unsafe impl Send for Adopted {}

impl Stream for Adopted {
    fn raw(&self) -> *mut c_void {
        self.0
    }
}

impl Device for Toy {
    fn space(&self) -> Space {
        self.far.map_or(Space::Host, Space::Device)
    }
    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>> {
        let Room { taken, size } = &*self.room;
        if taken.load(Ordering::Relaxed) + bytes > size.load(Ordering::Relaxed) {
            return Err(Error::memory("the room is full"));
        }
        taken.fetch_add(bytes, Ordering::Relaxed);
        Ok(Box::new(ToyMemory {
            buffer: Buffer::try_zeroed(bytes)?,
            away: away(self.far),
            room: self.room.clone(),
        }))
    }
    fn allocate_staging(&self, bytes: usize) -> Result<Box<dyn Memory>> {
        Host.allocate(bytes)
    }
    fn stream(&self) -> Result<Box<dyn Stream>> {
        Ok(if self.far.is_some() {
            Box::new(FarStream::default())
        } else {
            Box::new(Host)
        })
    }
    unsafe fn adopt(&self, raw: *mut c_void) -> Box<dyn Stream> {
        Box::new(Adopted(raw))
    }
    unsafe fn copy(&self, to: *mut u8, from: *const u8, bytes: usize, _: &dyn Stream) -> Result<()> {
        let (to, from) = (to.map_addr(|at| at % AWAY), from.map_addr(|at| at % AWAY));
        // SAFETY: the caller's promise.
        unsafe { to.copy_from_nonoverlapping(from, bytes) };
        Ok(())
    }
    fn event(&self) -> Result<Box<dyn Event>> {
        Ok(Box::new(Host))
    }
    fn follow_default(&self, _: &dyn Stream) -> Result<()> {
        Ok(())
    }
    fn full_barrier(&self, _: &dyn Stream) -> Result<()> {
        Ok(())
    }
    fn allocation_at(&self, _: *const u8) -> Option<u64> {
        None
    }
    fn reaches(&self, _: *const u8) -> bool {
        true
    }
}

impl Provider for Toy {
    fn name(&self) -> &'static str {
        match self.far {
            None => "toy",
            Some(0) => "far",
            Some(_) => "farther",
        }
    }
    fn conditions(&self, _: &Settings) -> Vec<(String, String)> {
        vec![]
    }
    fn device(&self) -> &dyn Device {
        self
    }
    fn compute_dtype(&self, dtype: DType) -> DType {
        dtype
    }
    fn candidates(&self, network: &Network, layer: LayerId, _: &Settings) -> Offer {
        let l = &network[layer];
        if self.far.is_some() && !self.all && matches!(l.op.name, "Relu" | "Reshape") {
            return Err(Refusal {
                provider: self.name().into(),
                layer: l.name.clone(),
                reason: "left to the other".into(),
                hint: String::new(),
            });
        }
        let constants: Vec<_> = l
            .inputs
            .iter()
            .map(|t| t.and_then(|t| network[t].constant().cloned()))
            .collect();
        let inputs: Vec<TensorId> = l
            .inputs
            .iter()
            .flatten()
            .copied()
            .filter(|&t| network[t].constant().is_none())
            .collect();
        let kernel = ToyKernel {
            op: Some(l.op),
            attrs: l.attrs.clone(),
            constants,
            inputs: inputs.len(),
            far: self.far,
            transfers: false,
            fault: self.fault.filter(|(op, _)| *op == l.op.name).map(|(_, fault)| fault),
            largest_batch: self.largest_batch,
            times_slices: self.slice_time.is_some(),
        };
        let kernel: Arc<dyn Kernel> = Arc::new(kernel);
        Ok(vec![Candidate {
            kernel,
            layers: vec![layer],
            inputs,
            outputs: l.outputs.clone(),
        }])
    }
    fn reorder(&self, _: Layout, _: Layout, _: &TensorType) -> Arc<dyn Kernel> {
        Arc::new(self.copy(false))
    }
    fn transfer(&self) -> Option<Arc<dyn Kernel>> {
        self.far.map(|_| Arc::new(self.copy(true)) as Arc<dyn Kernel>)
    }
    fn time(&self, _: &mut Instance, request: &Request) -> Result<u64> {
        let mut all = request.inputs.iter().chain(request.outputs);
        let sliced = all.any(|operand| operand.parent_channels.is_some());
        Ok(self.slice_time.filter(|_| sliced).unwrap_or(1000))
    }
    fn run(&self, _: usize, job: Job) -> Result<()> {
        job()
    }
}

impl Toy {
    fn copy(&self, transfers: bool) -> ToyKernel {
        ToyKernel {
            op: None,
            attrs: attrs([]),
            constants: vec![None],
            inputs: 1,
            far: self.far,
            transfers,
            fault: None,
            largest_batch: None,
            times_slices: false,
        }
    }
}

impl ToyKernel {
    fn moves(&self) -> Alias {
        match self.op.map(|op| op.name) {
            Some("Concat") => Alias::Concat(1),
            Some("Reshape") => Alias::Reshape,
            _ => Alias::None,
        }
    }
}

impl Kernel for ToyKernel {
    fn name(&self) -> String {
        self.op.map_or("copy", |op| op.name).into()
    }
    fn identity(&self) -> String {
        self.name()
    }
    fn forms(&self) -> Vec<Form> {
        let form = |number| Form {
            tactic: Tactic::new("toy", number),
            inputs: vec![Layout::Plain; self.inputs],
            outputs: vec![Layout::Plain],
        };
        let faulty = self.fault.is_some_and(|fault| fault != Fault::InEveryForm);
        let count = if faulty || self.largest_batch.is_some() { 2 } else { 1 };
        (0..count).map(form).collect()
    }
    fn alias(&self, _: &Form) -> Alias {
        self.moves()
    }
    fn in_place(&self) -> Vec<(usize, usize)> {
        if self.moves() == Alias::None && !self.transfers {
            (0..self.inputs).map(|i| (i, 0)).collect()
        } else {
            vec![]
        }
    }
    fn takes_slices(&self, _: &Form) -> (bool, bool) {
        let takes = self.moves() != Alias::Reshape && !self.transfers;
        (takes, takes)
    }
    fn times_slices(&self, _: &Form) -> bool {
        self.times_slices
    }
    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let too_large = |&most: &usize| request.form.tactic.number() == 0 && request.outputs[0].shape[0] > most;
        if let Some(most) = self.largest_batch.filter(too_large) {
            let error = Error::unsupported("the batch is too large").expected(format!("at most {most}"));
            // What a far device takes is seen when a kernel is compiled for it.
            return match self.far {
                None => Err(error),
                Some(_) => Ok(Prepared::deferred(vec![], move || Err(error))),
            };
        }
        let launcher = ToyInstance {
            kernel: Self {
                fault: self.fault.filter(|_| request.form.tactic.number() == 0),
                ..self.clone()
            },
            inputs: request.inputs.to_vec(),
            output: request.outputs[0].clone(),
        };
        let instance = Instance::new("reference", launcher).with_workspace(100);
        Ok(instance.with_capturable(!self.transfers).into())
    }
}

/// Bytes of one item of the batch, and bytes from one to the next.
fn rows(operand: &Operand) -> (usize, usize) {
    let inner: usize = operand.shape[2..].iter().product::<usize>() * operand.dtype.size();
    (
        operand.shape[1] * inner,
        operand.parent_channels.unwrap_or(operand.shape[1]) * inner,
    )
}

impl Launcher for ToyInstance {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let this = self.clone();
        let inputs: Vec<_> = call.inputs.iter().map(|&from| self.near(from.addr())).collect();
        let (output, workspace) = (self.near(call.outputs[0].addr()), self.near(call.workspace.addr()));
        let command: Command = Arc::new(move || this.compute(&inputs, output, workspace));
        // SAFETY: a far kernel is run on a far stream, which is alive.
        let stream = unsafe { call.stream.cast::<FarStream>().as_ref() };
        assert_eq!(stream.is_some(), self.kernel.far.is_some());
        if let Some(commands) = stream.and_then(|q| q.0.lock().unwrap().as_mut().map(|c| c as *mut Vec<Command>)) {
            // SAFETY: nobody else uses the stream.
            unsafe { (*commands).push(command) };
            return Ok(());
        }
        command()
    }
}

impl ToyInstance {
    /// The true address; that of far memory for a far kernel, and either for a transfer.
    fn near(&self, address: usize) -> usize {
        assert!(
            self.kernel.transfers || address / AWAY == away(self.kernel.far) / AWAY,
            "wrong memory"
        );
        address % AWAY
    }

    fn compute(&self, inputs: &[usize], output: usize, workspace: usize) -> Result<()> {
        let (output, workspace) = (output as *mut u8, workspace as *mut u8);
        let mut given = self.inputs.iter().zip(inputs).map(|(operand, &from)| {
            let from = from as *const u8;
            let (row, pitch) = rows(operand);
            let mut bytes = vec![0; row * operand.shape[0]];
            for (n, target) in bytes.chunks_mut(row).enumerate() {
                // SAFETY: the planner vouches for the operand's memory.
                target.copy_from_slice(unsafe { std::slice::from_raw_parts(from.add(n * pitch), row) });
            }
            Array::from_bytes(operand.dtype, operand.shape.clone(), &bytes)
        });
        let inputs: Vec<_> = self
            .kernel
            .constants
            .iter()
            .map(|c| match c {
                Some(constant) => Ok(Some(constant.clone())),
                None => given.next().transpose(),
            })
            .collect::<Result<_>>()?;
        let result = match self.kernel.op {
            Some(op) => reference::evaluate_op(op, &self.kernel.attrs, &inputs)?.remove(0),
            None => inputs[0].clone().unwrap(),
        };
        let result = match self.kernel.fault {
            Some(fault) => fault.applied(&result, &inputs)?,
            None => result,
        };
        let (row, pitch) = rows(&self.output);
        for (n, source) in result.bytes().chunks(row).enumerate() {
            // SAFETY: as above.
            unsafe { output.add(n * pitch).copy_from_nonoverlapping(source.as_ptr(), row) };
        }
        // SAFETY: a workspace of 100 bytes was asked for; writing it shows whether it overlaps anything.
        unsafe { workspace.write_bytes(0xab, 100) };
        Ok(())
    }
}

/// Runs an engine on arrays that lie in far memory, or in the processor's.
pub fn run(engine: Arc<Engine>, inputs: &[Array], far: bool) -> Vec<Array> {
    let mut context = ExecutionContext::new(engine);
    let shapes: Vec<_> = inputs.iter().map(|a| (a.dtype(), a.shape())).collect();
    let specs = context.prepare(&shapes).unwrap().to_vec();
    let bytes = |s: &TensorSpec| s.shape.iter().product::<usize>() * s.dtype.size();
    let buffers: Vec<_> = specs.iter().map(|s| Buffer::zeroed(bytes(s))).collect();
    let place = |near: *const u8| ArrayAddress {
        address: near.cast_mut().map_addr(|a| a + if far { AWAY } else { 0 }),
        space: if far { Space::Device(0) } else { Space::Host },
        is_held: false,
    };
    let from: Vec<_> = inputs.iter().map(|a| place(a.bytes().as_ptr())).collect();
    let to: Vec<_> = buffers.iter().map(|b| place(b.as_ptr())).collect();
    let stream = FarStream::default();
    let caller = far.then(|| CallerStream {
        space: Space::Device(0),
        raw: stream.raw(),
    });
    // Once as it is, then recorded, then replayed.
    for _ in 0..4 {
        buffers.iter().zip(&specs).for_each(|(buffer, spec)| {
            // SAFETY: the buffers are ours, and as large as the outputs.
            unsafe { buffer.as_ptr().write_bytes(0xcd, bytes(spec)) };
        });
        // SAFETY: the arrays have the shapes that the context was told and gave.
        unsafe { context.run(&from, &to, caller.as_ref()) }.unwrap();
    }
    context.finish().unwrap();
    let array = |(spec, buffer): (&TensorSpec, &Buffer)| {
        Array::from_bytes(spec.dtype, spec.shape.clone(), buffer.as_ref()).unwrap()
    };
    specs.iter().zip(&buffers).map(array).collect()
}
