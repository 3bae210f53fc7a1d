//! Random graphs through cover, placing and arena, on a provider that computes with the reference: whatever
//! shares memory wrongly gives a wrong result. With a second one, whose memory the first can't reach, what lies in the
//! wrong memory crashes.

use neurenix::engine::{Engine, config::BuilderConfig};
use neurenix::error::{Error, ErrorKind, Result};
use neurenix::network::array::{Array, Buffer};
use neurenix::network::attr::{Attr, Attrs, attrs};
use neurenix::network::dim::Dim;
use neurenix::network::dtype::DType;
use neurenix::network::op::{OpDef, TensorType};
use neurenix::network::{LayerId, Network, TensorId, ops, reference};
use neurenix::plan::boundary::Place;
use neurenix::plan::layout::{Layout, Operand, Space};
use neurenix::plan::queues::Foreign;
use neurenix::plan::{Alias, AtOnce, Call, Candidate, Form, Instance, Job, Kernel, Memory, Offer, Provider, Queue};
use neurenix::plan::{NumberedJob, Recorder, Recording, Refusal, Request, Settings};
use neurenix::runtime::{ExecutionContext, TensorSpec};
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A provider that computes with the reference. A far one has memory of its own, may leave some ops alone, and records.
#[derive(Clone)]
struct Toy {
    far: bool,
    /// It leaves nothing alone.
    all: bool,
    room: Arc<Room>,
}

impl Toy {
    fn new(far: bool, all: bool) -> Self {
        let room = Arc::default();
        Self { far, all, room }
    }
}

/// The memory that a provider gives out.
struct Room {
    taken: AtomicUsize,
    size: AtomicUsize,
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
    far: bool,
    transfers: bool,
}

#[derive(Clone)]
struct ToyInstance {
    kernel: ToyKernel,
    inputs: Vec<Operand>,
    output: Operand,
}

/// What is added to an address in far memory: nothing can be read there.
const AWAY: usize = 1 << 62;

struct ToyMemory {
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
struct FarQueue(Mutex<Option<Vec<Command>>>);

impl Queue for FarQueue {
    fn raw(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }
    fn recorder(&self) -> Option<&dyn Recorder> {
        Some(self)
    }
}

impl Recorder for FarQueue {
    /// Keeps the jobs in an order that is far from theirs: the last one comes first of those that wait for nobody.
    fn record(&self, after: &[Vec<usize>], job: NumberedJob) -> Result<Box<dyn Recording>> {
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
        let tape = order.into_iter().flat_map(|number| jobs[number].clone()).collect();
        Ok(Box::new(Tape(tape)))
    }
}

static RECORDED: AtomicUsize = AtomicUsize::new(0);

struct Tape(Vec<Command>);

impl Recording for Tape {
    fn replay(&mut self, _: &dyn Queue) -> Result<()> {
        self.0.iter().try_for_each(|command| command())
    }
}

/// A far queue of the caller's.
struct Adopted(*mut c_void);

// SAFETY: the queue behind it may be used from any thread.
unsafe impl Send for Adopted {}

impl Queue for Adopted {
    fn raw(&self) -> *mut c_void {
        self.0
    }
}

impl Provider for Toy {
    fn name(&self) -> &'static str {
        if self.far { "far" } else { "toy" }
    }
    fn conditions(&self, _: &Settings) -> Vec<(String, String)> {
        vec![]
    }
    fn space(&self) -> Space {
        if self.far { Space::Device(0) } else { Space::Host }
    }
    fn compute_dtype(&self, dtype: DType) -> DType {
        dtype
    }
    fn candidates(&self, network: &Network, layer: LayerId, _: &Settings) -> Offer {
        let l = &network[layer];
        if self.far && !self.all && matches!(l.op.name, "Relu" | "Reshape") {
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
        self.far.then(|| Arc::new(self.copy(true)) as Arc<dyn Kernel>)
    }
    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>> {
        let Room { taken, size } = &*self.room;
        if taken.load(Ordering::Relaxed) + bytes > size.load(Ordering::Relaxed) {
            return Err(Error::memory("the room is full"));
        }
        taken.fetch_add(bytes, Ordering::Relaxed);
        Ok(Box::new(ToyMemory {
            buffer: Buffer::try_zeroed(bytes)?,
            away: if self.far { AWAY } else { 0 },
            room: self.room.clone(),
        }))
    }
    fn queue(&self) -> Result<Box<dyn Queue>> {
        Ok(if self.far {
            Box::new(FarQueue::default())
        } else {
            Box::new(AtOnce)
        })
    }
    unsafe fn adopt(&self, raw: *mut c_void) -> Box<dyn Queue> {
        Box::new(Adopted(raw))
    }
    fn time(&self, _: &mut dyn Instance, _: &Request) -> Result<u64> {
        Ok(1000)
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
        vec![Form {
            tactic: 0,
            inputs: vec![Layout::Plain; self.inputs],
            outputs: vec![Layout::Plain],
        }]
    }
    fn alias(&self) -> Alias {
        match self.op.map(|op| op.name) {
            Some("Concat") => Alias::Concat(1),
            Some("Reshape") => Alias::Reshape,
            _ => Alias::None,
        }
    }
    fn in_place(&self) -> Vec<(usize, usize)> {
        if self.alias() == Alias::None && !self.transfers {
            (0..self.inputs).map(|i| (i, 0)).collect()
        } else {
            vec![]
        }
    }
    fn takes_slices(&self, _: &Form) -> (bool, bool) {
        let takes = self.alias() != Alias::Reshape && !self.transfers;
        (takes, takes)
    }
    fn instantiate(&self, request: &Request) -> Result<Box<dyn Instance>> {
        Ok(Box::new(ToyInstance {
            kernel: self.clone(),
            inputs: request.inputs.to_vec(),
            output: request.outputs[0].clone(),
        }))
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

impl Instance for ToyInstance {
    fn implementation(&self) -> String {
        "reference".into()
    }
    fn workspace(&self) -> usize {
        100
    }
    fn capturable(&self) -> bool {
        !self.kernel.transfers
    }
    fn run(&mut self, call: &Call) -> Result<()> {
        let this = self.clone();
        let inputs: Vec<_> = call.inputs.iter().map(|&from| self.near(from.addr())).collect();
        let (output, workspace) = (self.near(call.outputs[0].addr()), self.near(call.workspace.addr()));
        let command: Command = Arc::new(move || this.compute(&inputs, output, workspace));
        // SAFETY: a far kernel is run on a far queue, which is alive.
        let queue = unsafe { call.queue.cast::<FarQueue>().as_ref() };
        assert_eq!(queue.is_some(), self.kernel.far);
        if let Some(commands) = queue.and_then(|q| q.0.lock().unwrap().as_mut().map(|c| c as *mut Vec<Command>)) {
            // SAFETY: nobody else uses the queue.
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
            self.kernel.transfers || (address >= AWAY) == self.kernel.far,
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

/// xorshift64*: random enough for a test, the same at every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }
}

fn random_network(random: &mut Random) -> Network {
    let mut network = Network::new("random");
    let batch = [1i64, 2][random.below(2)];
    let shape = |c: usize| vec![batch.into(), c.into(), 3i64.into()];
    let mut tensors = vec![];
    for i in 0..2 {
        tensors.push(
            network
                .add_input(&format!("x{i}"), DType::Float32, shape(1 + random.below(3)))
                .unwrap(),
        );
    }
    for i in 0..4 + random.below(20) {
        let pick = |random: &mut Random, tensors: &[TensorId]| tensors[random.below(tensors.len())];
        let (a, b) = (pick(random, &tensors), pick(random, &tensors));
        let channels = network[a].ty.shape[1].as_const().unwrap();
        let mut add = |op: &str, attrs: Attrs, inputs: &[TensorId]| {
            let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
            network
                .add_layer(&format!("{op}{i}"), ops::find(op).unwrap(), attrs, &inputs)
                .unwrap()[0]
        };
        let made = match random.below(5) {
            0 => add("Relu", attrs([]), &[a]),
            1 | 2 if channels < 40 => add("Concat", attrs([("axis", Attr::Int(1))]), &[a, b]),
            3 => {
                let flat = network.add_constant("flat", Array::ints(&[batch, -1, 1]));
                let back = network.add_constant("back", Array::ints(&[batch, -1, 3]));
                let inner = network
                    .add_layer("flatten", &ops::reshape::DEF, attrs([]), &[Some(a), Some(flat)])
                    .unwrap();
                let inner = network
                    .add_layer("mid", &ops::sigmoid::DEF, attrs([]), &[Some(inner[0])])
                    .unwrap();
                network
                    .add_layer("fold", &ops::reshape::DEF, attrs([]), &[Some(inner[0]), Some(back)])
                    .unwrap()[0]
            }
            _ => add("Add", attrs([]), &[a, a]),
        };
        tensors.push(made);
    }
    for i in 0..1 + random.below(3) {
        let tensor = tensors[tensors.len() - 1 - random.below(4)];
        network.mark_output(tensor, &format!("y{i}")).unwrap();
    }
    network
}

/// Runs an engine on arrays that lie in far memory, or in the processor's.
fn run(engine: Arc<Engine>, inputs: &[Array], far: bool) -> Vec<Array> {
    let mut context = ExecutionContext::new(engine);
    let shapes: Vec<_> = inputs.iter().map(|a| (a.dtype(), a.shape())).collect();
    let specs = context.prepare(&shapes).unwrap().to_vec();
    let bytes = |s: &TensorSpec| s.shape.iter().product::<usize>() * s.dtype.size();
    let buffers: Vec<_> = specs.iter().map(|s| Buffer::zeroed(bytes(s))).collect();
    let place = |near: *const u8| Place {
        address: near.cast_mut().map_addr(|a| a + if far { AWAY } else { 0 }),
        space: if far { Space::Device(0) } else { Space::Host },
    };
    let from: Vec<_> = inputs.iter().map(|a| place(a.bytes().as_ptr())).collect();
    let to: Vec<_> = buffers.iter().map(|b| place(b.as_ptr())).collect();
    let queue = FarQueue::default();
    let caller = far.then(|| Foreign {
        space: Space::Device(0),
        raw: queue.raw(),
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

#[test]
fn memory_is_never_shared_wrongly() {
    let mut random = Random(7);
    for round in 0..300 {
        let network = random_network(&mut random);
        let inputs: Vec<_> = network
            .inputs()
            .iter()
            .map(|&t| {
                let shape = network[t].ty.concrete().unwrap();
                let values: Vec<f64> = (0..shape.iter().product())
                    .map(|_| random.below(2000) as f64 / 500.0 - 2.0)
                    .collect();
                Array::from_f64(DType::Float32, shape, &values).unwrap()
            })
            .collect();
        let want = reference::evaluate(&network, &inputs).unwrap();
        let near = Toy::new(false, true);
        let providers = |far: Option<bool>| -> Vec<Arc<dyn Provider>> {
            let far = far.map(|all| Arc::new(Toy::new(true, all)) as Arc<dyn Provider>);
            far.into_iter()
                .chain([Arc::new(near.clone()) as Arc<dyn Provider>])
                .collect()
        };
        let build = |far| Engine::build(network.clone(), BuilderConfig::default(), &providers(far)).unwrap();
        let cases = [
            (None, false),
            (Some(false), false),
            (Some(false), true),
            (Some(true), true),
        ];
        let results = cases.map(|(two, far)| run(Arc::new(build(two)), &inputs, far));
        for (got, want) in results.iter().flat_map(|got| got.iter().zip(&want)) {
            let close = got
                .to_f64()
                .iter()
                .zip(want.to_f64())
                .all(|(g, w)| (g - w).abs() <= 1e-5 * w.abs().max(1.0));
            assert!(close && got.shape() == want.shape(), "round {round}:\n{network}");
        }
    }
    assert!(RECORDED.load(Ordering::Relaxed) > 300);
}

/// A few layers of which each needs memory of its own, at any batch.
fn chain() -> Network {
    let mut network = Network::new("chain");
    let shape = vec![Dim::symbol("batch"), 3i64.into(), 5i64.into()];
    let x = network.add_input("x", DType::Float32, shape).unwrap();
    let mut layer = |name: &str, op: &str, inputs: &[TensorId]| {
        let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
        let op = ops::find(op).unwrap();
        network.add_layer(name, op, attrs([]), &inputs).unwrap()[0]
    };
    let a = layer("a", "Sigmoid", &[x]);
    let b = layer("b", "Relu", &[x]);
    let c = layer("c", "Mul", &[a, b]);
    let d = layer("d", "Add", &[c, a]);
    let e = layer("e", "Sigmoid", &[d]);
    network.mark_output(e, "y").unwrap();
    network
}

fn check_batch(context: &mut ExecutionContext, network: &Network, batch: usize) -> Result<()> {
    let values: Vec<f64> = (0..batch * 15).map(|i| (i * 7 % 23) as f64 / 8.0 - 1.0).collect();
    let x = Array::from_f64(DType::Float32, vec![batch, 3, 5], &values).unwrap();
    let got = context.evaluate(std::slice::from_ref(&x))?;
    let want = reference::evaluate(network, &[x]).unwrap();
    for (got, want) in got[0].to_f64().iter().zip(want[0].to_f64()) {
        assert!((got - want).abs() < 1e-5, "batch {batch}");
    }
    Ok(())
}

#[test]
fn one_arena_serves_all_shapes_of_a_context() {
    for (far, all) in [(false, true), (true, true), (true, false)] {
        let (toy, near) = (Toy::new(far, all), Toy::new(false, true));
        let (room, beside) = (toy.room.clone(), near.room.clone());
        let providers: Vec<Arc<dyn Provider>> = vec![Arc::new(toy), Arc::new(near)];
        let network = chain();
        let engine = Arc::new(Engine::build(network.clone(), BuilderConfig::default(), &providers).unwrap());
        let taken = || room.taken.load(Ordering::Relaxed) + beside.taken.load(Ordering::Relaxed);
        let before = taken();
        let mut context = ExecutionContext::new(engine.clone());
        let mut largest = 0;
        for batch in [2, 7, 2, 3, 40, 2, 2, 7, 7, 40, 5, 6, 8, 9, 10, 11, 12, 2, 40] {
            check_batch(&mut context, &network, batch).unwrap();
            let mut asked = ExecutionContext::new(engine.clone());
            asked.prepare(&[(DType::Float32, &[batch, 3, 5])]).unwrap();
            largest = largest.max(asked.arena_bytes());
            assert_eq!(taken() - before, largest, "far {far}, batch {batch}");
        }
        assert!(RECORDED.load(Ordering::Relaxed) > 0 || !far);

        // What does not fit is an error, and leaves what did.
        room.size.store(taken() + 1000, Ordering::Relaxed);
        for _ in 0..2 {
            let refused = check_batch(&mut context, &network, 100).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Memory);
            for batch in [40, 2, 7] {
                check_batch(&mut context, &network, batch).unwrap();
                assert_eq!(taken() - before, largest);
            }
        }
        room.size.store(usize::MAX, Ordering::Relaxed);
        let mut other = ExecutionContext::new(engine);
        check_batch(&mut other, &network, 1).unwrap();
        assert!(taken() - before > largest);
        drop((context, other));
        assert_eq!(taken(), before);
    }
}
