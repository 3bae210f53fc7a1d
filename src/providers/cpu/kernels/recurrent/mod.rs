//! LSTM, GRU and RNN: one matrix product for the input of all steps, then for each step one for the state.

mod few_rows;
mod instance;
mod memory;
mod product;
pub mod step;
#[cfg(test)]
mod tests;

use super::scope::{Scope, uniform_forms};
use super::{Answer, Why};
use crate::error::Result;
use crate::network::array::Array;
use crate::network::dtype::DType;
use crate::network::ops::recurrent::{Kind, Spec};
use crate::plan::layout::Layout;
use crate::plan::{Form, Instance, Kernel, Prepared, Request};
use instance::Recurrent;
use product::Matrix;

/// Inputs of the op, by place.
const X: usize = 0;
const W: usize = 1;
const R: usize = 2;
const B: usize = 3;
const LENGTHS: usize = 4;
const H: usize = 5;
const C: usize = 6;
const P: usize = 7;

/// LSTM, GRU and RNN, computed in f32.
pub fn offer(scope: &Scope) -> Answer {
    let Some(kind) = Kind::of(scope.op()) else {
        return Ok(vec![]);
    };
    let dtype = scope.output_type(0).dtype;
    if dtype == DType::Float64 {
        return Err(Why::new("float64 can't be computed in f32"));
    }
    let spec = Spec::read(kind, &scope.layer().attrs).map_err(|e| Why::new(e.message()))?;
    let weights = [W, R].map(|i| scope.constant(i).map(|array| array.cast(DType::Float32)));
    let mut slots = [None; 8];
    let mut inputs = vec![];
    for (index, slot) in slots.iter_mut().enumerate() {
        let kept = index == W && weights[0].is_some() || index == R && weights[1].is_some();
        if scope.input(index).is_some() && !kept {
            *slot = Some(inputs.len());
            inputs.push(index);
        }
    }
    let [w, r] = weights;
    let kernel = Cells {
        name: scope.op(),
        outputs: scope.layer().outputs.len(),
        slots,
        w: Matrix::whole(w),
        r: Parts::new(&spec, r).map_err(|e| Why::new(e.message()))?,
        spec,
    };
    Ok(vec![scope.alone(kernel, &inputs)])
}

/// The recurrent weights of one direction: what meets the state, and what meets the reset state.
struct Parts {
    state: Vec<Matrix>,
    reset: Vec<Matrix>,
}

/// How many of the gates meet the state before it is reset.
fn plain_gates(spec: &Spec) -> usize {
    match spec.kind {
        Kind::Gru if !spec.linear_before_reset => 2,
        kind => kind.gates(),
    }
}

impl Parts {
    fn new(spec: &Spec, r: Option<Array>) -> Result<Self> {
        let (gates, plain) = (spec.kind.gates(), plain_gates(spec));
        let (mut state, mut reset) = (vec![], vec![]);
        for direction in 0..spec.reverse.len() {
            let part = |from: usize, count: usize| {
                let rows = [direction * gates + from, count];
                Matrix::part(r.as_ref(), gates, rows)
            };
            state.push(part(0, plain)?);
            if plain < gates {
                reset.push(part(plain, gates - plain)?);
            }
        }
        Ok(Self { state, reset })
    }
}

struct Cells {
    name: &'static str,
    spec: Spec,
    outputs: usize,
    /// Which input of the kernel each input of the op is.
    slots: [Option<usize>; 8],
    w: Matrix,
    r: Parts,
}

impl Kernel for Cells {
    fn name(&self) -> String {
        self.name.into()
    }

    fn identity(&self) -> String {
        format!("{:?} {:?}", self.spec, self.slots)
    }

    fn forms(&self) -> Vec<Form> {
        uniform_forms(&[Layout::Plain], self.slots.iter().flatten().count(), self.outputs)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let launcher = Recurrent::new(self, request)?;
        let (how, workspace) = (launcher.implementation(), launcher.workspace());
        Ok(Instance::new(how, launcher).with_workspace(workspace).into())
    }
}
