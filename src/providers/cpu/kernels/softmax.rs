//! Softmax and LogSoftmax along any axis.

use super::parallel::{self, Shared};
use super::scope::{Scope, uniform_forms};
use super::scratch::Scratch;
use super::{Answer, operand_strides};
use crate::error::Result;
use crate::network::attr::Read;
use crate::network::dtype::DType;
use crate::plan::layout::Layout;
use crate::plan::{Call, Form, Instance, Kernel, Launcher, Prepared, Request};
use crate::providers::cpu::simd::{Isa, Vector, convert, map1, map2, math, multiversion};
use std::ops::Range;

/// Softmax and LogSoftmax in the plain layout and with channels last.
pub fn offer(scope: &Scope) -> Answer {
    let logarithm = match scope.op() {
        "Softmax" => false,
        "LogSoftmax" => true,
        _ => return Ok(vec![]),
    };
    let ty = scope.output_type(0);
    let Ok(axis) = ty.axis(scope.layer().attrs.int("axis")) else {
        return Ok(vec![]);
    };
    if ty.dtype == DType::Float64 {
        return Ok(vec![]);
    }
    let kernel = Softmax {
        name: scope.op(),
        axis,
        rank: ty.rank(),
        logarithm,
    };
    Ok(vec![scope.alone(kernel, &[0])])
}

struct Softmax {
    name: &'static str,
    axis: usize,
    rank: usize,
    logarithm: bool,
}

impl Kernel for Softmax {
    fn name(&self) -> String {
        self.name.into()
    }

    fn identity(&self) -> String {
        format!("{} {}", self.name, self.axis)
    }

    fn forms(&self) -> Vec<Form> {
        let mut layouts = vec![Layout::Plain];
        layouts.extend((self.rank >= 3).then_some(Layout::ChannelsLast));
        uniform_forms(&layouts, 1, 1)
    }

    fn in_place(&self) -> Vec<(usize, usize)> {
        vec![(0, 0)]
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let (operand, layout) = (&request.outputs[0], request.form.outputs[0]);
        let at = match (layout, self.axis) {
            (Layout::ChannelsLast, 1) => self.rank - 1,
            (Layout::ChannelsLast, axis) if axis > 1 => axis - 1,
            (_, axis) => axis,
        };
        let space = operand_strides::space(&operand.shape, layout);
        let (outer, length) = (space[..at].iter().product::<usize>(), space[at]);
        let inner: usize = space[at + 1..].iter().product();
        let direct = inner == 1 && operand.dtype == DType::Float32;
        let bytes = if direct { 0 } else { length * inner.min(COLUMNS) * 4 };
        let launcher = SoftmaxInstance {
            outer,
            length,
            inner,
            direct,
            scratch: Scratch::new(bytes, request.threads, outer * inner.div_ceil(COLUMNS)),
            dtype: operand.dtype,
            logarithm: self.logarithm,
        };
        let workspace = launcher.scratch.workspace();
        let how = if launcher.inner == 1 { "rows" } else { "columns" };
        let how = format!("{how} {:?}", Isa::here());
        Ok(Instance::new(how, launcher).with_workspace(workspace).into())
    }
}

struct SoftmaxInstance {
    outer: usize,
    length: usize,
    /// From one element of the axis to the next.
    inner: usize,
    /// Rows are worked on where they lie.
    direct: bool,
    /// A tile of columns in f32.
    scratch: Scratch,
    dtype: DType,
    logarithm: bool,
}

/// Neighbouring columns that are done at once.
const COLUMNS: usize = 64;
/// Elements that a thread should at least do.
const GRAIN: usize = 4096;

impl Launcher for SoftmaxInstance {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let (call, this) = (Shared(call), &*self);
        let blocks = this.inner.div_ceil(COLUMNS);
        let grain = GRAIN / (this.length * this.inner.min(COLUMNS)).max(1);
        parallel::over(this.outer * blocks, grain, |range| {
            let call = call.get();
            // SAFETY: the planner gives addresses that hold the operands of the request.
            unsafe { this.work(range, call) }
        })
    }
}

impl SoftmaxInstance {
    unsafe fn work(&self, range: Range<usize>, call: &Call) {
        let (from, to) = (call.inputs[0], call.outputs[0]);
        let size = self.dtype.size();
        let blocks = self.inner.div_ceil(COLUMNS);
        self.scratch.with(call.workspace, |scratch| {
            let tile = scratch.cast::<f32>();
            for unit in range {
                let column = unit % blocks * COLUMNS;
                let width = COLUMNS.min(self.inner - column);
                let start = (unit / blocks * self.length * self.inner + column) * size;
                // SAFETY: rows and columns stay within the operands, and the tile holds `length * width` elements.
                unsafe {
                    let (from, to) = (from.add(start), to.add(start));
                    if self.direct {
                        row(self.length, from.cast(), to.cast(), self.logarithm);
                        continue;
                    }
                    let step = self.inner * size;
                    for i in 0..self.length {
                        convert::to_f32(self.dtype, from.add(i * step), tile.add(i * width), width);
                    }
                    match self.inner {
                        1 => row(self.length, tile, tile, self.logarithm),
                        _ => columns(self.length, width, tile, self.logarithm),
                    }
                    for i in 0..self.length {
                        convert::from_f32(self.dtype, tile.add(i * width), to.add(i * step), width);
                    }
                }
            }
        });
    }
}

/// The greatest of `n` numbers.
#[inline(always)]
unsafe fn greatest<V: Vector>(n: usize, x: *const f32) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 16];
    let mut most = V::splat(f32::NEG_INFINITY);
    let mut i = 0;
    // SAFETY: `i + LANES <= n`, and LANES is at most 16.
    unsafe {
        while i + V::LANES <= n {
            most = most.max(V::load(x.add(i)));
            i += V::LANES;
        }
        most.store(lanes.as_mut_ptr());
        (i..n).fold(lanes.into_iter().fold(f32::NEG_INFINITY, f32::max), |m, i| {
            m.max(*x.add(i))
        })
    }
}

multiversion! {
    /// Softmax of one row; `y` may be `x`.
    unsafe fn row<V>(n: usize, x: *const f32, y: *mut f32, logarithm: bool) {
        let most = greatest::<V>(n, x);
        let shift = V::splat(most);
        let mut total = V::splat(0.0);
        let mut i = 0;
        while i + V::LANES <= n {
            let e = math::exp(V::load(x.add(i)) - shift);
            if !logarithm {
                e.store(y.add(i));
            }
            total = total + e;
            i += V::LANES;
        }
        let mut lanes = [0f32; 16];
        if i < n {
            let e = math::exp(V::load_part(x.add(i), n - i) - shift);
            if !logarithm {
                e.store_part(y.add(i), n - i);
            }
            e.store(lanes.as_mut_ptr());
            lanes[n - i..].fill(0.0);
        }
        let mut sum: f32 = lanes.iter().sum();
        let mut lanes = [0f32; 16];
        total.store(lanes.as_mut_ptr());
        sum += lanes.iter().sum::<f32>();
        if logarithm {
            // In this order: next to a great maximum the logarithm would lose its digits.
            let (shift, log) = (V::splat(most), V::splat(sum.ln()));
            map1!(V, n, x, y, |v| v - shift - log);
        } else {
            let scale = V::splat(1.0 / sum);
            map1!(V, n, y, y, |v| v * scale);
        }
    }
}

multiversion! {
    /// Softmax of `width` columns of `n` elements each.
    unsafe fn columns<V>(n: usize, width: usize, tile: *mut f32, logarithm: bool) {
        let mut most = [f32::NEG_INFINITY; COLUMNS];
        let mut sum = [0f32; COLUMNS];
        let (most, sum) = (most.as_mut_ptr(), sum.as_mut_ptr());
        for i in 0..n {
            map2!(V, width, most, tile.add(i * width), most, |x, y| x.max(y));
        }
        for i in 0..n {
            let line = tile.add(i * width);
            map2!(V, width, line, most, line, |x, m| x - m);
            let mut e = [0f32; COLUMNS];
            map1!(V, width, line, e.as_mut_ptr(), |x| math::exp(x));
            map2!(V, width, sum, e.as_ptr(), sum, |s, e| s + e);
            if !logarithm {
                std::ptr::copy_nonoverlapping(e.as_ptr(), line, width);
            }
        }
        match logarithm {
            true => map1!(V, width, sum, sum, |x| math::log(x)),
            false => map1!(V, width, sum, sum, |s| V::splat(1.0) / s),
        }
        for i in 0..n {
            let line = tile.add(i * width);
            match logarithm {
                true => map2!(V, width, line, sum, line, |x, s| x - s),
                false => map2!(V, width, line, sum, line, |x, s| x * s),
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
    fn every_axis_and_length() {
        for dtype in [DType::Float32, DType::BFloat16] {
            for op in ["Softmax", "LogSoftmax"] {
                for axis in [0, 1, -1] {
                    for width in [1, 16, 100] {
                        let mut case = Case::new(dtype);
                        let x = case.input(&format!("2 17 h {width}"));
                        let y = case.layer(op, attrs([("axis", Attr::Int(axis))]), &[x]);
                        case.output(y).check_fast(&[("h", 5)]);
                        case.check_fast(&[("h", 0)]);
                    }
                }
            }
        }
    }
}
