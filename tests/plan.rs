//! Random graphs through cover, placing and arena, on a provider that computes with the reference: whatever
//! shares memory wrongly gives a wrong result.

use neurenix::engine::{Engine, config::BuilderConfig};
use neurenix::error::Result;
use neurenix::network::array::{Array, Buffer};
use neurenix::network::attr::{Attr, Attrs, attrs};
use neurenix::network::dtype::DType;
use neurenix::network::op::{OpDef, TensorType};
use neurenix::network::{LayerId, Network, TensorId, ops, reference};
use neurenix::plan::layout::{Layout, Operand, Space};
use neurenix::plan::{Alias, Call, Candidate, Form, Instance, Job, Kernel, Offer, Provider, Request, Settings};
use neurenix::runtime::ExecutionContext;
use std::sync::Arc;

struct Toy;

/// One layer on the reference; with no op it copies.
struct ToyKernel {
    op: Option<&'static OpDef>,
    attrs: Attrs,
    constants: Vec<Option<Array>>,
    inputs: usize,
}

struct ToyInstance {
    kernel: ToyKernel,
    inputs: Vec<Operand>,
    output: Operand,
}

impl Provider for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }
    fn signature(&self, _: &Settings) -> String {
        "toy".into()
    }
    fn space(&self) -> Space {
        Space::Host
    }
    fn compute_dtype(&self, dtype: DType) -> DType {
        dtype
    }
    fn candidates(&self, network: &Network, layer: LayerId, _: &Settings) -> Offer {
        let l = &network[layer];
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
        Arc::new(ToyKernel {
            op: None,
            attrs: attrs([]),
            constants: vec![None],
            inputs: 1,
        })
    }
    fn run(&self, _: usize, job: Job) -> Result<()> {
        job()
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
        if self.alias() == Alias::None {
            (0..self.inputs).map(|i| (i, 0)).collect()
        } else {
            vec![]
        }
    }
    fn takes_slices(&self, _: &Form) -> (bool, bool) {
        (self.alias() != Alias::Reshape, self.alias() != Alias::Reshape)
    }
    fn instantiate(&self, request: &Request) -> Result<Box<dyn Instance>> {
        let kernel = ToyKernel {
            attrs: self.attrs.clone(),
            constants: self.constants.clone(),
            ..*self
        };
        Ok(Box::new(ToyInstance {
            kernel,
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
    fn run(&mut self, call: &Call) -> Result<()> {
        let mut given = self.inputs.iter().zip(call.inputs).map(|(operand, &from)| {
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
            unsafe {
                call.outputs[0]
                    .add(n * pitch)
                    .copy_from_nonoverlapping(source.as_ptr(), row)
            };
        }
        // SAFETY: a workspace of 100 bytes was asked for; writing it shows whether it overlaps anything.
        unsafe { call.workspace.write_bytes(0xab, 100) };
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

fn run(engine: Arc<Engine>, inputs: &[Array]) -> Vec<Array> {
    let mut context = ExecutionContext::new(engine);
    let shapes: Vec<_> = inputs.iter().map(|a| (a.dtype(), a.shape())).collect();
    let specs = context.prepare(&shapes).unwrap().to_vec();
    let mut buffers: Vec<_> = specs
        .iter()
        .map(|s| Buffer::zeroed(s.shape.iter().product::<usize>() * s.dtype.size()))
        .collect();
    let from: Vec<_> = inputs.iter().map(|a| a.bytes().as_ptr()).collect();
    let to: Vec<_> = buffers.iter_mut().map(|b| b.as_mut_slice().as_mut_ptr()).collect();
    for _ in 0..2 {
        // SAFETY: the arrays have the shapes that the context was told and gave.
        unsafe { context.run(&from, &to) }.unwrap();
    }
    let array = |(spec, buffer): (_, &Buffer)| {
        let spec: &neurenix::runtime::TensorSpec = spec;
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
        let engine = Engine::build(network.clone(), BuilderConfig::default(), &[Arc::new(Toy)]).unwrap();
        for (got, want) in run(Arc::new(engine), &inputs).iter().zip(&want) {
            let close = got
                .to_f64()
                .iter()
                .zip(want.to_f64())
                .all(|(g, w)| (g - w).abs() <= 1e-5 * w.abs().max(1.0));
            assert!(close && got.shape() == want.shape(), "round {round}:\n{network}");
        }
    }
}
