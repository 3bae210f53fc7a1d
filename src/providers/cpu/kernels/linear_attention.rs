//! LinearAttention: token after token, with a part of a state's columns at a time in the nearest cache.

use super::parallel::{self, Shared};
use super::scope::{Scope, uniform_forms};
use super::scratch::Scratch;
use super::{Answer, Why};
use crate::error::Result;
use crate::network::attr::Read;
use crate::network::dtype::DType;
use crate::network::ops::attention;
use crate::network::ops::linear_attention::{Extents, Rule, heads, rule};
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Call, Form, Instance, Kernel, Launcher, Prepared, Request};
use crate::providers::cpu::simd::{Isa, Vector, convert, map1, math, multiversion};
use std::ops::Range;

/// Inputs of the op, by place.
const Q: usize = 0;
const K: usize = 1;
const V: usize = 2;
const PAST: usize = 3;
const DECAY: usize = 4;
const BETA: usize = 5;
/// Columns of a state that are worked on together: they do not depend on the others.
const COLUMNS: usize = 64;
/// Multiplications that a thread should at least do.
const GRAIN: usize = 64 << 10;

/// LinearAttention, computed in f32.
pub fn offer(scope: &Scope) -> Answer {
    if scope.op() != "LinearAttention" {
        return Ok(vec![]);
    }
    if scope.output_type(0).dtype == DType::Float64 || scope.output_type(1).dtype == DType::Float64 {
        return Err(Why::new("float64 can't be computed in f32"));
    }
    let attrs = &scope.layer().attrs;
    let [heads, _] = heads(attrs).map_err(|e| Why::new(e.message()))?;
    let inputs: Vec<usize> = (0..=BETA).filter(|&i| scope.input(i).is_some()).collect();
    let kernel = LinearAttention {
        rule: rule(attrs).map_err(|e| Why::new(e.message()))?,
        heads: heads as usize,
        scale: attrs.float("scale"),
        slots: std::array::from_fn(|i| inputs.iter().position(|&given| given == i)),
    };
    Ok(vec![scope.alone(kernel, &inputs)])
}

struct LinearAttention {
    rule: Rule,
    /// Heads of the queries.
    heads: usize,
    /// As the layer gives it.
    scale: f64,
    /// Which input of the kernel each input of the op is.
    slots: [Option<usize>; 6],
}

impl Kernel for LinearAttention {
    fn name(&self) -> String {
        "LinearAttention".into()
    }

    fn identity(&self) -> String {
        format!("{:?} {} {} {:?}", self.rule, self.heads, self.scale, self.slots)
    }

    fn forms(&self) -> Vec<Form> {
        uniform_forms(&[Layout::Plain], self.slots.iter().flatten().count(), 2)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let operands = self.slots.map(|slot| slot.map(|i| (i, request.inputs[i].clone())));
        let last = |i: usize| operands[i].as_ref().map_or(0, |(_, operand)| operand.shape[2]);
        let (y, state) = (&request.outputs[0], &request.outputs[1]);
        let extents = Extents::new(self.heads, y.shape[1], &state.shape, [last(DECAY), last(BETA)]);
        let launcher = LinearAttentionInstance {
            rule: self.rule,
            // Without numbers in a key the results are 0, whatever they are multiplied by.
            scale: attention::scale(self.scale, extents.size.max(1) as i64) as f32,
            scratch: Scratch::new(
                Lines::bytes(&extents),
                request.threads,
                state.shape[0] * extents.shared * extents.v_size.div_ceil(COLUMNS),
            ),
            extents,
            operands,
            y: y.clone(),
            state: state.clone(),
        };
        let workspace = launcher.scratch.workspace();
        Ok(Instance::new(format!("columns of states {:?}", Isa::here()), launcher)
            .with_workspace(workspace)
            .into())
    }
}

struct LinearAttentionInstance {
    rule: Rule,
    extents: Extents,
    scratch: Scratch,
    scale: f32,
    operands: [Option<(usize, Operand)>; 6],
    y: Operand,
    state: Operand,
}

/// The numbers of one head that a thread works with, in f32.
struct Lines {
    /// Rows of COLUMNS numbers, one for each number of a key.
    state: *mut f32,
    key: *mut f32,
    /// What each row is multiplied by.
    decay: *mut f32,
    /// The heads of the group, one after another.
    query: *mut f32,
    value: *mut f32,
    /// COLUMNS numbers for each head of the group.
    y: *mut f32,
}

impl Lines {
    fn bytes(x: &Extents) -> usize {
        let group = x.heads / x.shared;
        4 * (x.size * (COLUMNS + 2 + group) + COLUMNS * (1 + group))
    }

    fn new(scratch: *mut u8, x: &Extents) -> Self {
        let state = scratch.cast::<f32>();
        let value = state.wrapping_add(x.size * COLUMNS);
        let y = value.wrapping_add(COLUMNS);
        let key = y.wrapping_add(x.heads / x.shared * COLUMNS);
        let decay = key.wrapping_add(x.size);
        let query = decay.wrapping_add(x.size);
        Self {
            state,
            key,
            decay,
            query,
            value,
            y,
        }
    }
}

impl Launcher for LinearAttentionInstance {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let (this, call, x) = (&*self, Shared(call), self.extents);
        let blocks = x.v_size.div_ceil(COLUMNS);
        let work = x.tokens.max(1) * x.size.max(1) * COLUMNS;
        parallel::over(self.state.shape[0] * x.shared * blocks, GRAIN / work, |range| {
            let call = call.get();
            this.scratch.with(call.workspace, |scratch| {
                let lines = Lines::new(scratch, &this.extents);
                // SAFETY: the planner gives addresses that hold the operands of the request.
                unsafe { this.work(range, call, &lines) }
            });
        })
    }
}

impl LinearAttentionInstance {
    /// Works on blocks of columns of states.
    unsafe fn work(&self, range: Range<usize>, call: &Call, lines: &Lines) {
        let x = self.extents;
        let blocks = x.v_size.div_ceil(COLUMNS);
        for unit in range {
            let (head, first) = (unit / blocks, unit % blocks * COLUMNS);
            let width = COLUMNS.min(x.v_size - first);
            // SAFETY: the caller's promise; the block lies within the state of its head.
            unsafe {
                self.begin(call, lines, head, first, width);
                for token in 0..x.tokens {
                    self.token(call, lines, head, token, (first, width));
                }
                self.end(call, lines, head, first, width);
            }
        }
    }

    /// The numbers of an input from an element on, as f32; whether it is there.
    unsafe fn read(&self, call: &Call, input: usize, at: usize, to: *mut f32, n: usize) -> bool {
        let Some((slot, operand)) = &self.operands[input] else {
            return false;
        };
        // SAFETY: the caller says where the elements lie.
        unsafe {
            let from = call.inputs[*slot].add(at * operand.dtype.size());
            convert::to_f32(operand.dtype, from, to, n);
        }
        true
    }

    /// Brings the columns of a state in; those behind its end are 0.
    unsafe fn begin(&self, call: &Call, lines: &Lines, head: usize, first: usize, width: usize) {
        let x = self.extents;
        // SAFETY: the lines have room for the extents, and the rows lie within the state.
        unsafe {
            lines.state.write_bytes(0, x.size * COLUMNS);
            lines.value.write_bytes(0, COLUMNS);
            for d in 0..x.size {
                let at = (head * x.size + d) * x.v_size + first;
                self.read(call, PAST, at, lines.state.add(d * COLUMNS), width);
            }
        }
    }

    unsafe fn end(&self, call: &Call, lines: &Lines, head: usize, first: usize, width: usize) {
        let (x, dtype) = (self.extents, self.state.dtype);
        for d in 0..x.size {
            let at = (head * x.size + d) * x.v_size + first;
            // SAFETY: as in `begin`.
            unsafe {
                let to = call.outputs[1].add(at * dtype.size());
                convert::from_f32(dtype, lines.state.add(d * COLUMNS), to, width);
            }
        }
    }

    /// Takes one token in and gives what its queries find.
    unsafe fn token(&self, call: &Call, lines: &Lines, head: usize, token: usize, (first, width): (usize, usize)) {
        let (x, group) = (self.extents, self.extents.heads / self.extents.shared);
        let (batch, head) = (head / x.shared, head % x.shared);
        let place = |heads: [usize; 2], head: usize| x.place(batch, token, heads, head);
        let mut beta = 1f32;
        // SAFETY: the places lie within the operands, and the lines have room for the extents.
        unsafe {
            self.read(call, K, place([x.shared, x.size], head), lines.key, x.size);
            let queries = place([x.heads, x.size], head * group);
            self.read(call, Q, queries, lines.query, group * x.size);
            let values = place([x.shared, x.v_size], head) + first;
            self.read(call, V, values, lines.value, width);
            let each = x.decays / x.shared;
            if self.read(call, DECAY, place([x.shared, each], head), lines.decay, each) {
                powers(each, lines.decay);
                if each == 1 {
                    let by = *lines.decay;
                    std::slice::from_raw_parts_mut(lines.decay, x.size).fill(by);
                }
            }
            if x.betas > 0 {
                self.read(call, BETA, place([x.betas, 1], head % x.betas), &mut beta, 1);
            }
            step(self.rule, beta, self.scale, lines, [x.size, width, group]);
            for g in 0..group {
                let at = place([x.heads, x.v_size], head * group + g) + first;
                let to = call.outputs[0].add(at * self.y.dtype.size());
                convert::from_f32(self.y.dtype, lines.y.add(g * COLUMNS), to, width);
            }
        }
    }
}

multiversion! {
    unsafe fn powers<W>(n: usize, x: *mut f32) {
        map1!(W, n, x, x, |x| math::exp(x));
    }
}

multiversion! {
    /// Renews the state by a token, and multiplies it by the queries.
    unsafe fn step<W>(rule: Rule, beta: f32, scale: f32, lines: &Lines, extents: [usize; 3]) {
        let mut column = 0;
        while column < extents[1] {
            if extents[1] - column > W::LANES {
                columns::<W, 4>(rule, beta, scale, lines, extents, column);
                column += 4 * W::LANES;
            } else {
                columns::<W, 1>(rule, beta, scale, lines, extents, column);
                column += W::LANES;
            }
        }
    }
}

/// N vectors of columns: as many sums are in the making as hide the time of an addition.
#[inline(always)]
unsafe fn columns<W: Vector, const N: usize>(
    rule: Rule,
    beta: f32,
    scale: f32,
    lines: &Lines,
    [size, _, group]: [usize; 3],
    column: usize,
) {
    const { assert!(COLUMNS.is_multiple_of(4 * W::LANES)) };
    let state = |d: usize, n: usize| lines.state.wrapping_add(d * COLUMNS + column + n * W::LANES);
    // SAFETY: the caller's lines have `size` rows of COLUMNS numbers, and `group` heads.
    unsafe {
        let mut value: [W; N] = std::array::from_fn(|n| W::load(lines.value.add(column + n * W::LANES)));
        if rule.gated || rule.delta {
            let mut known = [W::splat(0.0); N];
            for d in 0..size {
                let key = W::splat(*lines.key.add(d));
                for (n, known) in known.iter_mut().enumerate() {
                    let mut s = W::load(state(d, n));
                    if rule.gated {
                        s = s * W::splat(*lines.decay.add(d));
                        s.store(state(d, n));
                    }
                    *known = s.fma(key, *known);
                }
            }
            if rule.delta {
                for (value, known) in value.iter_mut().zip(known) {
                    *value = W::splat(beta) * (*value - known);
                }
            }
        }
        for g in 0..group {
            let query = lines.query.add(g * size);
            let mut y = [W::splat(0.0); N];
            for d in 0..size {
                let (key, query) = (W::splat(*lines.key.add(d)), W::splat(*query.add(d)));
                for n in 0..N {
                    let mut s = W::load(state(d, n));
                    if g == 0 {
                        s = value[n].fma(key, s);
                        s.store(state(d, n));
                    }
                    y[n] = s.fma(query, y[n]);
                }
            }
            for (n, y) in y.into_iter().enumerate() {
                (y * W::splat(scale)).store(lines.y.add(g * COLUMNS + column + n * W::LANES));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::network::attr::{Attr, attrs};
    use crate::network::dtype::DType;
    use crate::providers::cpu::kernels::testing::Case;

    #[test]
    fn every_rule_in_groups_and_with_a_past() {
        for dtype in [DType::Float32, DType::BFloat16] {
            for (rule, decay, beta) in [
                ("linear", None, None),
                ("gated", Some("2 t 3"), None),
                ("gated", Some("2 t 27"), None),
                ("delta", None, Some("2 t 1")),
                ("gated_delta", Some("2 t 3"), Some("2 t 3")),
            ] {
                let mut case = Case::new(dtype);
                let [q, k, v] = ["2 t 54", "2 t 27", "2 t 255"].map(|dims| Some(case.input(dims)));
                let past = decay.map(|_| case.input_of(DType::Float32, "2 3 9 85"));
                let [decay, beta] = [decay, beta].map(|dims| dims.map(|dims| case.input(dims)));
                let how = attrs([
                    ("q_num_heads", Attr::Int(6)),
                    ("kv_num_heads", Attr::Int(3)),
                    ("update_rule", Attr::Text(rule.into())),
                ]);
                let outputs = case.layer_of("LinearAttention", how, &[q, k, v, past, decay, beta]);
                outputs.into_iter().for_each(|y| _ = case.output(y));
                case.check_fast(&[("t", 5)]);
                case.check_fast(&[("t", 0)]);
            }
        }
    }
}
