//! DynamicQuantizePerToken: a token is read, and leaves its scale and its integers.

use crate::error::Result;
use crate::network::dtype::DType;
use crate::network::ops::dynamic_quantize_per_token::{MOST, parameters};
use crate::plan::layout::Layout;
use crate::plan::{Call, Candidate, Form, Instance, Kernel, Launcher, Prepared, Request};
use crate::providers::common::cast::cast_before;
use crate::providers::cpu::kernels::Answer;
use crate::providers::cpu::kernels::parallel::{self, Shared};
use crate::providers::cpu::kernels::scope::{Scope, uniform_forms};
use crate::providers::cpu::kernels::scratch::Scratch;
use crate::providers::cpu::simd::{Isa, convert, multiversion};
use std::ops::Range;
use std::sync::Arc;

/// Elements that a thread should at least do.
const GRAIN: usize = 4096;

/// The layer with the Cast of 16 bits in front of it, and alone.
pub fn offer(scope: &Scope) -> Answer {
    let mut found = vec![];
    let widened = |x| cast_before(scope.network, x, &[DType::Float16, DType::BFloat16]);
    if let Some((cast, x)) = scope.input(0).and_then(widened) {
        found.push(Candidate {
            kernel: Arc::new(PerToken),
            layers: vec![cast, scope.layer],
            inputs: vec![x],
            outputs: scope.layer().outputs.clone(),
        });
    }
    found.push(scope.alone(PerToken, &[0]));
    Ok(found)
}

struct PerToken;

impl Kernel for PerToken {
    fn name(&self) -> String {
        "DynamicQuantizePerToken".into()
    }

    fn identity(&self) -> String {
        self.name()
    }

    fn forms(&self) -> Vec<Form> {
        uniform_forms(&[Layout::Plain], 1, 2)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let x = &request.inputs[0];
        let length = x.shape.last().copied().unwrap_or(1);
        let tokens = request.outputs[1].elements();
        let own = if x.dtype == DType::Float32 { 0 } else { length };
        let launcher = Quantizing {
            tokens,
            length,
            dtype: x.dtype,
            scratch: Scratch::new(own * size_of::<f32>(), request.threads, tokens),
        };
        let workspace = launcher.scratch.workspace();
        Ok(Instance::new(format!("tokens {:?}", Isa::here()), launcher)
            .with_workspace(workspace)
            .into())
    }
}

struct Quantizing {
    tokens: usize,
    length: usize,
    dtype: DType,
    /// A token in float32, where it is not that.
    scratch: Scratch,
}

impl Launcher for Quantizing {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let (shared, this) = (Shared(call), &*self);
        parallel::over(this.tokens, GRAIN / this.length.max(1), |range| {
            let call = shared.get();
            // SAFETY: the planner gives addresses that hold the operands of the request; the ranges of threads are disjoint.
            this.scratch.with(call.workspace, |scratch| unsafe {
                this.work(range, call, scratch.cast())
            });
        })
    }
}

impl Quantizing {
    /// # Safety
    /// The call's addresses hold the operands of the request, and the scratch a token where it is not float32.
    unsafe fn work(&self, range: Range<usize>, call: &Call, scratch: *mut f32) {
        let n = self.length;
        for token in range {
            // SAFETY: the token lies within the operands.
            unsafe {
                let mut x: *const f32 = call.inputs[0].add(token * n * self.dtype.size()).cast();
                if self.dtype != DType::Float32 {
                    convert::to_f32(self.dtype, x.cast(), scratch, n);
                    x = scratch;
                }
                let (scale, inverse) = parameters(f32::from_bits(most(n, x)));
                call.outputs[1].cast::<f32>().add(token).write(scale);
                write(n, x, inverse, call.outputs[0].cast::<i8>().add(token * n));
            }
        }
    }
}

multiversion! {
    /// The bits of the greatest magnitude of `n` numbers: as integers magnitudes have the same order, NaN the last.
    ///
    /// # Safety
    /// `n` numbers must be readable.
    unsafe fn most<V>(n: usize, x: *const f32) -> u32 {
        let numbers = std::slice::from_raw_parts(x, n);
        numbers.iter().fold(0, |most, v| v.abs().to_bits().max(most))
    }
}

multiversion! {
    /// Writes `n` numbers as integers of a scale with this inverse.
    ///
    /// # Safety
    /// `n` numbers must be readable, and as many integers writable.
    unsafe fn write<V>(n: usize, x: *const f32, inverse: f32, y: *mut i8) {
        let numbers = std::slice::from_raw_parts(x, n);
        let integers = std::slice::from_raw_parts_mut(y, n);
        for (integer, &v) in integers.iter_mut().zip(numbers) {
            let whole = (v * inverse).round_ties_even();
            // Of NaN, as a token that is not finite becomes, the comparison is false.
            let held = if whole.abs() <= MOST { whole } else { 0.0 };
            // SAFETY: 32 bits hold it.
            *integer = held.to_int_unchecked::<i32>() as i8;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::network::dtype::DType;
    use crate::providers::cpu::kernels::testing::Case;

    #[test]
    fn every_length_and_none() {
        for dims in ["n 7 13", "n 256", "n 3 1", "2 n"] {
            let mut case = Case::new(DType::Float32);
            let x = case.input(dims);
            for output in case.layer_of("DynamicQuantizePerToken", Default::default(), &[Some(x)]) {
                case.output(output);
            }
            case.check_fast(&[("n", 3)]);
            case.check_fast(&[("n", 0)]);
        }
    }
}
