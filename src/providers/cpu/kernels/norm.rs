//! LayerNormalization and RMSNormalization over trailing axes, with the residual that is added before.

use super::Answer;
use super::parallel::{self, Shared};
use super::scope::{Scope, uniform_forms};
use super::scratch::Scratch;
use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::Read;
use crate::network::dtype::DType;
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Call, Candidate, Form, Instance, Kernel, Launcher, Prepared, Request};
use crate::providers::cpu::simd::{Isa, Vector, convert, map1, map2, multiversion};
use std::ops::Range;
use std::sync::Arc;

/// The normalization with the Add before it, and alone.
pub fn offer(scope: &Scope) -> Answer {
    let centred = match scope.op() {
        "LayerNormalization" => true,
        "RMSNormalization" => false,
        _ => return Ok(vec![]),
    };
    let ty = scope.output_type(0);
    let layer = scope.layer();
    let Ok(axis) = ty.axis(layer.attrs.int("axis")) else {
        return Ok(vec![]);
    };
    let Some(length) = ty.shape[axis..].iter().map(|d| d.as_const()).product::<Option<i64>>() else {
        return Ok(vec![]);
    };
    if ty.dtype == DType::Float64 || layer.outputs.len() != 1 {
        return Ok(vec![]);
    }
    // Scale and shift are kept as f32; such as are no constants, or smaller than a row, run as smaller ops.
    let side = |index: usize| match (scope.input(index), scope.constant(index)) {
        (None, _) => Some(None),
        (Some(_), Some(array)) if array.len() == length as usize => Some(Some(array.cast(DType::Float32))),
        _ => None,
    };
    let (Some(scale), Some(shift)) = (side(1), side(2)) else {
        return Ok(vec![]);
    };
    let kernel = |added: bool, keeps_sum: bool| Norm {
        name: if added {
            format!("Add+{}", layer.op.name)
        } else {
            layer.op.name.into()
        },
        length: length as usize,
        epsilon: layer.attrs.float("epsilon") as f32,
        centred,
        sides: Sides {
            scale: scale.clone(),
            shift: shift.clone(),
        },
        added,
        keeps_sum,
    };
    let mut found = vec![];
    if let Some((add, inputs, sum)) = scope.residual() {
        let mut outputs = layer.outputs.clone();
        outputs.extend(sum);
        found.push(Candidate {
            kernel: Arc::new(kernel(true, sum.is_some())),
            layers: vec![add, scope.layer],
            inputs: inputs.to_vec(),
            outputs,
        });
    }
    found.push(scope.alone(kernel(false, false), &[0]));
    Ok(found)
}

#[derive(Clone)]
struct Sides {
    scale: Option<Array>,
    shift: Option<Array>,
}

struct Norm {
    name: String,
    length: usize,
    epsilon: f32,
    centred: bool,
    sides: Sides,
    added: bool,
    keeps_sum: bool,
}

impl Kernel for Norm {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn identity(&self) -> String {
        let sides = (self.sides.scale.is_some(), self.sides.shift.is_some());
        format!("{} {} {sides:?} {}", self.name, self.length, self.keeps_sum)
    }

    fn forms(&self) -> Vec<Form> {
        uniform_forms(&[Layout::Plain], 1 + self.added as usize, 1 + self.keeps_sum as usize)
    }

    fn in_place(&self) -> Vec<(usize, usize)> {
        // A row is read whole before any of it is written.
        vec![(0, 0)]
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let whole = request.outputs[0].elements();
        let fits = |operand: &Operand| operand.elements() == whole;
        if !request.inputs.iter().all(fits) || !whole.is_multiple_of(self.length.max(1)) {
            return Err(Error::internal("the operands of a normalization differ in shape"));
        }
        let rows = whole / self.length.max(1);
        let launcher = NormInstance {
            rows,
            scratch: Scratch::new(self.length * 8, request.threads, rows),
            length: self.length,
            dtype: request.outputs[0].dtype,
            epsilon: self.epsilon,
            centred: self.centred,
            sides: self.sides.clone(),
            added: self.added,
            keeps_sum: self.keeps_sum,
        };
        let workspace = launcher.scratch.workspace();
        Ok(Instance::new(format!("rows {:?}", Isa::here()), launcher)
            .with_workspace(workspace)
            .into())
    }
}

struct NormInstance {
    rows: usize,
    /// Two rows of f32.
    scratch: Scratch,
    length: usize,
    dtype: DType,
    epsilon: f32,
    centred: bool,
    sides: Sides,
    added: bool,
    keeps_sum: bool,
}

/// Elements that a thread should at least do.
const GRAIN: usize = 4096;

impl Launcher for NormInstance {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let (call, this) = (Shared(call), &*self);
        parallel::over(this.rows, GRAIN / this.length.max(1), |range| {
            let call = call.get();
            // SAFETY: the planner gives addresses that hold the operands of the request.
            this.scratch.with(call.workspace, |scratch| unsafe {
                this.work(range, call, scratch.cast())
            });
        })
    }
}

impl NormInstance {
    unsafe fn work(&self, range: Range<usize>, call: &Call, row: *mut f32) {
        let n = self.length;
        let address = |side: &Option<Array>| side.as_ref().map_or(std::ptr::null(), |a| a.bytes().as_ptr().cast());
        let (scale, shift) = (address(&self.sides.scale), address(&self.sides.shift));
        for i in range {
            let at = i * n * self.dtype.size();
            // SAFETY: row `i` lies within the operands; the scratch holds two rows.
            unsafe {
                convert::to_f32(self.dtype, call.inputs[0].add(at), row, n);
                if self.added {
                    let other = row.add(n);
                    convert::to_f32(self.dtype, call.inputs[1].add(at), other, n);
                    add(n, row, other);
                }
                if self.keeps_sum {
                    convert::from_f32(self.dtype, row, call.outputs[1].add(at), n);
                }
                normalise(n, row, self.centred, self.epsilon, scale, shift);
                convert::from_f32(self.dtype, row, call.outputs[0].add(at), n);
            }
        }
    }
}

/// The sum of `f(x)` over `n` numbers, in four chains.
#[inline(always)]
pub unsafe fn sum_of<V: Vector>(n: usize, x: *const f32, f: impl Fn(V) -> V, rest: impl Fn(f32) -> f32) -> f32 {
    let mut chains = [V::splat(0.0); 4];
    let mut lanes = [0f32; 16];
    let mut i = 0;
    // SAFETY: the indices stay below `n`, and LANES is at most 16.
    unsafe {
        while i + 4 * V::LANES <= n {
            for (at, chain) in chains.iter_mut().enumerate() {
                *chain = *chain + f(V::load(x.add(i + at * V::LANES)));
            }
            i += 4 * V::LANES;
        }
        let [mut a, b, c, d] = chains;
        while i + V::LANES <= n {
            a = a + f(V::load(x.add(i)));
            i += V::LANES;
        }
        ((a + b) + (c + d)).store(lanes.as_mut_ptr());
        let tail: f32 = (i..n).map(|i| rest(*x.add(i))).sum();
        lanes.iter().sum::<f32>() + tail
    }
}

multiversion! {
    /// `row += other`.
    unsafe fn add<V>(n: usize, row: *mut f32, other: *const f32) {
        map2!(V, n, row, other, row, |a, b| a + b);
    }
}

multiversion! {
    /// Normalises a row in place; scale and shift may be null.
    unsafe fn normalise<V>(
        n: usize,
        row: *mut f32,
        centred: bool,
        epsilon: f32,
        scale: *const f32,
        shift: *const f32,
    ) {
        let mean = if centred { sum_of::<V>(n, row, |v| v, |v| v) / n as f32 } else { 0.0 };
        let m = V::splat(mean);
        let squares = sum_of::<V>(n, row, |v| (v - m) * (v - m), |v| (v - mean) * (v - mean));
        let factor = V::splat(1.0 / (squares / n as f32 + epsilon).sqrt());
        map1!(V, n, row, row, |v| (v - m) * factor);
        if !scale.is_null() {
            map2!(V, n, row, scale, row, |v, s| v * s);
        }
        if !shift.is_null() {
            map2!(V, n, row, shift, row, |v, s| v + s);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::network::attr::{Attr, attrs};
    use crate::network::dtype::DType;
    use crate::providers::cpu::kernels::testing::Case;

    #[test]
    fn rows_with_residual_scale_and_shift() {
        for dtype in [DType::Float32, DType::BFloat16] {
            for width in [1, 17, 64, 768] {
                let mut case = Case::new(dtype);
                let (a, b) = (case.input(&format!("b s {width}")), case.input(&format!("b s {width}")));
                let sum = case.op("Add", &[a, b]);
                let (scale, shift) = (case.weights(&[width]), case.weights(&[width]));
                let y = case.op("LayerNormalization", &[sum, scale, shift]);
                let z = case.op("RMSNormalization", &[sum, scale]);
                case.output(y).output(z);
                let names = case.check_fast(&[("b", 2), ("s", 3)]);
                assert!(names.contains(&"Add+LayerNormalization".into()), "{names:?}");
                case.check_fast(&[("b", 0), ("s", 3)]);
            }
        }
    }

    #[test]
    fn several_trailing_axes() {
        let mut case = Case::new(DType::Float32);
        let x = case.input("b 3 5 7");
        let scale = case.weights(&[5, 7]);
        let y = case.layer_of(
            "LayerNormalization",
            attrs([("axis", Attr::Int(2))]),
            &[Some(x), Some(scale)],
        )[0];
        case.output(y).check_fast(&[("b", 2)]);
    }
}
