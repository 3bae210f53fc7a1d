//! DynamicQuantizeLSTM: the input of all steps meets its weights at once, then each step's state its own; both as integers of 8 bits.

mod instance;
mod product;
#[cfg(test)]
mod tests;

use super::scope::{Scope, uniform_forms};
use super::{Answer, Why};
use crate::error::Result;
use crate::network::dtype::DType;
use crate::network::ops::dynamic_quantize_lstm::STORED;
use crate::network::ops::recurrent::{Kind, Spec};
use crate::plan::layout::Layout;
use crate::plan::{Form, Instance, Kernel, Prepared, Request};
use crate::providers::cpu::simd::Isa;
use instance::Lstm;
use product::Columns;
use std::sync::Arc;

/// Inputs of the op that are inputs of the kernel, by place.
const X: usize = 0;
const B: usize = 7;
const LENGTHS: usize = 8;
const H: usize = 9;
const C: usize = 10;
const P: usize = 11;

/// The layer alone, where its weights are constant.
pub fn offer(scope: &Scope) -> Answer {
    let fast = Isa::here() == Isa::Avx512 && is_x86_feature_detected!("avx512vnni");
    if scope.op() != "DynamicQuantizeLSTM" || !fast {
        return Ok(vec![]);
    }
    let spec = Spec::read(Kind::Lstm, &scope.layer().attrs).map_err(|e| Why::new(e.message()))?;
    let directions = spec.reverse.len();
    let columns = |[weights, scale, zero]: [usize; 3]| -> Option<Vec<Columns>> {
        let (weights, scale, zero) = (scope.constant(weights)?, scope.constant(scale)?, scope.constant(zero)?);
        (0..directions)
            .map(|d| Columns::new(weights, scale, zero, d).ok())
            .collect()
    };
    let [Some(w), Some(r)] = STORED.map(columns) else {
        return Ok(vec![]);
    };
    let inputs: Vec<usize> = [X, B, LENGTHS, H, C, P]
        .into_iter()
        .filter(|&at| scope.input(at).is_some())
        .collect();
    let kernel = Cells {
        spec,
        inputs: inputs.clone(),
        weights: Arc::new([w, r]),
        outputs: scope.layer().outputs.len(),
    };
    Ok(vec![scope.alone(kernel, &inputs)])
}

struct Cells {
    spec: Spec,
    /// Which input of the op each of the kernel is.
    inputs: Vec<usize>,
    /// By direction: what meets the input, and what meets the state.
    weights: Arc<[Vec<Columns>; 2]>,
    outputs: usize,
}

impl Kernel for Cells {
    fn name(&self) -> String {
        "int8 LSTM".into()
    }

    fn identity(&self) -> String {
        format!("int8 LSTM {:?} {:?}", self.spec, self.inputs)
    }

    fn products_of_8_bits(&self) -> Option<DType> {
        Some(DType::Int8)
    }

    fn forms(&self) -> Vec<Form> {
        uniform_forms(&[Layout::Plain], self.inputs.len(), self.outputs)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let launcher = Lstm::new(self, request);
        let workspace = launcher.workspace();
        Ok(Instance::new("products of 8 bits", launcher)
            .with_workspace(workspace)
            .into())
    }
}
