//! Matrix products with bias, residual and activation, on cuBLASLt.

use super::tail::{Tail, Takes};
use super::{Answer, Gpu};
use crate::error::{Error, Result};
use crate::network::attr::Read;
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::{Layer, TensorId};
use crate::plan::layout::Layout;
use crate::plan::{Call, Form, Instance, Kernel, Request};
use crate::providers::common::Why;
use crate::providers::common::scope::Scope;
use crate::providers::cuda::library::cublaslt::{Activation, CHOICES, Epilogue, Plan, Product};
use std::sync::Arc;

/// MatMul with as much of what follows as an epilogue can do, longest first.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    if scope.op() != "MatMul" {
        return Ok(vec![]);
    }
    let ty = scope.output_type(0);
    if !ty.dtype.is_float() {
        return Err(Why::new(format!("cuBLASLt does not multiply {}", ty.dtype)));
    }
    let [Some(left), Some(right)] = [0, 1].map(|i| scope.input(i)) else {
        return Ok(vec![]);
    };
    let network = scope.network;
    if [left, right].iter().any(|&t| network[t].ty.rank() < 2) {
        return Err(Why::new("an operand is a vector"));
    }
    if [left, right]
        .iter()
        .any(|&t| network[t].ty.shape.iter().any(|d| d.is(0)))
    {
        return Err(Why::new("there is nothing to sum"));
    }
    let batches = |shape: &[Dim]| {
        let batches = &shape[..shape.len() - 2];
        batches.iter().skip_while(|d| d.is(1)).cloned().collect::<Vec<_>>()
    };
    let wanted = batches(&ty.shape);
    let whole = |&t: &TensorId| {
        let own = batches(&network[t].ty.shape);
        own.is_empty() || own == wanted
    };
    if ![left, right].iter().all(whole) {
        return Err(Why::new("only some of the batch axes are broadcast"));
    }
    let attrs = &scope.layer().attrs;
    let transposed = [attrs.flag("transA"), attrs.flag("transB")];
    let make = |name: String, tail: &Tail<Activation>| MatMul {
        name,
        transposed,
        bias: tail.bias.is_some(),
        adds: tail.residual.is_some(),
        activation: tail.activation,
        gpu: gpu.clone(),
    };
    let takes = Takes {
        bias: |other, result| {
            let columns = result.shape.last();
            other.shape.last() == columns && Some(&other.elements()) == columns
        },
        activation,
    };
    Ok(Tail::candidates(scope, [left, right], None, &takes, make))
}

/// The activation of an epilogue that a layer is.
fn activation(layer: &Layer) -> Option<Activation> {
    match layer.op.name {
        "Relu" => Some(Activation::Relu),
        "Gelu" if layer.attrs.text("approximate") == "tanh" => Some(Activation::GeluTanh),
        _ => None,
    }
}

struct MatMul {
    name: String,
    transposed: [bool; 2],
    bias: bool,
    adds: bool,
    activation: Option<Activation>,
    gpu: Arc<Gpu>,
}

impl MatMul {
    /// The product for operands of these shapes.
    fn product(&self, dtype: DType, left: &[usize], right: &[usize], result: &[usize]) -> Result<Product> {
        let (m, n) = (result[result.len() - 2], result[result.len() - 1]);
        let k = left[left.len() - if self.transposed[0] { 2 } else { 1 }];
        let count = |shape: &[usize]| shape[..shape.len() - 2].iter().product::<usize>();
        let batches = count(result);
        let mut product = Product {
            dtype,
            m,
            n,
            k,
            transposed: self.transposed,
            batches,
            strides: [m * k, k * n, m * n],
            epilogue: Epilogue {
                bias: self.bias,
                activation: self.activation,
            },
            adds: self.adds,
        };
        if count(right) == 1 && !self.transposed[0] && count(left) == batches {
            // All rows of all batches meet the same matrix.
            (product.m, product.batches) = (m * batches, 1);
            return Ok(product);
        }
        for (stride, shape) in product.strides.iter_mut().zip([left, right]) {
            match count(shape) {
                1 => *stride = 0,
                all if all == batches => {}
                _ => {
                    return Err(
                        Error::unsupported("only some of the batch axes of a product are broadcast")
                            .got(format!("{left:?} and {right:?}")),
                    );
                }
            }
        }
        Ok(product)
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
            bias,
            adds,
            activation,
            ..
        } = self;
        format!("{name} {transposed:?} bias {bias} adds {adds} {activation:?}")
    }

    fn forms(&self) -> Vec<Form> {
        let operands = 2 + usize::from(self.bias) + usize::from(self.adds);
        let form = |tactic| Form {
            tactic,
            inputs: vec![Layout::Plain; operands],
            outputs: vec![Layout::Plain],
        };
        (0..CHOICES as u32).map(form).collect()
    }

    /// What is added may lend its memory to the result.
    fn in_place(&self) -> Vec<(usize, usize)> {
        if self.adds {
            vec![(2 + usize::from(self.bias), 0)]
        } else {
            vec![]
        }
    }

    fn instantiate(&self, request: &Request) -> Result<Box<dyn Instance>> {
        let [left, right] = [&request.inputs[0], &request.inputs[1]];
        let result = &request.outputs[0];
        let product = self.product(result.dtype, &left.shape, &right.shape, &result.shape)?;
        let plan = self.gpu.blas()?.plan(product, request.form.tactic as usize)?;
        Ok(Box::new(Multiplying {
            gpu: self.gpu.clone(),
            plan,
            bias: self.bias,
            adds: self.adds,
        }))
    }
}

struct Multiplying {
    gpu: Arc<Gpu>,
    plan: Plan,
    bias: bool,
    adds: bool,
}

impl Instance for Multiplying {
    fn workspace(&self) -> usize {
        self.plan.workspace()
    }

    fn implementation(&self) -> String {
        "cuBLASLt".into()
    }

    fn run(&mut self, call: &Call) -> Result<()> {
        let input = |there: bool, index: usize| match there {
            true => call.inputs[index].cast_mut(),
            false => std::ptr::null_mut(),
        };
        let addresses = [
            input(true, 0),
            input(true, 1),
            input(self.bias, 2),
            input(self.adds, 2 + usize::from(self.bias)),
            call.outputs[0],
            call.workspace,
        ];
        // SAFETY: the planner gives addresses that hold the operands of the request.
        unsafe { self.gpu.blas()?.run(&mut self.plan, addresses, call.queue) }
    }
}
