//! The greatest of numbers that are all the least: oneDNN begins with the least finite number, and gives it for windows
//! that hold nothing but minus infinity (or NaN), or nothing at all.

use crate::error::Result;
use crate::network::dtype::DType;
use crate::plan::layout::Operand;
use crate::plan::{Call, Instance, Launcher, Prepared};
use crate::providers::cpu::handle::Pooling;
use crate::providers::cpu::kernels::operand_strides::{self, Axes, BLOCK, coalesce};
use crate::providers::cpu::kernels::parallel::{self, Shared};
use crate::providers::cpu::kernels::primitive::PrimitiveLauncher;
use crate::providers::cpu::simd::convert;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Elements that a thread should at least look at.
const GRAIN: usize = 64 << 10;

/// Maxima by oneDNN, put right where they are the least finite number.
pub struct Maxima {
    inner: PrimitiveLauncher,
    repair: Repair,
}

/// What is put right, and how.
struct Repair {
    src: Operand,
    dst: Operand,
    /// Kernel, stride, dilation and padding before, along each spatial axis.
    windows: Vec<[i64; 4]>,
    /// The runs of the result in memory: sizes and strides, the last one dense.
    runs: (Vec<usize>, Vec<usize>),
}

impl Maxima {
    /// Around the primitive that `spec` describes.
    ///
    /// # Errors
    /// If the result can't be seen in its own layout.
    pub fn new(inner: PrimitiveLauncher, spec: &Pooling, src: &Operand, dst: &Operand) -> Result<Self> {
        let along = |i: usize| [spec.kernel[i], spec.strides[i], spec.dilations[i], spec.begin[i]];
        let strides = operand_strides::strides(dst, &dst.shape, dst.layout)?;
        let (sizes, mut strides) = coalesce(&operand_strides::space(&dst.shape, dst.layout), &[&strides]);
        let repair = Repair {
            src: src.clone(),
            dst: dst.clone(),
            windows: (0..spec.kernel.len()).map(along).collect(),
            runs: (sizes, strides.swap_remove(0)),
        };
        Ok(Self { inner, repair })
    }

    /// What the primitive is, with the maxima put right.
    pub fn prepared(self) -> Prepared {
        let tier = self.inner.tier();
        let (how, workspace) = (self.inner.implementation(), self.inner.workspace());
        Prepared::from(Instance::new(how, self).with_workspace(workspace)).with_tier(tier)
    }
}

impl Launcher for Maxima {
    fn launch(&mut self, call: &Call) -> Result<()> {
        self.inner.launch(call)?;
        let (this, call, found) = (&self.repair, Shared(call), AtomicBool::new(false));
        let inner = this.runs.0.last().copied().unwrap_or(1);
        let outer: usize = this.runs.0.iter().product::<usize>() / inner.max(1);
        let parts = if outer == 1 { inner.div_ceil(GRAIN).max(1) } else { 1 };
        parallel::over(outer * parts, GRAIN / inner.max(1), |range| {
            // SAFETY: the planner gives addresses that hold the operands of the request.
            if unsafe { this.any_lowest(range, (inner, parts), call.get().outputs[0]) } {
                found.store(true, Ordering::Relaxed);
            }
        })?;
        if !found.into_inner() {
            return Ok(());
        }
        let planes = this.dst.shape[0] * this.dst.shape[1];
        parallel::over(planes, 1, |range| {
            // SAFETY: as above.
            range.for_each(|plane| unsafe { this.mend(plane, call.get()) });
        })
    }
}

/// Whether a number is what oneDNN begins with.
fn is_lowest(dtype: DType, v: f32) -> bool {
    let lowest = match dtype {
        DType::BFloat16 => half::bf16::MIN.to_f32(),
        _ => f32::MIN,
    };
    v == lowest
}

impl Repair {
    /// Whether the least finite number stands in some runs of the result, each of which is looked at in parts.
    unsafe fn any_lowest(&self, runs: Range<usize>, (inner, parts): (usize, usize), base: *const u8) -> bool {
        let dtype = self.dst.dtype;
        let (sizes, strides) = &self.runs;
        runs.into_iter().any(|unit| {
            let (mut run, part) = (unit / parts, unit % parts);
            let mut offset = 0;
            for axis in (0..sizes.len() - 1).rev() {
                offset += run % sizes[axis] * strides[axis];
                run /= sizes[axis];
            }
            let (start, end) = (part * inner / parts, (part + 1) * inner / parts);
            let step = strides.last().copied().unwrap_or(1);
            // SAFETY: the caller's promise; the strides are those of the result.
            unsafe {
                let at = base.add((offset + start * step) * dtype.size());
                match dtype {
                    DType::Float32 if step == 1 => {
                        let run = std::slice::from_raw_parts(at.cast::<f32>(), end - start);
                        run.iter().fold(false, |any, &v| any | (v == f32::MIN))
                    }
                    _ => (0..end - start).any(|i| is_lowest(dtype, number(dtype, at.add(i * step * dtype.size())))),
                }
            }
        })
    }

    /// Computes those maxima of a plane anew that are the least finite number.
    unsafe fn mend(&self, plane: usize, call: &Call) {
        let (batch, channel) = (plane / self.dst.shape[1], plane % self.dst.shape[1]);
        let (from, to) = (operand_strides::axes(&self.src), operand_strides::axes(&self.dst));
        let dtype = self.dst.dtype;
        let extents = &self.dst.shape[2..];
        for place in 0..extents.iter().product() {
            let index = unravel(place, extents);
            let at = offset(&to, batch, channel, index.iter().copied());
            // SAFETY: the caller's promise; the places lie within the operands.
            unsafe {
                let y = call.outputs[0].add(at * dtype.size());
                if is_lowest(dtype, number(dtype, y)) {
                    let greatest = self.greatest(&from, (batch, channel), &index, call.inputs[0]);
                    convert::from_f32(dtype, &greatest, y, 1);
                }
            }
        }
    }

    unsafe fn greatest(&self, axes: &Axes, plane: (usize, usize), index: &[usize], x: *const u8) -> f32 {
        let dtype = self.src.dtype;
        let extents: Vec<usize> = self.windows.iter().map(|w| w[0] as usize).collect();
        let mut greatest = f32::NEG_INFINITY;
        for place in 0..extents.iter().product() {
            let steps = unravel(place, &extents);
            let mut inside = vec![];
            for (axis, &[_, stride, dilation, before]) in self.windows.iter().enumerate() {
                let i = index[axis] as i64 * stride + steps[axis] as i64 * dilation - before;
                inside.extend(usize::try_from(i).ok().filter(|&i| i < self.src.shape[axis + 2]));
            }
            if inside.len() == steps.len() {
                let at = offset(axes, plane.0, plane.1, inside.into_iter());
                // SAFETY: as in `mend`.
                let v = unsafe { number(dtype, x.add(at * dtype.size())) };
                greatest = if v > greatest || v.is_nan() { v } else { greatest };
            }
        }
        greatest
    }
}

unsafe fn number(dtype: DType, at: *const u8) -> f32 {
    let mut v = 0f32;
    // SAFETY: the caller says where the element lies.
    unsafe { convert::to_f32(dtype, at, &mut v, 1) };
    v
}

fn unravel(mut place: usize, extents: &[usize]) -> Vec<usize> {
    let mut index = vec![0; extents.len()];
    for (slot, &extent) in index.iter_mut().zip(extents).rev() {
        *slot = place % extent;
        place /= extent;
    }
    index
}

/// Where an element lies.
fn offset(axes: &Axes, batch: usize, channel: usize, index: impl Iterator<Item = usize>) -> usize {
    let plane = batch * axes.strides[0] + channel / BLOCK * axes.block + channel % BLOCK * axes.strides[1];
    plane + index.zip(&axes.strides[2..]).map(|(i, s)| i * s).sum::<usize>()
}
