//! Runs every candidate of small networks in every form, and compares with the reference.

use super::scope::{Orders, Scope};
use super::{candidates, reference};
use crate::error::{Error, Result};
use crate::network::array::{Array, Buffer};
use crate::network::attr::Attrs;
use crate::network::dim::{Binding, Dim};
use crate::network::dtype::DType;
use crate::network::{Network, Source, TensorId, reference as exact};
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Call, Candidate, Form, Request, Tier};
use crate::providers::cpu::simd::Isa;
use crate::providers::cpu::team;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A network in the making, with inputs and layers by a short hand.
pub struct Case {
    /// The network.
    pub network: Network,
    dtype: DType,
}

impl Case {
    /// An empty network whose [`Case::input`]s have this dtype.
    pub fn new(dtype: DType) -> Self {
        Self {
            network: Network::new("case"),
            dtype,
        }
    }

    /// An input; dimensions are numbers or names, separated by blanks.
    pub fn input(&mut self, dims: &str) -> TensorId {
        self.input_of(self.dtype, dims)
    }

    /// An input of another dtype.
    pub fn input_of(&mut self, dtype: DType, dims: &str) -> TensorId {
        let name = format!("x{}", self.network.inputs().len());
        let dims = dims.split_whitespace().map(|d| d.parse().unwrap()).collect();
        self.network.add_input(&name, dtype, dims).unwrap()
    }

    /// A constant of pseudo-random numbers.
    pub fn weights(&mut self, shape: &[usize]) -> TensorId {
        let array = random(self.dtype, shape, 7 + shape.len() as u64);
        self.network.add_constant("w", array)
    }

    /// A constant.
    pub fn constant(&mut self, array: Array) -> TensorId {
        self.network.add_constant("c", array)
    }

    /// A scalar constant.
    pub fn scalar(&mut self, value: f64) -> TensorId {
        self.constant(Array::scalar(self.dtype, value))
    }

    /// A layer; gives its first output.
    pub fn layer(&mut self, op: &str, attrs: Attrs, inputs: &[TensorId]) -> TensorId {
        let inputs: Vec<_> = inputs.iter().map(|&t| Some(t)).collect();
        self.layer_of(op, attrs, &inputs)[0]
    }

    /// A layer with inputs that may be left out; gives all outputs.
    pub fn layer_of(&mut self, op: &str, attrs: Attrs, inputs: &[Option<TensorId>]) -> Vec<TensorId> {
        let op = crate::network::ops::find(op).unwrap();
        self.network.add_layer("", op, attrs, inputs).unwrap()
    }

    /// A layer without attributes.
    pub fn op(&mut self, op: &str, inputs: &[TensorId]) -> TensorId {
        self.layer(op, Attrs::new(), inputs)
    }

    /// Marks a result.
    pub fn output(&mut self, tensor: TensorId) -> &mut Self {
        let name = format!("y{}", self.network.outputs().len());
        self.network.mark_output(tensor, &name).unwrap();
        self
    }

    /// Runs every candidate in every form on 1 and 2 threads; gives the names of the kernels that ran.
    ///
    /// `sizes` gives values of the symbols.
    pub fn check(&self, sizes: &[(&str, i64)]) -> Vec<String> {
        let binding: Binding = sizes.iter().map(|&(name, size)| (Arc::from(name), size)).collect();
        let values = self.values(&binding);
        let mut names = vec![];
        for candidate in self.candidates() {
            let kernel = &candidate.kernel;
            for form in kernel.forms() {
                let same_layout = |&(i, o): &(usize, usize)| form.inputs[i] == form.outputs[o];
                let shared = kernel.in_place().into_iter().filter(same_layout).map(Some);
                let run = |threads, repeats, shared| {
                    let how = How {
                        threads,
                        repeats,
                        shared,
                    };
                    self.run(&candidate, &form, &binding, &values, how)
                };
                let whole = |ran: Result<Ran>| ran.unwrap_or_else(|e| panic!("{} {form:?}: {e}", kernel.name()));
                let first = run(1, 2, None);
                if first.as_ref().is_err_and(is_lacking) {
                    continue;
                }
                let is_reference = whole(first).is_reference | whole(run(2, 2, None)).is_reference;
                for shared in shared {
                    let ran = whole(run(2, 1, shared));
                    assert!(
                        is_reference || !ran.is_reference,
                        "{} {form:?} runs on the reference in shared memory",
                        kernel.name()
                    );
                }
            }
            names.push(kernel.name());
        }
        names
    }

    /// As [`Case::check`], and no layer may be left to the reference evaluation.
    pub fn check_fast(&self, sizes: &[(&str, i64)]) -> Vec<String> {
        let names = self.check(sizes);
        assert!(!names.iter().any(|n| n.contains(reference::LABEL)), "{names:?}");
        names
    }

    /// Prints how long every candidate takes in every form.
    pub fn report_speed(&self, what: &str) {
        let binding = Binding::new();
        let values = self.values(&binding);
        for candidate in self.candidates() {
            let operands = candidate.inputs.iter().chain(&candidate.outputs);
            let bytes: usize = operands.map(|t| values[t].bytes().len()).sum();
            for form in candidate.kernel.forms() {
                let how = |threads| How {
                    threads,
                    repeats: 30,
                    shared: None,
                };
                let time = |threads| {
                    self.run(&candidate, &form, &binding, &values, how(threads))
                        .unwrap()
                        .least
                };
                let speed = |time: Duration| format!("{time:9.1?} {:5.1} GB/s", bytes as f64 / time.as_nanos() as f64);
                let layouts = [form.inputs.as_slice(), &form.outputs].concat();
                let layouts: Vec<String> = layouts.iter().map(Layout::to_string).collect();
                println!(
                    "{what:45} {:35} 1: {} 2: {}",
                    layouts.join(" ") + &form.tactic.suffix(),
                    speed(time(1)),
                    speed(time(2))
                );
            }
        }
    }

    /// The candidates of all layers.
    pub fn candidates(&self) -> Vec<Candidate> {
        let order = self.network.order().unwrap();
        let orders = Orders::default();
        let offer = |&layer| {
            let scope = Scope {
                network: &self.network,
                layer,
                orders: &orders,
            };
            candidates(&scope).unwrap_or_else(|why| panic!("{}", why.reason))
        };
        order.iter().flat_map(offer).collect()
    }

    /// The exact value of every tensor on pseudo-random inputs.
    fn values(&self, binding: &Binding) -> HashMap<TensorId, Array> {
        let mut probe = self.network.clone();
        let ids: Vec<TensorId> = self.network.tensors().map(|(id, _)| id).collect();
        let wanted: Vec<TensorId> = ids.into_iter().filter(|&t| self.is_used(t)).collect();
        for (i, &tensor) in wanted.iter().enumerate() {
            probe.mark_output(tensor, &format!("probe{i}")).unwrap();
        }
        let inputs: Vec<Array> = probe
            .inputs()
            .iter()
            .enumerate()
            .map(|(i, &t)| random(probe[t].ty.dtype, &shape_of(&probe[t].ty.shape, binding), i as u64))
            .collect();
        let skip = self.network.outputs().len();
        let values = exact::evaluate(&probe, &inputs).unwrap();
        wanted.into_iter().zip(values.into_iter().skip(skip)).collect()
    }

    fn is_used(&self, tensor: TensorId) -> bool {
        let found = &self.network[tensor];
        !found.users.is_empty() || self.network.is_output(tensor) || matches!(found.source, Source::Layer(..))
    }

    fn operand(&self, tensor: TensorId, layout: Layout, binding: &Binding) -> Operand {
        let ty = &self.network[tensor].ty;
        Operand::dense(ty.dtype, shape_of(&ty.shape, binding), layout)
    }

    fn run(
        &self,
        candidate: &Candidate,
        form: &Form,
        binding: &Binding,
        values: &HashMap<TensorId, Array>,
        how: How,
    ) -> Result<Ran> {
        let operands = |tensors: &[TensorId], layouts: &[Layout]| -> Vec<Operand> {
            assert_eq!(tensors.len(), layouts.len());
            let pairs = tensors.iter().zip(layouts);
            pairs.map(|(&t, &layout)| self.operand(t, layout, binding)).collect()
        };
        let mut inputs = operands(&candidate.inputs, &form.inputs);
        let outputs = operands(&candidate.outputs, &form.outputs);
        if let Some((input, _)) = how.shared {
            inputs[input].in_place = true;
        }
        let arrays = candidate.inputs.iter().zip(&inputs);
        let packed: Vec<Buffer> = arrays.map(|(t, operand)| pack(&values[t], operand)).collect();
        let given: Vec<Buffer> = outputs.iter().map(|o| dirty(o.bytes())).collect();
        let request = Request {
            form,
            inputs: &inputs,
            outputs: &outputs,
            binding,
            opt: binding,
            threads: how.threads,
        };
        let (from, mut to) = (Addresses::of(&packed), Addresses::of(&given));
        if let Some((input, output)) = how.shared {
            to.0[output] = from.0[input];
        }
        let ran = team::run(how.threads, move || {
            let prepared = candidate.kernel.prepare(&request)?;
            let is_reference = prepared.tier == Tier::Reference;
            let mut instance = prepared.finish()?;
            let workspace = dirty(instance.workspace);
            let inputs: Vec<*const u8> = from.get().iter().map(|p| p.cast_const()).collect();
            let mut least = Duration::MAX;
            for _ in 0..how.repeats {
                let start = Instant::now();
                instance.launch(&Call {
                    inputs: &inputs,
                    outputs: to.get(),
                    workspace: workspace.as_ptr(),
                    stream: std::ptr::null_mut(),
                })?;
                least = least.min(start.elapsed());
            }
            Ok(Ran { least, is_reference })
        })?;
        let holds = |output| match how.shared {
            Some((input, shared)) if shared == output => &packed[input],
            _ => &given[output],
        };
        for (i, (tensor, operand)) in candidate.outputs.iter().zip(&outputs).enumerate() {
            let buffer = holds(i);
            let what = format!("{} {form:?} {} {how:?}", candidate.kernel.name(), operand.describe());
            compare(&values[tensor], &unpack(buffer, operand, &what), &what);
        }
        Ok(ran)
    }
}

/// How a candidate is run.
#[derive(Debug, Clone, Copy)]
struct How {
    threads: usize,
    repeats: usize,
    /// An input and the output that takes its memory.
    shared: Option<(usize, usize)>,
}

/// What a run was like.
struct Ran {
    least: Duration,
    is_reference: bool,
}

/// Addresses that cross to the team's thread.
struct Addresses(Vec<*mut u8>);

// SAFETY: the buffers outlive the run, and nobody else touches them meanwhile.
unsafe impl Send for Addresses {}

impl Addresses {
    fn of(buffers: &[Buffer]) -> Self {
        Self(buffers.iter().map(Buffer::as_ptr).collect())
    }

    fn get(&self) -> &[*mut u8] {
        &self.0
    }
}

fn shape_of(dims: &[Dim], binding: &Binding) -> Vec<usize> {
    dims.iter().map(|d| d.eval(binding).unwrap() as usize).collect()
}

/// Memory that holds no zeros, so that what is left unwritten is seen.
fn dirty(bytes: usize) -> Buffer {
    let mut buffer = Buffer::zeroed(bytes);
    buffer.as_mut_slice().fill(0xa5);
    buffer
}

/// Pseudo-random numbers between -2 and 2; integers between -4 and 4.
pub fn random(dtype: DType, shape: &[usize], seed: u64) -> Array {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1u64 << 24) as f64 * 4.0 - 2.0
    };
    let values: Vec<f64> = (0..shape.iter().product()).map(|_| next()).collect();
    match dtype {
        DType::Bool => Array::from_f64(
            dtype,
            shape.to_vec(),
            &values.iter().map(|v| (*v > 0.0) as u8 as f64).collect::<Vec<_>>(),
        ),
        _ if dtype.is_int() => Array::from_i64(
            dtype,
            shape.to_vec(),
            &values.iter().map(|v| (v * 2.0) as i64).collect::<Vec<_>>(),
        ),
        _ => Array::from_f64(dtype, shape.to_vec(), &values),
    }
    .unwrap()
}

/// An array in the layout of an operand.
fn pack(array: &Array, operand: &Operand) -> Buffer {
    let size = array.dtype().size();
    let mut buffer = Buffer::zeroed(operand.bytes());
    for (from, &to) in array.bytes().chunks(size).zip(&operand.places()) {
        buffer.as_mut_slice()[to * size..][..size].copy_from_slice(from);
    }
    buffer
}

/// The array in a buffer of an operand's layout, whose padding must be zero.
fn unpack(buffer: &Buffer, operand: &Operand, what: &str) -> Array {
    let size = operand.dtype.size();
    let mut bytes = (*buffer).as_ref().to_vec();
    let mut packed = vec![];
    for place in operand.places() {
        packed.extend_from_slice(&(*buffer).as_ref()[place * size..][..size]);
        bytes[place * size..][..size].fill(0);
    }
    assert!(bytes.iter().all(|&b| b == 0), "{what}: the padding is not zero");
    Array::from_bytes(operand.dtype, operand.shape.clone(), &packed).unwrap()
}

fn compare(want: &Array, got: &Array, what: &str) {
    let tolerance = match want.dtype() {
        DType::Float32 => 1e-5,
        DType::BFloat16 => 1e-2,
        DType::Float16 => 2e-3,
        _ => 0.0,
    };
    let (want, got) = (want.to_f64(), got.to_f64());
    let largest = want.iter().filter(|v| v.is_finite()).fold(0f64, |m, v| m.max(v.abs()));
    for (i, (w, g)) in want.iter().zip(&got).enumerate() {
        let same = w == g || (w.is_nan() && g.is_nan());
        assert!(
            same || (w - g).abs() <= tolerance * largest,
            "{what}: element {i}: want {w}, got {g}"
        );
    }
}

/// Whether oneDNN lacks a form without AVX-512, which the planner then passes over.
fn is_lacking(error: &Error) -> bool {
    Isa::here() != Isa::Avx512 && error.message().starts_with("oneDNN has no implementation")
}
