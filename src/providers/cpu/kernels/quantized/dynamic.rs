//! DynamicQuantizeLinear: the range of a tensor, then its elements as uint8.

use crate::error::Result;
use crate::network::dtype::DType;
use crate::network::ops::dynamic_quantize_linear::parameters;
use crate::plan::layout::Layout;
use crate::plan::{Call, Form, Kernel, Launcher, Prepared, Request};
use crate::providers::cpu::kernels::Answer;
use crate::providers::cpu::kernels::parallel::{self, Shared};
use crate::providers::cpu::kernels::scope::{Scope, uniform_forms};
use std::sync::Mutex;

/// Elements that a thread should at least look at.
const GRAIN: usize = 16 << 10;

/// The layer alone.
pub fn offer(scope: &Scope) -> Answer {
    let float = scope.input_type(0).is_some_and(|x| x.dtype == DType::Float32);
    if scope.op() != "DynamicQuantizeLinear" || !float {
        return Ok(vec![]);
    }
    Ok(vec![scope.alone(Dynamic, &[0])])
}

struct Dynamic;

impl Kernel for Dynamic {
    fn name(&self) -> String {
        "DynamicQuantizeLinear".into()
    }

    fn identity(&self) -> String {
        self.name()
    }

    fn forms(&self) -> Vec<Form> {
        uniform_forms(&[Layout::Plain], 1, 3)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let launcher = Quantizing {
            elements: request.inputs[0].elements(),
        };
        Ok(Prepared::new("range, then codes", launcher))
    }
}

struct Quantizing {
    elements: usize,
}

impl Launcher for Quantizing {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let shared = Shared(call);
        let ends = Mutex::new((0f32, 0f32));
        parallel::over(self.elements, GRAIN, |range| {
            // SAFETY: the planner gives addresses that hold the operands of the request.
            let x = unsafe {
                std::slice::from_raw_parts(shared.get().inputs[0].cast::<f32>().add(range.start), range.len())
            };
            let (low, high) = range_of(x);
            if let Ok(mut ends) = ends.lock() {
                *ends = (ends.0.min(low), ends.1.max(high));
            }
        })?;
        let (low, high) = ends.into_inner().unwrap_or_default();
        let (scale, zero) = parameters(low, high);
        // SAFETY: as above; scale and zero point are one element each.
        unsafe {
            call.outputs[1].cast::<f32>().write(scale);
            call.outputs[2].write(zero as u8);
        }
        parallel::over(self.elements, GRAIN, |range| {
            // SAFETY: as above; the ranges of the threads are disjoint.
            let (x, y) = unsafe {
                let call = shared.get();
                let x = call.inputs[0].cast::<f32>().add(range.start);
                let y = call.outputs[0].add(range.start);
                (
                    std::slice::from_raw_parts(x, range.len()),
                    std::slice::from_raw_parts_mut(y, range.len()),
                )
            };
            quantize(x, (scale, zero), y);
        })
    }
}

/// Numbers as integers of this scale and zero point.
pub fn quantize(x: &[f32], (scale, zero): (f32, f32), y: &mut [u8]) {
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the instructions.
        unsafe { codes_avx2(x, scale, zero, y) };
    } else {
        codes(x, scale, zero, y);
    }
}

/// The least and the greatest number, or 0.
pub fn range_of(x: &[f32]) -> (f32, f32) {
    const LANES: usize = 16;
    let (mut low, mut high) = ([0f32; LANES], [0f32; LANES]);
    let (packs, rest) = x.as_chunks::<LANES>();
    for pack in packs {
        for (lane, &value) in pack.iter().enumerate() {
            low[lane] = if value < low[lane] { value } else { low[lane] };
            high[lane] = if value > high[lane] { value } else { high[lane] };
        }
    }
    let least = low.iter().chain(rest).fold(0f32, |a, &b| a.min(b));
    (least, high.iter().chain(rest).fold(0f32, |a, &b| a.max(b)))
}

#[target_feature(enable = "avx2")]
fn codes_avx2(x: &[f32], scale: f32, zero: f32, y: &mut [u8]) {
    codes(x, scale, zero, y);
}

#[inline(always)]
#[expect(clippy::manual_clamp, reason = "clamp keeps NaN")]
fn codes(x: &[f32], scale: f32, zero: f32, y: &mut [u8]) {
    for (code, &value) in y.iter_mut().zip(x) {
        let number = ((value / scale).round_ties_even() + zero).max(0.0).min(255.0);
        // SAFETY: it is between 0 and 255: of NaN, max gives 0.
        *code = unsafe { number.to_int_unchecked::<i32>() } as u8;
    }
}

#[cfg(test)]
mod tests {
    use crate::network::dtype::DType;
    use crate::providers::cpu::kernels::testing::Case;

    #[test]
    fn every_size_and_none() {
        for dims in ["n 7 13", "n 40000"] {
            let mut case = Case::new(DType::Float32);
            let x = case.input(dims);
            let outputs = case.layer_of("DynamicQuantizeLinear", Default::default(), &[Some(x)]);
            for output in outputs {
                case.output(output);
            }
            case.check_fast(&[("n", 3)]);
            case.check_fast(&[("n", 0)]);
        }
    }
}
