//! LRN: columns of channels, a block of places at a time.

use super::Answer;
use super::parallel::{self, Shared};
use super::scope::{Scope, uniform_forms};
use super::scratch::Scratch;
use crate::error::Result;
use crate::network::attr::Read;
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Call, Form, Instance, Kernel, Launcher, Prepared, Request};
use crate::providers::cpu::simd::{convert, map1, map2, math, multiversion};
use std::ops::Range;

/// Places that are worked on together: their squares stay in the second-level cache up to a thousand channels.
const PLACES: usize = 64;
/// Elements that a thread should at least get.
const GRAIN: usize = 8 << 10;

/// LRN whose sums stay positive.
pub fn offer(scope: &Scope) -> Answer {
    if scope.op() != "LRN" {
        return Ok(vec![]);
    }
    let attrs = &scope.layer().attrs;
    let [alpha, beta, bias] = ["alpha", "beta", "bias"].map(|name| attrs.float(name) as f32);
    if alpha < 0.0 || bias < 0.0 {
        return Ok(vec![]);
    }
    let size = attrs.int("size") as usize;
    let kernel = Lrn {
        before: (size - 1) / 2,
        after: size / 2,
        scale: alpha / size as f32,
        beta,
        bias,
    };
    Ok(vec![scope.alone(kernel, &[0])])
}

/// x / (bias + scale * the sum of the squares of the channels around)^beta
#[derive(Debug, Clone, Copy)]
struct Lrn {
    before: usize,
    after: usize,
    scale: f32,
    beta: f32,
    bias: f32,
}

impl Kernel for Lrn {
    fn name(&self) -> String {
        "LRN".into()
    }

    fn identity(&self) -> String {
        format!("{self:?}")
    }

    fn forms(&self) -> Vec<Form> {
        uniform_forms(&[Layout::Plain], 1, 1)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let x = request.inputs[0].clone();
        let (channels, places) = (x.shape[1], x.shape[2..].iter().product::<usize>());
        let launcher = LrnInstance {
            lrn: *self,
            scratch: Scratch::new(
                channels * PLACES * 4,
                request.threads,
                x.shape[0] * places.div_ceil(PLACES),
            ),
            x,
        };
        let workspace = launcher.scratch.workspace();
        Ok(Instance::new("columns of channels", launcher)
            .with_workspace(workspace)
            .into())
    }
}

struct LrnInstance {
    lrn: Lrn,
    x: Operand,
    /// The squares of all channels in a block of places.
    scratch: Scratch,
}

impl Launcher for LrnInstance {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let (channels, places) = self.image();
        let blocks = places.div_ceil(PLACES);
        let (this, call) = (&*self, Shared(call));
        let grain = GRAIN / (channels * PLACES).max(1);
        parallel::over(this.x.shape[0] * blocks, grain, |range| {
            let call = call.get();
            // SAFETY: the planner gives addresses that hold the operands of the request.
            unsafe { this.work(range, call) }
        })
    }
}

impl LrnInstance {
    /// Channels, and places that each has.
    fn image(&self) -> (usize, usize) {
        (self.x.shape[1], self.x.shape[2..].iter().product())
    }

    unsafe fn work(&self, range: Range<usize>, call: &Call) {
        let (from, to) = (call.inputs[0], call.outputs[0]);
        let (dtype, size) = (self.x.dtype, self.x.dtype.size());
        let (channels, places) = self.image();
        let blocks = places.div_ceil(PLACES);
        self.scratch.with(call.workspace, |squares| {
            let squares = squares.cast::<f32>();
            for unit in range {
                let first = unit % blocks * PLACES;
                let width = PLACES.min(places - first);
                let start = unit / blocks * channels * places + first;
                let at = |c: usize| (start + c * places) * size;
                let mut line = [0f32; PLACES];
                let line = line.as_mut_ptr();
                // SAFETY: the rows of the block stay within the operands, and the scratch has one for each channel.
                unsafe {
                    for c in 0..channels {
                        convert::to_f32(dtype, from.add(at(c)), squares.add(c * PLACES), width);
                        square(width, squares.add(c * PLACES));
                    }
                    for c in 0..channels {
                        let around = c.saturating_sub(self.lrn.before)..(c + self.lrn.after + 1).min(channels);
                        convert::to_f32(dtype, from.add(at(c)), line, width);
                        normalise(width, line, squares, around, self.lrn);
                        convert::from_f32(dtype, line, to.add(at(c)), width);
                    }
                }
            }
        });
    }
}

multiversion! {
    unsafe fn square<V>(n: usize, x: *mut f32) {
        map1!(V, n, x, x, |x| x * x);
    }
}

multiversion! {
    /// Normalises the `n` places of one channel, given the squares of all.
    unsafe fn normalise<V>(n: usize, x: *mut f32, squares: *const f32, around: Range<usize>, lrn: Lrn) {
        let mut sum = [0f32; PLACES];
        let sum = sum.as_mut_ptr();
        for c in around {
            map2!(V, n, sum, squares.add(c * PLACES), sum, |s, q| s + q);
        }
        let (scale, bias, beta) = (V::splat(lrn.scale), V::splat(lrn.bias), V::splat(lrn.beta));
        map1!(V, n, sum, sum, |s| s.fma(scale, bias));
        if lrn.beta == 0.75 {
            map2!(V, n, x, sum, x, |x, s| x / (s.sqrt() * s.sqrt().sqrt()));
        } else {
            map2!(V, n, x, sum, x, |x, s| x / math::exp(beta * math::log(s)));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::network::attr::{Attr, attrs};
    use crate::network::dtype::DType;
    use crate::providers::cpu::kernels::testing::Case;

    #[test]
    fn windows_of_any_size_and_any_power() {
        for dtype in [DType::Float32, DType::BFloat16] {
            for (size, beta, bias) in [(5, 0.75, 1.0), (4, 0.75, 0.0), (1, 0.5, 2.0), (99, 1.3, 0.5)] {
                let mut case = Case::new(dtype);
                let x = case.input("n 17 h 9");
                let how = attrs([
                    ("size", Attr::Int(size)),
                    ("alpha", Attr::Float(0.3)),
                    ("beta", Attr::Float(beta)),
                    ("bias", Attr::Float(bias)),
                ]);
                let y = case.layer("LRN", how, &[x]);
                case.output(y).check_fast(&[("n", 2), ("h", 15)]);
                case.check_fast(&[("n", 1), ("h", 0)]);
            }
        }
    }
}
