//! Attention without a matrix of all scores: blocks of keys, whose weights meet the values at once.
//!
//! Queries, keys and values are read where the layers before left them: Transposes, Reshapes, Splits and Slices that
//! only attention reads become strides, and so do those behind it.

mod block;
pub mod product;
#[cfg(test)]
mod tests;

use super::Answer;
use super::parallel::{self, Shared};
use super::scope::{Scope, uniform_forms};
use super::scratch::Scratch;
use crate::error::Result;
use crate::network::attr::Read;
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::ops::attention;
use crate::network::{LayerId, TensorId};
use crate::plan::layout::Layout;
use crate::plan::{Call, Candidate, Form, Instance, Kernel, Launcher, Prepared, Request};
use crate::providers::common::strided_view::{
    ConcreteView, FoldedView, StridedView, movement_producers, through_consumers, through_producers,
};
use crate::providers::cpu::simd::Isa;
use block::{KEYS, QUERIES, Rows, Rule, Task, attend, scratch_bytes};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// Attention with the layers around it that only move elements, and alone.
pub fn offer(scope: &Scope) -> Answer {
    let ty = scope.output_type(0);
    if scope.op() != "Attention" || ty.dtype == DType::Float64 {
        return Ok(vec![]);
    }
    let given: Vec<TensorId> = (0..4).filter_map(|i| scope.input(i)).collect();
    let mut before = movement_producers(scope.network, scope.layer, &given);
    let behind_it = through_consumers(scope.network, scope.layer().outputs[0]);
    let mut found = vec![];
    // Some of the layers before it may turn out to be more than strides: those that are left must not be cut in two.
    while !before.is_empty() || !behind_it.layers.is_empty() {
        let views: Vec<FoldedView> = given
            .iter()
            .map(|&t| through_producers(scope.network, t, &before))
            .collect();
        let used: HashSet<LayerId> = views.iter().flat_map(|folded| folded.layers.iter().copied()).collect();
        if used == before {
            found.extend(candidate(scope, &views, &behind_it));
            break;
        }
        before = private(scope, used);
    }
    let none = HashSet::new();
    let views: Vec<FoldedView> = given
        .iter()
        .map(|&t| through_producers(scope.network, t, &none))
        .collect();
    let y = FoldedView {
        root: scope.layer().outputs[0],
        view: StridedView::plain(&ty.shape),
        layers: vec![],
    };
    found.extend(candidate(scope, &views, &y));
    Ok(found)
}

/// Those of the layers whose results only they and the scope's layer read.
fn private(scope: &Scope, mut layers: HashSet<LayerId>) -> HashSet<LayerId> {
    loop {
        let network = scope.network;
        let inside = |user: &LayerId| *user == scope.layer || layers.contains(user);
        let kept: HashSet<LayerId> = layers
            .iter()
            .copied()
            .filter(|&id| network[id].outputs.iter().all(|&t| network[t].users.iter().all(inside)))
            .collect();
        if kept.len() == layers.len() {
            return kept;
        }
        layers = kept;
    }
}

fn candidate(scope: &Scope, views: &[FoldedView], y: &FoldedView) -> Option<Candidate> {
    let (network, attrs) = (scope.network, &scope.layer().attrs);
    let mut inputs: Vec<TensorId> = vec![];
    let mut operands = vec![];
    let [q, k] = [scope.input_type(0)?, scope.input_type(1)?];
    let scores = [&q.shape[..3], &k.shape[2..3]].concat();
    for (i, folded) in views.iter().enumerate() {
        let input = inputs.iter().position(|&t| t == folded.root).unwrap_or_else(|| {
            inputs.push(folded.root);
            inputs.len() - 1
        });
        let view = folded.view.clone();
        // What is broadcast under a guard has the extent of the scores, or the call is refused.
        let view = if i == 3 { broadcast(view, &scores) } else { view };
        operands.push((input, view));
    }
    let mut layers: Vec<LayerId> = vec![];
    for layer in views.iter().flat_map(|folded| &folded.layers) {
        if !layers.contains(layer) {
            layers.push(*layer);
        }
    }
    let names = |layers: &[LayerId]| layers.iter().map(|&l| network[l].op.name).collect::<Vec<_>>();
    let before: Vec<&str> = names(&layers).into_iter().rev().collect();
    let name = [&before[..], &["Attention"], &names(&y.layers)].concat().join("+");
    layers.push(scope.layer);
    layers.extend(&y.layers);
    let kernel = Attention {
        name,
        rule: Rule {
            scale: attrs.float("scale") as f32,
            softcap: attrs.float("softcap") as f32,
            causal: attrs.flag("is_causal"),
            nan_if_blind: attrs.flag("nan_if_blind"),
        },
        inputs: inputs.len(),
        operands,
        y: y.view.clone(),
    };
    Some(Candidate {
        kernel: Arc::new(kernel),
        layers,
        inputs,
        outputs: vec![y.root],
    })
}

/// A mask as it meets the scores; extents that differ in writing are equal at every call.
fn broadcast(mut view: StridedView, scores: &[Dim]) -> StridedView {
    let lead = scores.len().saturating_sub(view.shape.len());
    view.shape.splice(0..0, vec![1i64.into(); lead]);
    view.strides.splice(0..0, vec![Dim::default(); lead]);
    view
}

struct Attention {
    name: String,
    /// The scale as the layer gives it.
    rule: Rule,
    /// How many tensors it reads.
    inputs: usize,
    /// Queries, keys, values and perhaps a mask: which input holds them, and how.
    operands: Vec<(usize, StridedView)>,
    y: StridedView,
}

impl Kernel for Attention {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn identity(&self) -> String {
        format!("{} {:?} {}", self.name, self.rule, self.operands.len())
    }

    fn forms(&self) -> Vec<Form> {
        uniform_forms(&[Layout::Plain], self.inputs, 1)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let at = |(input, view): &(usize, StridedView)| {
            Ok(Operand {
                input: *input,
                dtype: request.inputs[*input].dtype,
                strided: view.at(request.binding)?,
            })
        };
        let mut operands = self.operands.iter().map(at).collect::<Result<Vec<_>>>()?;
        let y = self.y.at(request.binding)?;
        let mut mask = (operands.len() > 3).then(|| operands.remove(3));
        if let Some(mask) = &mut mask {
            let strided = &mut mask.strided;
            let one = strided
                .shape
                .iter()
                .zip(&mut strided.strides)
                .filter(|(extent, _)| **extent == 1);
            one.for_each(|(_, stride)| *stride = 0);
        }
        let chunk = chunk(&y.shape, request.threads);
        let size = operands[0].strided.shape[3] as i64;
        let rule = Rule {
            scale: attention::scale(self.rule.scale as f64, size) as f32,
            ..self.rule
        };
        let sizes = [size as usize, operands[2].strided.shape[3]];
        let tasks = y.shape[0] * y.shape[1] * y.shape[2].div_ceil(chunk);
        let launcher = AttentionInstance {
            scratch: Scratch::new(scratch_bytes(chunk, sizes), request.threads, tasks),
            rule,
            operands,
            mask,
            y,
            chunk,
        };
        let workspace = launcher.scratch.workspace();
        Ok(Instance::new(format!("blocks of keys {:?}", Isa::here()), launcher)
            .with_workspace(workspace)
            .into())
    }
}

/// Queries of one task: all of a head, unless there are too few heads for the threads.
fn chunk(y: &[usize], threads: usize) -> usize {
    let (heads, queries) = (y[0] * y[1], y[2]);
    let even = heads.is_multiple_of(threads.max(1)) || heads >= 8 * threads;
    let longest = if even { KEYS } else { 2 * QUERIES };
    let chunks = queries.div_ceil(longest).max(1);
    queries.div_ceil(chunks).max(1)
}

struct Operand {
    input: usize,
    dtype: DType,
    strided: ConcreteView,
}

impl Operand {
    /// The rows of one head.
    unsafe fn rows(&self, call: &Call, batch: usize, head: usize) -> Rows {
        let [b, h, rows, within] = [0, 1, 2, 3].map(|axis| self.strided.strides[axis]);
        let place = self.strided.offset + batch * b + head * h;
        Rows {
            // SAFETY: the caller's promise.
            at: unsafe { call.inputs[self.input].add(place * self.dtype.size()) },
            dtype: self.dtype,
            steps: [rows, within],
        }
    }
}

struct AttentionInstance {
    rule: Rule,
    /// Queries, keys, values.
    operands: Vec<Operand>,
    mask: Option<Operand>,
    y: ConcreteView,
    /// Queries of one task.
    chunk: usize,
    scratch: Scratch,
}

impl Launcher for AttentionInstance {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let (call, this) = (Shared(call), &*self);
        let &[batch, heads, queries, _] = this.y.shape.as_slice() else {
            return Ok(());
        };
        let chunks = queries.div_ceil(this.chunk);
        parallel::over(batch * heads * chunks, 1, |range| {
            // SAFETY: the planner gives addresses that hold the operands of the request.
            unsafe { this.work(range, call.get()) }
        })
    }
}

impl AttentionInstance {
    unsafe fn work(&self, range: Range<usize>, call: &Call) {
        let [q, k, v] = [0, 1, 2].map(|i| &self.operands[i]);
        let sizes = [q.strided.shape[3], v.strided.shape[3]];
        let (heads, queries) = (self.y.shape[1], self.y.shape[2]);
        let group = heads / k.strided.shape[1].max(1);
        let chunks = queries.div_ceil(self.chunk);
        self.scratch.with(call.workspace, |scratch| {
            for unit in range {
                let (batch, head) = (unit / chunks / heads, unit / chunks % heads);
                let first = unit % chunks * self.chunk;
                let place = self.y.offset + batch * self.y.strides[0] + head * self.y.strides[1];
                // SAFETY: the rows of the head lie within the operands.
                unsafe {
                    let task = Task {
                        rule: self.rule,
                        queries: [first, self.chunk.min(queries - first)],
                        keys: k.strided.shape[2],
                        sizes,
                        q: q.rows(call, batch, head),
                        k: k.rows(call, batch, head / group),
                        v: v.rows(call, batch, head / group),
                        mask: self.mask.as_ref().map(|mask| mask.rows(call, batch, head)),
                        y: call.outputs[0].add(place * q.dtype.size()),
                        y_steps: [self.y.strides[2], self.y.strides[3]],
                    };
                    attend(&task, scratch.cast());
                }
            }
        });
    }
}
