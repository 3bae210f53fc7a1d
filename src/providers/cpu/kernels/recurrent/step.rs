//! One step of one sequence: the gates from the sums, the new state from the gates.

use crate::network::ops::activation::{Activation, Function};
use crate::network::ops::recurrent::{Kind, Spec};
use crate::providers::cpu::simd::{map1, map2, map3, math, multiversion};

/// A function in single precision, with the bound of what goes into it.
#[derive(Debug, Clone, Copy)]
pub struct Act {
    function: Function,
    alpha: f32,
    beta: f32,
    clip: f32,
}

impl Act {
    /// The function of a spec.
    pub fn new(activation: &Activation, clip: f64) -> Self {
        Self {
            function: activation.function,
            alpha: activation.alpha as f32,
            beta: activation.beta as f32,
            clip: clip as f32,
        }
    }
}

/// Addresses of one sequence at one step.
#[derive(Clone, Copy)]
pub struct Row {
    /// The product with the input, all gates.
    pub input: *const f32,
    /// Added to it.
    pub bias: *const f32,
    /// GRU: added to the product with the reset state.
    pub late: *const f32,
    /// The product with the state; overwritten.
    pub gates: *mut f32,
    /// GRU: the reset state, and the product with it.
    pub reset: *mut f32,
    pub fresh: *mut f32,
    pub h: *mut f32,
    pub c: *mut f32,
    /// Null where there are none.
    pub peepholes: *const f32,
}

/// What the steps of one direction need to know.
#[derive(Debug, Clone)]
pub struct Cell {
    kind: Kind,
    acts: Vec<Act>,
    hidden: usize,
    input_forget: bool,
    linear_before_reset: bool,
}

impl Cell {
    /// The cell of a direction.
    pub fn new(spec: &Spec, direction: usize, hidden: usize) -> Self {
        let acts = spec.activations[direction].iter();
        Self {
            kind: spec.kind,
            acts: acts.map(|a| Act::new(a, spec.clip)).collect(),
            hidden,
            input_forget: spec.input_forget,
            linear_before_reset: spec.linear_before_reset,
        }
    }

    /// The first half of a step of a GRU that resets the state in front of a product: both gates, and the reset state.
    ///
    /// # Safety
    /// The addresses must hold what the row says.
    pub unsafe fn reset(&self, row: Row) {
        let n = self.hidden;
        // SAFETY: the caller's promise.
        unsafe {
            add(2 * n, row.gates, row.input, row.bias);
            activate(2 * n, row.gates, self.acts[0]);
            product(n, row.gates.add(n), row.h, row.reset);
        }
    }

    /// A whole step, or its second half.
    ///
    /// # Safety
    /// The addresses must hold what the row says.
    pub unsafe fn step(&self, row: Row) {
        // SAFETY: the caller's promise.
        unsafe {
            match self.kind {
                Kind::Rnn => {
                    add(self.hidden, row.gates, row.input, row.bias);
                    activate(self.hidden, row.gates, self.acts[0]);
                    row.h.copy_from_nonoverlapping(row.gates, self.hidden);
                }
                Kind::Gru => self.gru(row),
                Kind::Lstm => self.lstm(row),
            }
        }
    }

    unsafe fn gru(&self, row: Row) {
        let n = self.hidden;
        // SAFETY: the caller's promise.
        unsafe {
            let fresh = if self.linear_before_reset {
                add(2 * n, row.gates, row.input, row.bias);
                activate(2 * n, row.gates, self.acts[0]);
                let fresh = row.gates.add(2 * n);
                reset_sum(
                    n,
                    fresh,
                    row.late,
                    row.gates.add(n),
                    row.input.add(2 * n),
                    row.bias.add(2 * n),
                );
                fresh
            } else {
                add(n, row.fresh, row.input.add(2 * n), row.bias.add(2 * n));
                row.fresh
            };
            activate(n, fresh, self.acts[1]);
            mix(n, row.gates, fresh, row.h);
        }
    }

    unsafe fn lstm(&self, row: Row) {
        let n = self.hidden;
        // SAFETY: the caller's promise.
        unsafe {
            let [take, give, keep, fresh] = [0, 1, 2, 3].map(|gate| row.gates.add(gate * n));
            add(4 * n, row.gates, row.input, row.bias);
            if !row.peepholes.is_null() {
                add_product(n, take, row.peepholes, row.c);
                add_product(n, keep, row.peepholes.add(2 * n), row.c);
            }
            activate(n, take, self.acts[0]);
            match self.input_forget {
                true => complement(n, take, keep),
                false => activate(n, keep, self.acts[0]),
            }
            activate(n, fresh, self.acts[1]);
            cell(n, keep, take, fresh, row.c);
            if !row.peepholes.is_null() {
                add_product(n, give, row.peepholes.add(n), row.c);
            }
            activate(n, give, self.acts[0]);
            fresh.copy_from_nonoverlapping(row.c, n);
            activate(n, fresh, self.acts[2]);
            product(n, give, fresh, row.h);
        }
    }
}

multiversion! {
    /// `x += a + b`
    unsafe fn add<V>(n: usize, x: *mut f32, a: *const f32, b: *const f32) {
        map2!(V, n, x, a, x, |x, a| x + a);
        map2!(V, n, x, b, x, |x, b| x + b);
    }
}

multiversion! {
    /// `out = a * b`
    unsafe fn product<V>(n: usize, a: *const f32, b: *const f32, out: *mut f32) {
        map2!(V, n, a, b, out, |a, b| a * b);
    }
}

multiversion! {
    /// `b = 1 - a`
    unsafe fn complement<V>(n: usize, a: *const f32, b: *mut f32) {
        map1!(V, n, a, b, |a| V::splat(1.0) - a);
    }
}

multiversion! {
    /// `x += a * b`
    unsafe fn add_product<V>(n: usize, x: *mut f32, a: *const f32, b: *const f32) {
        map3!(V, n, a, b, x, x, |a, b, x| a.fma(b, x));
    }
}

multiversion! {
    /// `c = keep * c + take * fresh`
    unsafe fn cell<V>(n: usize, keep: *const f32, take: *const f32, fresh: *mut f32, c: *mut f32) {
        map2!(V, n, take, fresh, fresh, |t, f| t * f);
        map3!(V, n, keep, c, fresh, c, |k, c, f| k.fma(c, f));
    }
}

multiversion! {
    /// `h = (1 - update) * fresh + update * h`
    unsafe fn mix<V>(n: usize, update: *const f32, fresh: *const f32, h: *mut f32) {
        map3!(V, n, update, fresh, h, h, |u, f, h| (V::splat(1.0) - u).fma(f, u * h));
    }
}

multiversion! {
    /// `x = reset * (x + late) + input + bias`
    unsafe fn reset_sum<V>(
        n: usize,
        x: *mut f32,
        late: *const f32,
        reset: *const f32,
        input: *const f32,
        bias: *const f32,
    ) {
        map3!(V, n, x, late, reset, x, |x, l, r| (x + l) * r);
        map3!(V, n, x, input, bias, x, |x, i, b| x + (i + b));
    }
}

multiversion! {
    /// The function of each element, in place.
    unsafe fn activate<V>(n: usize, x: *mut f32, act: Act) {
        let (alpha, beta, zero) = (V::splat(act.alpha), V::splat(act.beta), V::splat(0.0));
        if act.clip.is_finite() {
            // `min` and `max` give their argument where either is NaN.
            let (low, high) = (V::splat(-act.clip), V::splat(act.clip));
            map1!(V, n, x, x, |v| high.min(low.max(v)));
        }
        match act.function {
            Function::Relu => map1!(V, n, x, x, |v| zero.max(v)),
            Function::Tanh => map1!(V, n, x, x, |v| math::tanh(v)),
            Function::Sigmoid => map1!(V, n, x, x, |v| math::sigmoid(v)),
            Function::Softsign => map1!(V, n, x, x, |v| v / (V::splat(1.0) + v.abs())),
            Function::Softplus => map1!(V, n, x, x, |v| math::softplus(v)),
            Function::Affine => map1!(V, n, x, x, |v| v.fma(alpha, beta)),
            Function::LeakyRelu => map1!(V, n, x, x, |v| V::select(v.lt(zero), v * alpha, v)),
            Function::ThresholdedRelu => map1!(V, n, x, x, |v| V::select(v.lt(alpha), zero, v)),
            Function::ScaledTanh => map1!(V, n, x, x, |v| alpha * math::tanh(beta * v)),
            Function::HardSigmoid => {
                map1!(V, n, x, x, |v| math::hard_sigmoid(v, alpha, beta));
            }
            Function::Elu => map1!(V, n, x, x, |v| V::select(v.lt(zero), alpha * math::expm1(v), v)),
        }
    }
}
