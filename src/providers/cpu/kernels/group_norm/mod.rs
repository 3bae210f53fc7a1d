//! GroupNormalization and InstanceNormalization: in the plain layout a group at a time, while its channels are in the cache.

mod channels_last;

use super::Answer;
use super::norm::sum_of;
use super::parallel::{self, Shared};
use super::scope::{Scope, uniform_forms};
use super::scratch::Scratch;
use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::Read;
use crate::network::dtype::DType;
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Call, Form, Instance, Kernel, Launcher, Prepared, Request};
use crate::providers::cpu::simd::{Isa, convert, map1, multiversion};
use channels_last::ChannelsLast;
use std::ops::Range;

/// Elements that a thread should at least do.
const GRAIN: usize = 4096;

/// The normalization with constant scale and bias.
pub fn offer(scope: &Scope) -> Answer {
    let groups = match scope.op() {
        "GroupNormalization" => Some(scope.layer().attrs.int("num_groups") as usize),
        "InstanceNormalization" => None,
        _ => return Ok(vec![]),
    };
    let ty = scope.output_type(0);
    let (Some(scale), Some(bias)) = (scope.constant(1), scope.constant(2)) else {
        return Ok(vec![]);
    };
    if ty.dtype == DType::Float64 || !ty.dtype.is_float() {
        return Ok(vec![]);
    }
    let kernel = GroupNorm {
        name: scope.op(),
        rank: ty.rank(),
        groups,
        epsilon: scope.layer().attrs.float("epsilon") as f32,
        sides: [scale, bias].map(|side| side.cast(DType::Float32)),
    };
    Ok(vec![scope.alone(kernel, &[0])])
}

#[derive(Clone)]
struct GroupNorm {
    name: &'static str,
    rank: usize,
    /// Groups of channels; as many as there are channels if none.
    groups: Option<usize>,
    epsilon: f32,
    /// Scale and bias of each channel.
    sides: [Array; 2],
}

impl Kernel for GroupNorm {
    fn name(&self) -> String {
        self.name.into()
    }

    fn identity(&self) -> String {
        format!("{} {:?}", self.name, self.groups)
    }

    fn forms(&self) -> Vec<Form> {
        let layouts = [Layout::Plain, Layout::ChannelsLast].map(|layout| layout.fits(self.rank).then_some(layout));
        uniform_forms(&layouts.into_iter().flatten().collect::<Vec<_>>(), 1, 1)
    }

    fn in_place(&self) -> Vec<(usize, usize)> {
        // The sums of a group are known before any of it is written.
        vec![(0, 0)]
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let x = request.inputs[0].clone();
        let channels = x.shape[1];
        let groups = self.groups.unwrap_or(channels);
        if !channels.is_multiple_of(groups.max(1)) || self.sides.iter().any(|side| side.len() != channels) {
            return Err(Error::internal("channels and parameters of a normalization differ"));
        }
        if request.form.inputs[0] == Layout::ChannelsLast {
            let launcher = ChannelsLast::new(self.clone(), groups, x, request.threads);
            let workspace = launcher.workspace();
            return Ok(Instance::new(format!("channels {:?}", Isa::here()), launcher)
                .with_workspace(workspace)
                .into());
        }
        let places: usize = x.shape[2..].iter().product();
        let narrow = x.dtype != DType::Float32;
        let bytes = if narrow {
            channels / groups.max(1) * places * 4
        } else {
            0
        };
        let launcher = GroupNormInstance {
            groups,
            norm: self.clone(),
            places,
            scratch: Scratch::new(bytes, request.threads, x.shape[0] * groups),
            x,
        };
        let workspace = launcher.scratch.workspace();
        Ok(Instance::new(format!("groups {:?}", Isa::here()), launcher)
            .with_workspace(workspace)
            .into())
    }
}

struct GroupNormInstance {
    norm: GroupNorm,
    groups: usize,
    x: Operand,
    /// Places of each channel.
    places: usize,
    /// A group in f32, where it lies in another dtype.
    scratch: Scratch,
}

impl Launcher for GroupNormInstance {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let (call, this) = (Shared(call), &*self);
        if this.x.elements() == 0 {
            return Ok(());
        }
        let each = this.x.shape[1] / this.groups;
        let grain = GRAIN / (each * this.places);
        parallel::over(this.x.shape[0] * this.groups, grain, |range| {
            let call = call.get();
            // SAFETY: the planner gives addresses that hold the operands of the request.
            unsafe { this.work(range, each, call) }
        })
    }
}

impl GroupNormInstance {
    unsafe fn work(&self, range: Range<usize>, each: usize, call: &Call) {
        let (from, to) = (call.inputs[0], call.outputs[0]);
        let (dtype, n) = (self.x.dtype, each * self.places);
        let [scale, bias] = [0, 1].map(|i| self.norm.sides[i].bytes().as_ptr().cast::<f32>());
        let narrow = dtype != DType::Float32;
        self.scratch.with(call.workspace, |scratch| {
            for group in range {
                // SAFETY: the group lies within the operands; scale and bias have a number for each channel.
                unsafe {
                    let (from, to) = (from.add(group * n * dtype.size()), to.add(group * n * dtype.size()));
                    let row = if narrow { scratch.cast() } else { to.cast::<f32>() };
                    let x = if narrow { row.cast_const() } else { from.cast() };
                    if narrow {
                        convert::to_f32(dtype, from, row, n);
                    }
                    let first = group % self.groups * each;
                    let sides = [scale.add(first), bias.add(first)];
                    normalise([each, self.places], x, row, self.norm.epsilon, sides);
                    if narrow {
                        convert::from_f32(dtype, row, to, n);
                    }
                }
            }
        });
    }
}

multiversion! {
    /// Normalises channels of so many places together, and scales and shifts each by itself; `y` may be `x`.
    unsafe fn normalise<V>(
        extents: [usize; 2],
        x: *const f32,
        y: *mut f32,
        epsilon: f32,
        sides: [*const f32; 2],
    ) {
        let ([channels, places], [scale, bias]) = (extents, sides);
        let n = channels * places;
        let mean = sum_of::<V>(n, x, |v| v, |v| v) / n as f32;
        let m = V::splat(mean);
        let squares = sum_of::<V>(n, x, |v| (v - m) * (v - m), |v| (v - mean) * (v - mean));
        let factor = 1.0 / (squares / n as f32 + epsilon).sqrt();
        for channel in 0..channels {
            let (scale, bias) = (*scale.add(channel) * factor, *bias.add(channel));
            let (s, b) = (V::splat(scale), V::splat(bias));
            let (x, y) = (x.add(channel * places), y.add(channel * places));
            map1!(V, places, x, y, |v| (v - m).fma(s, b));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::network::attr::{Attr, attrs};
    use crate::network::dtype::DType;
    use crate::providers::cpu::kernels::testing::Case;

    #[test]
    fn groups_and_instances() {
        for dtype in [DType::Float32, DType::BFloat16] {
            for (channels, groups) in [(6, 1), (6, 3), (6, 6), (40, 5)] {
                let mut case = Case::new(dtype);
                let x = case.input(&format!("b {channels} h 5"));
                let (scale, bias) = (case.weights(&[channels]), case.weights(&[channels]));
                let given = attrs([("num_groups", Attr::Int(groups))]);
                let y = case.layer("GroupNormalization", given, &[x, scale, bias]);
                let z = case.op("InstanceNormalization", &[x, scale, bias]);
                case.output(y).output(z).check_fast(&[("b", 2), ("h", 31)]);
                case.check_fast(&[("b", 0), ("h", 1)]);
            }
        }
    }
}
