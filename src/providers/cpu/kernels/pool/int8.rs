//! MaxPool of integers of 8 bits, channels last: first the maxima of whole lines, then those along them, in vectors of bytes.

use crate::error::Result;
use crate::network::dtype::DType;
use crate::plan::layout::Operand;
use crate::plan::{Call, Instance, Launcher, Prepared};
use crate::providers::cpu::handle::Pooling;
use crate::providers::cpu::kernels::parallel::{self, Shared};
use crate::providers::cpu::kernels::scratch::Scratch;
use crate::providers::cpu::simd::{Isa, multiversion};

/// Bytes that a thread should at least read.
const GRAIN: usize = 64 << 10;

/// An axis along which windows move.
#[derive(Clone, Copy)]
struct Axis {
    input: i64,
    output: usize,
    kernel: i64,
    stride: i64,
    dilation: i64,
    begin: i64,
}

impl Axis {
    /// One that windows do not move along.
    const NONE: Self = Self {
        input: 1,
        output: 1,
        kernel: 1,
        stride: 1,
        dilation: 1,
        begin: 0,
    };

    /// The first place of a window within the input, and how many there are.
    fn taps(&self, position: usize) -> (usize, usize) {
        let first = position as i64 * self.stride - self.begin;
        let before = (self.dilation - 1 - first).max(0) / self.dilation;
        let until = (self.input - first + self.dilation - 1).max(0) / self.dilation;
        let until = until.min(self.kernel);
        match until > before {
            true => ((first + before * self.dilation) as usize, (until - before) as usize),
            false => (0, 0),
        }
    }
}

/// Maxima over windows along up to three axes.
pub struct Int8MaxPool {
    signed: bool,
    batch: usize,
    channels: usize,
    axes: [Axis; 3],
    /// The maxima of the lines that a row of windows covers.
    scratch: Scratch,
}

impl Int8MaxPool {
    /// For what `spec` describes.
    pub fn new(spec: &Pooling, src: &Operand, dst: &Operand, threads: usize) -> Self {
        let mut axes = [Axis::NONE; 3];
        let rank = spec.kernel.len();
        for (at, axis) in axes[3 - rank..].iter_mut().enumerate() {
            *axis = Axis {
                input: src.shape[at + 2] as i64,
                output: dst.shape[at + 2],
                kernel: spec.kernel[at],
                stride: spec.strides[at],
                dilation: spec.dilations[at],
                begin: spec.begin[at],
            };
        }
        let rows = src.shape[0] * axes[0].output * axes[1].output;
        Self {
            signed: src.dtype == DType::Int8,
            batch: src.shape[0],
            channels: src.shape[1],
            axes,
            scratch: Scratch::new(axes[2].input as usize * src.shape[1], threads, rows),
        }
    }

    /// It as a kernel at concrete shapes.
    pub fn prepared(self) -> Prepared {
        let workspace = self.scratch.workspace();
        let how = format!("rows of bytes {:?}", Isa::here());
        Instance::new(how, self).with_workspace(workspace).into()
    }
}

multiversion! {
    /// Writes a row of pixels: first the maxima of its lines, and then those along it. `maxima` has room for a line.
    ///
    /// # Safety
    /// The operands must lie at the addresses.
    unsafe fn row<V>(this: &Int8MaxPool, row: usize, maxima: *mut u8, source: *const u8, target: *mut u8) {
        match this.signed {
            true => this.write_row::<i8>(row, i8::MIN, maxima.cast(), source.cast(), target.cast()),
            false => this.write_row::<u8>(row, u8::MIN, maxima, source, target),
        }
    }
}

impl Int8MaxPool {
    /// # Safety
    /// As of [`row`].
    #[inline(always)]
    unsafe fn write_row<T: Ord + Copy>(&self, row: usize, least: T, maxima: *mut T, source: *const T, target: *mut T) {
        let ([deep, high, wide], channels) = (&self.axes, self.channels);
        let width = wide.input as usize * channels;
        let image = row / (deep.output * high.output);
        let (first_z, depth) = deep.taps(row / high.output % deep.output);
        let (first_y, height) = high.taps(row % high.output);
        // SAFETY: the caller's promise; taps lie within the input, and bytes may lie anywhere.
        unsafe {
            fill(maxima, least, width);
            for (z, y) in (0..depth).flat_map(|z| (0..height).map(move |y| (z, y))) {
                let (z, y) = (z * deep.dilation as usize, y * high.dilation as usize);
                let line = (image * deep.input as usize + first_z + z) * high.input as usize + first_y + y;
                greater(maxima, source.add(line * width), width);
            }
            for at in 0..wide.output {
                let pixel = target.add((row * wide.output + at) * channels);
                let (x, taps) = wide.taps(at);
                fill(pixel, least, channels);
                for tap in 0..taps {
                    greater(
                        pixel,
                        maxima.add((x + tap * wide.dilation as usize) * channels),
                        channels,
                    );
                }
            }
        }
    }
}

/// # Safety
/// There must be so many numbers at the address.
#[inline(always)]
unsafe fn fill<T: Copy>(into: *mut T, number: T, count: usize) {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(into, count) }.fill(number);
}

/// Keeps the greater ones of two rows in the first.
///
/// # Safety
/// There must be so many numbers at the addresses, which do not overlap.
#[inline(always)]
unsafe fn greater<T: Ord + Copy>(into: *mut T, other: *const T, count: usize) {
    // SAFETY: the caller's promise.
    let (into, other) = unsafe {
        (
            std::slice::from_raw_parts_mut(into, count),
            std::slice::from_raw_parts(other, count),
        )
    };
    for (most, &number) in into.iter_mut().zip(other) {
        *most = number.max(*most);
    }
}

impl Launcher for Int8MaxPool {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let [deep, high, wide] = self.axes;
        let window: i64 = self.axes.iter().map(|axis| axis.kernel).product();
        let rows = self.batch * deep.output * high.output;
        let bytes = wide.output * self.channels * window as usize;
        let (this, call) = (&*self, Shared(call));
        parallel::over(rows, GRAIN / bytes.max(1), |range| {
            let call = call.get();
            this.scratch.with(call.workspace, |maxima| {
                // SAFETY: the planner gives addresses that hold the operands of the request, and the scratch a line.
                range.for_each(|at| unsafe { row(this, at, maxima, call.inputs[0], call.outputs[0]) });
            });
        })
    }
}
