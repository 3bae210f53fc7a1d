//! Products on cuBLASLt, with as much of what follows as its epilogues do; a pass over the result does the rest.

use super::problem::Problem;
use crate::error::{Error, Result};
use crate::network::attr::Read;
use crate::network::dtype::DType;
use crate::network::{Layer, LayerId, Network, TensorId};
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Call, Form, Instance, Launcher, Prepared, Request, Tactic};
use crate::providers::common::epilogue::{Epilogue, Value};
use crate::providers::cuda::compile::compiled;
use crate::providers::cuda::kernels::Gpu;
use crate::providers::cuda::kernels::pointwise::{self, code};
use crate::providers::cuda::kernels::strided::{Operands, Strided};
use crate::providers::cuda::kernels::tail::Tail;
use crate::providers::cuda::library::cublaslt::{self, Activation, Plan, Product};
use std::sync::Arc;

/// More products than this are not called one after another.
const MOST_CALLS: usize = 32;
/// What cuBLASLt's faster kernels ask of addresses.
const ALIGNMENT: u32 = 16;

/// The layers of a group as cuBLASLt runs them.
pub struct Steps {
    /// What the product is multiplied by.
    pub scale: f64,
    /// What is added to each row.
    pub bias: Option<TensorId>,
    /// What is added to the result.
    pub residual: Option<TensorId>,
    /// What is done then.
    pub activation: Option<Activation>,
    /// The pass behind it, if one is needed.
    pub pass: Option<Pass>,
}

/// A pass over a product.
pub struct Pass {
    /// Its source, as `strided` wants it.
    pub source: String,
    /// The type of the product.
    pub dtype: DType,
    /// What it reads: the product, where there is none.
    pub inputs: Vec<Option<TensorId>>,
}

impl Steps {
    /// An epilogue in the steps of cuBLASLt, as far as these go.
    pub fn new(network: &Network, epilogue: &Epilogue) -> Self {
        let scale = scale(network, epilogue);
        let tail = Tail::of(network, epilogue, scale.iter().count(), false, activation);
        let layers: Vec<LayerId> = epilogue.layers().collect();
        let (done, rest) = layers.split_at(tail.steps);
        let output = done.last().map_or(epilogue.product, |&last| network[last].outputs[0]);
        Self {
            scale: scale.unwrap_or(1.0),
            bias: tail.bias,
            residual: tail.residual,
            activation: tail.activation,
            pass: (!rest.is_empty()).then(|| Pass::new(network, output, rest)),
        }
    }
}

impl Pass {
    fn new(network: &Network, product: TensorId, layers: &[LayerId]) -> Self {
        let code = code::of(network, layers);
        Self {
            source: pointwise::source(network, &code),
            dtype: network[product].ty.dtype,
            inputs: code.inputs.iter().map(|&t| Some(t).filter(|&t| t != product)).collect(),
        }
    }
}

/// What the first step multiplies the product by, if it does.
fn scale(network: &Network, epilogue: &Epilogue) -> Option<f64> {
    let step = epilogue.steps.first().filter(|_| epilogue.uses(Value::Product) == 1)?;
    let (first, other) = step.beside(Value::Product)?;
    let number = epilogue
        .operand(other)?
        .uniform
        .filter(|_| network[epilogue.product].ty.dtype.is_float())?;
    let scale = match (network[step.layer].op.name, first) {
        ("Mul", _) => number,
        ("Div", true) => 1.0 / number,
        _ => return None,
    };
    scale.is_finite().then_some(scale)
}

/// The activation of an epilogue that a layer is.
fn activation(layer: &Layer) -> Option<Activation> {
    match layer.op.name {
        "Relu" => Some(Activation::Relu),
        "Gelu" if layer.attrs.text("approximate") == "tanh" => Some(Activation::GeluTanh),
        _ => None,
    }
}

/// What cuBLASLt is asked for, beside the problem.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// The element type of the operands.
    pub dtype: DType,
    /// Whether operands of float32 may be rounded to tf32.
    pub tf32: bool,
    /// That of the result.
    pub result: DType,
    /// What the product is multiplied by.
    pub scale: f64,
    /// What is done to it.
    pub epilogue: cublaslt::Epilogue,
    /// Whether a third matrix is added.
    pub adds: bool,
}

/// A problem as calls of cuBLASLt.
pub struct Calls {
    gpu: Arc<Gpu>,
    plan: Plan,
    /// For operands that lie less evenly, if there is an algorithm for them.
    uneven: Option<Plan>,
    scale: f64,
    /// Where each call begins: bytes from the left and the right operand, and from the result.
    starts: Vec<[usize; 3]>,
}

impl Calls {
    /// The problem in the `number`th algorithm of cuBLASLt.
    ///
    /// # Errors
    /// If it has none, or the problem would take too many calls.
    pub fn new(gpu: &Arc<Gpu>, problem: &Problem, wanted: Wanted, number: usize) -> Result<Self> {
        let (inner, mut starts) = starts(problem)?;
        let elements = [wanted.dtype, wanted.dtype, wanted.result].map(DType::size);
        for start in &mut starts {
            start.iter_mut().zip(elements).for_each(|(at, size)| *at *= size);
        }
        let step = |side: usize| inner.map_or(0, |axis| problem.steps[side][axis]);
        let behind = |axis: usize| problem.batch[axis + 1..].iter().product::<usize>();
        let Problem {
            m, n, k, transposed, ..
        } = *problem;
        let product = |alignment| Product {
            dtype: wanted.dtype,
            tf32: wanted.tf32,
            result: wanted.result,
            m,
            n,
            k,
            transposed,
            batches: inner.map_or(1, |axis| problem.batch[axis]),
            strides: [step(0), step(1), inner.map_or(0, |axis| behind(axis) * m * n)],
            epilogue: wanted.epilogue,
            adds: wanted.adds,
            alignment,
        };
        let blas = gpu.blas()?;
        let even = starts
            .iter()
            .flatten()
            .all(|start| start.is_multiple_of(ALIGNMENT as usize));
        let least = wanted.dtype.size().min(wanted.result.size()) as u32;
        Ok(Self {
            gpu: gpu.clone(),
            plan: blas.plan(product(if even { ALIGNMENT } else { least }), number)?,
            uneven: blas.plan(product(least), 0).ok(),
            scale: wanted.scale,
            starts,
        })
    }

    /// What they are, for reports.
    pub fn name(&self) -> &'static str {
        self.plan.name()
    }

    /// Bytes of scratch memory that it needs.
    pub fn workspace(&self) -> usize {
        self.plan
            .workspace()
            .max(self.uneven.as_ref().map_or(0, Plan::workspace))
    }

    /// Puts the calls into a stream. The addresses are those of [`Blas::run`](crate::providers::cuda::library::cublaslt::Blas::run).
    ///
    /// # Safety
    /// Each address must hold its operand until the stream has run the calls.
    ///
    /// # Errors
    /// If cuBLASLt refuses.
    pub unsafe fn run(&mut self, addresses: [*mut u8; 6], stream: *mut std::ffi::c_void) -> Result<()> {
        let even = addresses
            .iter()
            .all(|address| address.addr().is_multiple_of(ALIGNMENT as usize));
        let plan = match &mut self.uneven {
            Some(uneven) if !even => uneven,
            _ => &mut self.plan,
        };
        let [left, right, bias, added, result, workspace] = addresses;
        let blas = self.gpu.blas()?;
        for &[l, r, y] in &self.starts {
            let added = if added.is_null() { added } else { added.wrapping_add(y) };
            let of_call = [
                left.wrapping_add(l),
                right.wrapping_add(r),
                bias,
                added,
                result.wrapping_add(y),
                workspace,
            ];
            // SAFETY: the caller's promise; each call stays within the operands.
            unsafe { blas.run(plan, of_call, self.scale, stream)? };
        }
        Ok(())
    }
}

/// The axis of the batch that one call goes through, and where each call begins, in elements.
fn starts(problem: &Problem) -> Result<(Option<usize>, Vec<[usize; 3]>)> {
    let batch = &problem.batch;
    let inner = (0..batch.len()).max_by_key(|&axis| batch[axis]);
    let mut starts = vec![[0; 3]];
    let mut result = problem.m * problem.n;
    for axis in (0..batch.len()).rev() {
        if Some(axis) != inner {
            let steps = [problem.steps[0][axis], problem.steps[1][axis], result];
            let moved = |number: usize| {
                let one = move |start: &[usize; 3]| std::array::from_fn(|i| start[i] + number * steps[i]);
                starts.iter().map(one).collect::<Vec<_>>()
            };
            let all: Vec<_> = (0..batch[axis]).flat_map(moved).collect();
            starts = all;
        }
        result *= batch[axis];
    }
    if starts.len() > MOST_CALLS {
        return Err(
            Error::unsupported("a batch of products takes too many calls of cuBLASLt")
                .expected(format!("at most {MOST_CALLS}"))
                .got(starts.len().to_string()),
        );
    }
    Ok((inner, starts))
}

/// Where the operands of [`Calls`] stand among the inputs of a kernel.
#[derive(Debug, Clone, Copy)]
pub struct Slots {
    /// What is added to each row.
    pub bias: Option<usize>,
    /// What is added to the result.
    pub residual: Option<usize>,
}

/// A product on cuBLASLt, and the pass behind it.
pub struct Multiplying {
    calls: Calls,
    slots: Slots,
    pass: Option<Passing>,
}

/// A pass over the product, which lies in the result's place: each of its numbers is read by the thread that writes there,
/// before it does.
struct Passing {
    strided: Strided,
    /// Of the inputs of the kernel; the product where there is none.
    inputs: Vec<Option<usize>>,
    /// Bytes of a workspace, a multiple of what operands are aligned to, that it lies in instead where the result has another
    /// element size, or lies where the pass reads something else; 0 otherwise.
    aside: usize,
}

impl Multiplying {
    /// The product of these calls; `pass` is a source, the type of the product, and which inputs it reads.
    ///
    /// # Errors
    /// If the pass is too large for one kernel.
    pub fn new(
        gpu: &Gpu,
        request: &Request,
        calls: Calls,
        slots: Slots,
        pass: Option<(&Pass, Vec<Option<usize>>)>,
    ) -> Result<Self> {
        let pass = pass.map(|(pass, inputs)| {
            let result = &request.outputs[0];
            let product = Operand::dense(pass.dtype, result.shape.clone(), Layout::Plain);
            let operand = |input: &Option<usize>| input.map_or(product.clone(), |input| request.inputs[input].clone());
            let read: Vec<Operand> = inputs.iter().map(operand).collect();
            let form = Form {
                tactic: Tactic::ONLY,
                inputs: vec![Layout::Plain; read.len()],
                outputs: vec![Layout::Plain],
            };
            let operands = Operands::of(&Request {
                form: &form,
                inputs: &read,
                ..*request
            })?;
            let taken = inputs.iter().flatten().any(|&input| request.inputs[input].in_place);
            let aside = taken || product.bytes() != result.bytes();
            Ok::<_, Error>(Passing {
                strided: Strided::new(gpu, &pass.source, operands),
                inputs,
                aside: if aside {
                    product.bytes().next_multiple_of(256)
                } else {
                    0
                },
            })
        });
        Ok(Self {
            calls,
            slots,
            pass: pass.transpose()?,
        })
    }
}

impl Multiplying {
    /// It as a kernel at concrete shapes.
    pub fn prepared(self) -> Prepared {
        let calls = match self.calls.starts.len() {
            1 => self.calls.name().into(),
            many => format!("{}, {many} times", self.calls.name()),
        };
        let (how, aside, entries) = match &self.pass {
            Some(pass) => (
                format!("{calls}, and a pass"),
                pass.aside,
                pass.strided.entries().to_vec(),
            ),
            None => (calls, 0, vec![]),
        };
        let workspace = self.calls.workspace() + aside;
        // As with cuDNN's convolutions: what is added may be read too soon.
        let wait_inputs = self.slots.bias.or(self.slots.residual).map_or(usize::MAX, |_| 2);
        let instance = Instance::new(how, self).with_workspace(workspace);
        compiled(entries, instance.with_wait_inputs(wait_inputs))
    }
}

impl Launcher for Multiplying {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let input = |slot: Option<usize>| slot.map_or(std::ptr::null_mut(), |slot| call.inputs[slot].cast_mut());
        let aside = self.pass.as_ref().map_or(0, |pass| pass.aside);
        let result = if aside > 0 { call.workspace } else { call.outputs[0] };
        let addresses = [
            input(Some(0)),
            input(Some(1)),
            input(self.slots.bias),
            input(self.slots.residual),
            result,
            call.workspace.wrapping_add(aside),
        ];
        // SAFETY: the planner gives addresses that hold the operands of the request, and as much workspace as was asked for.
        unsafe { self.calls.run(addresses, call.stream)? };
        let Some(pass) = &mut self.pass else { return Ok(()) };
        let read = |input: &Option<usize>| input.map_or(result.cast_const(), |input| call.inputs[input]);
        let inputs: Vec<*const u8> = pass.inputs.iter().map(read).collect();
        pass.strided.launch(&Call {
            inputs: &inputs,
            outputs: call.outputs,
            workspace: std::ptr::null_mut(),
            stream: call.stream,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_axis_of_a_batch_is_one_call() {
        let problem = Problem::new([false; 2], &[2, 1, 5, 7], &[1, 3, 7, 4]);
        let (inner, starts) = starts(&problem).unwrap();
        assert_eq!((inner, starts), (Some(1), vec![[0, 0, 0], [35, 0, 60]]));
        let problem = Problem::new([false; 2], &[4, 1, 5, 7], &[1, 2, 7, 4]);
        let (inner, starts) = super::starts(&problem).unwrap();
        assert_eq!((inner, starts), (Some(0), vec![[0, 0, 0], [0, 28, 20]]));
    }
}
