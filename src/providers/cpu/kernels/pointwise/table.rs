//! A program from one tensor of 8 bits to another: a table of 256 values, which the program itself fills.

use super::instance::PointwiseInstance;
use super::lower::lower;
use super::program::{Feed, Program};
use crate::error::Result;
use crate::network::dtype::DType;
use crate::network::{LayerId, Network, TensorId};
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Call, Form, Launcher, Request, Tactic};
use crate::providers::common::group;
use crate::providers::cpu::kernels::parallel;
use crate::providers::cpu::simd::lookup::lookup;
use std::collections::HashSet;
use std::sync::Arc;

/// Numbers that 8 bits have.
const CODES: usize = 256;
/// Bytes that a thread should at least look up.
const GRAIN: usize = 32_768;

/// What a byte becomes.
pub struct Table {
    values: [u8; CODES],
    elements: usize,
}

impl Table {
    /// The table that stands for a program, whose instance at these shapes is given; none where it takes or gives more
    /// than one tensor of 8 bits, or their elements do not lie in one order.
    pub fn of(program: &Arc<Program>, instance: &PointwiseInstance, request: &Request) -> Result<Option<Self>> {
        let ([x], [y]) = (request.inputs, request.outputs) else {
            return Ok(None);
        };
        let kept_alone = |feed: &Feed| match feed {
            Feed::Input(_) => true,
            Feed::Constant(array) => array.uniform().is_some(),
        };
        let eight_bits = has_eight_bits(x.dtype) && has_eight_bits(y.dtype);
        if !eight_bits || !program.feeds.iter().all(kept_alone) || !instance.is_in_order() {
            return Ok(None);
        }
        Ok(Some(Self {
            values: fill(program, x.dtype, y.dtype, request)?,
            elements: y.elements(),
        }))
    }
}

/// What the program makes of each byte.
fn fill(program: &Arc<Program>, from: DType, to: DType, request: &Request) -> Result<[u8; CODES]> {
    let codes: [u8; CODES] = std::array::from_fn(|code| code as u8);
    let mut values = [0; CODES];
    let form = Form {
        tactic: Tactic::ONLY,
        inputs: vec![Layout::Plain],
        outputs: vec![Layout::Plain],
    };
    let [inputs, outputs] = [from, to].map(|dtype| [Operand::dense(dtype, vec![CODES], Layout::Plain)]);
    let request = Request {
        form: &form,
        inputs: &inputs,
        outputs: &outputs,
        ..*request
    };
    let call = Call {
        inputs: &[codes.as_ptr()],
        outputs: &[values.as_mut_ptr()],
        workspace: std::ptr::null_mut(),
        stream: std::ptr::null_mut(),
    };
    PointwiseInstance::new(program.clone(), &request)?.launch(&call)?;
    Ok(values)
}

fn has_eight_bits(dtype: DType) -> bool {
    matches!(dtype, DType::Int8 | DType::UInt8)
}

/// What of a group, in an order of execution, one kernel runs with a layer: what a table can stand for, if the layer is in that, else
/// what is before it, or what follows from it. A group in which a table saves less than its bytes cost stays whole.
pub fn share(network: &Network, group: Vec<LayerId>, layer: LayerId) -> Vec<LayerId> {
    /// In additions for each element.
    const LEAST: usize = 8;
    let Some(part) = part(network, &group).filter(|part| part.len() < group.len()) else {
        return group;
    };
    if lower(network, &part, &group::outputs(network, &part)).program.weight() < LEAST {
        return group;
    }
    let behind = reached(network, &group, &part);
    match (part.contains(&layer), behind.contains(&layer)) {
        (true, _) => part,
        (_, true) => behind,
        _ => {
            let before = |id: &LayerId| !part.contains(id) && !behind.contains(id);
            group.into_iter().filter(before).collect()
        }
    }
}

/// Those layers of a group that depend on some of its layers and are none of these.
fn reached(network: &Network, group: &[LayerId], from: &[LayerId]) -> Vec<LayerId> {
    let mut given: HashSet<TensorId> = from.iter().map(|&id| network[id].outputs[0]).collect();
    let mut found = vec![];
    for &id in group.iter().filter(|id| !from.contains(id)) {
        if network[id].inputs.iter().flatten().any(|tensor| given.contains(tensor)) {
            given.insert(network[id].outputs[0]);
            found.push(id);
        }
    }
    found
}

/// The layers of a group, in an order of execution, that a table can stand for: what leads from one tensor of 8 bits, and
/// nothing else, to another.
fn part(network: &Network, group: &[LayerId]) -> Option<Vec<LayerId>> {
    let read = group.iter().flat_map(|&layer| network[layer].inputs.iter().flatten());
    let mut starts = read.filter(|&&tensor| has_eight_bits(network[tensor].ty.dtype));
    starts.find_map(|&start| {
        let behind = following(network, group, start);
        (0..behind.len()).rev().find_map(|last| {
            let found = leading(network, &behind[..=last]);
            let [output] = group::outputs(network, &found)[..] else {
                return None;
            };
            has_eight_bits(network[output].ty.dtype).then_some(found)
        })
    })
}

/// Those layers of a group that depend on one tensor alone.
fn following(network: &Network, group: &[LayerId], start: TensorId) -> Vec<LayerId> {
    let mut known = HashSet::from([start]);
    let mut found = vec![];
    for &layer in group {
        let varies = |&&tensor: &&TensorId| {
            let constant = network[tensor].constant();
            constant.is_none_or(|array| array.uniform().is_none())
        };
        let mut read = network[layer].inputs.iter().flatten().filter(varies).peekable();
        if read.peek().is_some() && read.all(|tensor| known.contains(tensor)) {
            known.insert(network[layer].outputs[0]);
            found.push(layer);
        }
    }
    found
}

/// Those layers of a group on which its last one depends, with that one.
fn leading(network: &Network, group: &[LayerId]) -> Vec<LayerId> {
    let mut needed: HashSet<TensorId> = group.last().map(|&last| network[last].outputs[0]).into_iter().collect();
    let mut found = vec![];
    for &layer in group.iter().rev() {
        if needed.contains(&network[layer].outputs[0]) {
            needed.extend(network[layer].inputs.iter().flatten());
            found.push(layer);
        }
    }
    found.reverse();
    found
}

impl Launcher for Table {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let (call, values) = (parallel::Shared(call), &self.values);
        parallel::over(self.elements, GRAIN, |range| {
            let call = call.get();
            let (from, to) = (
                call.inputs[0].wrapping_add(range.start),
                call.outputs[0].wrapping_add(range.start),
            );
            // SAFETY: the planner gives addresses that hold the operands of the request, a byte for each element.
            unsafe { lookup(values, from, to, range.len()) };
        })
    }
}
