//! Matrix products with what follows them: on cuBLASLt, on tensor cores, and on plain arithmetic where neither goes.

mod behind;
mod follow;
mod library;
mod own;
mod problem;
#[cfg(test)]
mod tests;

use super::{Answer, Gpu};
use crate::error::Result;
use crate::network::attr::Read;
use crate::network::dtype::DType;
use crate::network::{LayerId, TensorId};
use crate::plan::layout::Layout;
use crate::plan::{Candidate, Form, Instance, Kernel, Request};
use crate::providers::common::Why;
use crate::providers::common::scope::Scope;
use crate::providers::cuda::library::cublaslt::{CHOICES, Epilogue};
use behind::Behind;
use follow::Place;
use library::{Calls, Multiplying, Slots, Steps, Wanted};
use own::Written;
use problem::Problem;
use std::sync::Arc;

/// MatMul with as much of what follows as can be done with it, longest first.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    if scope.op() != "MatMul" {
        return Ok(vec![]);
    }
    let [Some(left), Some(right)] = [0, 1].map(|i| scope.input(i)) else {
        return Err(Why::new("an operand is missing"));
    };
    let candidate = |behind: Vec<LayerId>| candidate(scope, [left, right], behind, gpu);
    Ok(follow::groups(scope).into_iter().map(candidate).collect())
}

fn candidate(scope: &Scope, operands: [TensorId; 2], layers: Vec<LayerId>, gpu: &Arc<Gpu>) -> Candidate {
    let network = scope.network;
    let product = scope.layer().outputs[0];
    let behind = Behind::new(network, product, &layers);
    let steps = Steps::new(network, scope.layer, &layers);
    let mut inputs = operands.to_vec();
    inputs.extend(behind.operands.iter().map(|(tensor, _)| *tensor));
    // The code has numbers that are all the same in itself; cuBLASLt reads them.
    let extra = steps.bias.iter().chain(&steps.residual);
    let extra: Vec<TensorId> = extra.copied().filter(|t| !inputs[2..].contains(t)).collect();
    let unused = extra.len();
    inputs.extend(extra);
    let slot = |t: Option<TensorId>| inputs[2..].iter().position(|&input| Some(input) == t).map(|at| at + 2);
    let passed = |pass: &library::Pass| pass.inputs.iter().map(|&t| slot(t)).collect();
    let bytes = network[behind.output].ty.dtype.size();
    let lent = |&at: &usize| {
        let (tensor, place) = behind.operands[at];
        place == Place::Element && network[tensor].ty.dtype.size() == bytes
    };
    let attrs = &scope.layer().attrs;
    let names = std::iter::once(scope.op()).chain(layers.iter().map(|&l| network[l].op.name));
    let kernel = MatMul {
        name: names.collect::<Vec<_>>().join("+"),
        transposed: [attrs.flag("transA"), attrs.flag("transB")],
        dtype: network[product].ty.dtype,
        lent: (0..behind.operands.len()).filter(lent).map(|at| at + 2).collect(),
        slots: Slots {
            bias: slot(steps.bias),
            residual: slot(steps.residual),
        },
        passed: steps.pass.as_ref().map_or(vec![], passed),
        inputs: inputs.len(),
        unused,
        read: behind.operands.len(),
        text: behind.text,
        steps,
        gpu: gpu.clone(),
    };
    let layers = std::iter::once(scope.layer).chain(layers).collect();
    Candidate {
        kernel: Arc::new(kernel),
        layers,
        inputs,
        outputs: vec![behind.output],
    }
}

struct MatMul {
    name: String,
    transposed: [bool; 2],
    /// The element type of the operands.
    dtype: DType,
    inputs: usize,
    /// Inputs behind both matrices that the code reads, and those behind them that it does not.
    read: usize,
    unused: usize,
    /// Inputs whose memory the result may take.
    lent: Vec<usize>,
    /// `Tail`.
    text: String,
    /// The same for cuBLASLt, where its operands stand among the inputs, and what the pass behind it reads.
    steps: Steps,
    slots: Slots,
    passed: Vec<Option<usize>>,
    gpu: Arc<Gpu>,
}

impl MatMul {
    fn on_library(&self, problem: &Problem, request: &Request, number: usize) -> Result<Box<dyn Instance>> {
        let Steps {
            scale,
            bias,
            residual,
            activation,
            ref pass,
        } = self.steps;
        let wanted = Wanted {
            dtype: self.dtype,
            result: self.dtype,
            scale,
            epilogue: Epilogue {
                bias: bias.is_some(),
                activation,
            },
            adds: residual.is_some(),
        };
        let calls = Calls::new(&self.gpu, problem, wanted, number)?;
        let pass = pass.as_ref().map(|pass| (pass, self.passed.clone()));
        Ok(Box::new(Multiplying::new(&self.gpu, request, calls, self.slots, pass)?))
    }

    fn written(&self) -> Written<'_> {
        Written {
            text: &self.text,
            operands: self.read,
            unused: self.unused,
        }
    }
}

impl Kernel for MatMul {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn identity(&self) -> String {
        let Self {
            name,
            transposed,
            steps,
            text,
            ..
        } = self;
        let (scale, activation) = (steps.scale, steps.activation);
        format!("{name} {transposed:?} {scale} {activation:?} {text}")
    }

    /// cuBLASLt's algorithms, and tiles on tensor cores; for what neither multiplies, plain arithmetic.
    fn forms(&self) -> Vec<Form> {
        let form = |tactic| Form {
            tactic,
            inputs: vec![Layout::Plain; self.inputs],
            outputs: vec![Layout::Plain],
        };
        let library = if self.dtype.is_float() { CHOICES as u32 } else { 1 };
        let tensor = if own::has_tensor_cores(&self.gpu.device, self.dtype) {
            own::TILES
        } else {
            0
        };
        (0..library + tensor).map(form).collect()
    }

    /// What is read just where the result is written may lend its memory.
    fn in_place(&self) -> Vec<(usize, usize)> {
        self.lent.iter().map(|&input| (input, 0)).collect()
    }

    fn instantiate(&self, request: &Request) -> Result<Box<dyn Instance>> {
        let shape = |input: usize| request.inputs[input].shape.as_slice();
        let problem = Problem::new(self.transposed, shape(0), shape(1));
        let number = request.form.tactic as usize;
        if self.dtype.is_float() && problem.k > 0 {
            // What a form can't do at these shapes the next one does; plain arithmetic does all.
            if let Some(tile) = number.checked_sub(CHOICES)
                && let Ok(launch) = own::tensor(&self.gpu, &problem, &self.written(), tile as u32)
            {
                return Ok(Box::new(launch));
            }
            if let Ok(instance) = self.on_library(&problem, request, number) {
                return Ok(instance);
            }
        }
        Ok(Box::new(own::plain(&self.gpu, &problem, &self.written())?))
    }
}
