//! Slice and Pad whose bounds are data: the copies are made out at each run.

use super::boxes::{Border, padded, sliced};
use super::copy::{Move, Mover};
use super::scope::{Scope, uniform_forms};
use super::{Answer, Why};
use crate::error::Result;
use crate::network::array::Array;
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Call, Form, Kernel, Launcher, Prepared, Request};

/// Slice and Pad where a start, an amount or the value to fill with is computed by the network.
pub fn offer(scope: &Scope) -> Answer {
    let op = scope.op();
    let given = if op == "Pad" { &[1, 2][..] } else { &[1][..] };
    let computed = |&index: &usize| scope.input(index).is_some() && scope.value(index).is_none();
    let known = |&index: &usize| !computed(&index) || index == 2 && scope.constant(2).is_some();
    if !["Slice", "Pad"].contains(&op) || given.iter().all(known) {
        return Ok(vec![]);
    }
    let ty = scope.output_type(0);
    let count = scope
        .input_type(1)
        .and_then(|t| t.shape.first()?.as_const())
        .unwrap_or(0);
    let count = if op == "Pad" { count / 2 } else { count };
    let axes = scope.numbers(3)?.unwrap_or_else(|| (0..count).collect());
    let axes = axes.iter().map(|&axis| ty.axis(axis)).collect::<Result<Vec<_>>>();
    let rule = match op {
        "Slice" => Rule::Slice(scope.numbers(4)?.unwrap_or_else(|| vec![1; count as usize])),
        _ => Rule::Pad(Border::of(scope)),
    };
    let read: Vec<usize> = [0, 1, 2].into_iter().filter(|&i| scope.input(i).is_some()).collect();
    let read = if op == "Pad" { &read[..] } else { &read[..2] };
    let kernel = Bounds {
        name: if op == "Pad" { "Pad" } else { "Slice" },
        axes: axes.map_err(|e| Why::new(e.message()))?,
        rule,
        inputs: read.len(),
    };
    Ok(vec![scope.alone(kernel, read)])
}

#[derive(Debug, Clone)]
enum Rule {
    /// The step along each of the axes.
    Slice(Vec<i64>),
    /// What stands outside.
    Pad(Border),
}

#[derive(Debug, Clone)]
struct Bounds {
    name: &'static str,
    axes: Vec<usize>,
    rule: Rule,
    inputs: usize,
}

impl Kernel for Bounds {
    fn name(&self) -> String {
        self.name.into()
    }

    fn identity(&self) -> String {
        format!("{self:?}")
    }

    fn forms(&self) -> Vec<Form> {
        uniform_forms(&[Layout::Plain], self.inputs, 1)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        Ok(Prepared::new(
            "strided copy, made out at each run",
            BoundsInstance {
                kernel: self.clone(),
                inputs: request.inputs.to_vec(),
                to: request.outputs[0].clone(),
            },
        ))
    }
}

struct BoundsInstance {
    kernel: Bounds,
    inputs: Vec<Operand>,
    to: Operand,
}

impl BoundsInstance {
    /// The elements of an input.
    fn array(&self, call: &Call, index: usize) -> Result<Array> {
        let operand = &self.inputs[index];
        // SAFETY: the planner gives addresses that hold the operands of the request.
        let bytes = unsafe { std::slice::from_raw_parts(call.inputs[index], operand.bytes()) };
        Array::from_bytes(operand.dtype, operand.shape.clone(), bytes)
    }

    fn moves(&self, call: &Call) -> Result<Vec<Move>> {
        let (from, to) = (&self.inputs[0], &self.to);
        let given = self.array(call, 1)?.to_i64();
        match &self.kernel.rule {
            Rule::Slice(steps) => {
                let mut places = vec![(None, 1); from.shape.len()];
                for ((&axis, start), &step) in self.kernel.axes.iter().zip(given).zip(steps) {
                    places[axis] = (Some(start), step);
                }
                Ok(sliced(&places, from, to))
            }
            Rule::Pad(border) => {
                let value = match self.inputs.len() {
                    2 => Array::scalar(to.dtype, 0.0),
                    _ => self.array(call, 2)?,
                };
                let mut before = vec![0; from.shape.len()];
                let counts = self.kernel.axes.iter().zip(given);
                counts.for_each(|(&axis, count)| before[axis] = count);
                padded(&before, *border, &value, from, to)
            }
        }
    }
}

impl Launcher for BoundsInstance {
    fn launch(&mut self, call: &Call) -> Result<()> {
        Mover::new(self.moves(call)?).launch(call)
    }
}

#[cfg(test)]
mod tests {
    use crate::network::array::Array;
    use crate::network::attr::{Attr, attrs};
    use crate::network::dtype::DType;
    use crate::providers::cpu::kernels::testing::Case;

    #[test]
    fn fills_with_a_computed_value() {
        for mode in ["constant", "reflect"] {
            let mut case = Case::new(DType::Float32);
            let x = case.input("2 h 4");
            let value = case.input("1");
            let value = case.op("Neg", &[value]);
            let pads = case.constant(Array::ints(&[1, -1, 2, 3]));
            let axes = case.constant(Array::ints(&[2, 1]));
            let mode = attrs([("mode", Attr::Text(mode.into()))]);
            let y = case.layer("Pad", mode, &[x, pads, value, axes]);
            case.output(y).check_fast(&[("h", 5)]);
        }
    }
}
