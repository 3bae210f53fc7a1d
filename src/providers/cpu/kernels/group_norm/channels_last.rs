//! Images whose channels lie innermost: each vector of channels is summed place by place, and groups are put together from channels.

use super::GroupNorm;
use crate::error::Result;
use crate::network::dtype::DType;
use crate::plan::layout::Operand;
use crate::plan::{Call, Launcher};
use crate::providers::cpu::kernels::parallel::{self, Shared};
use crate::providers::cpu::kernels::scratch::Scratch;
use crate::providers::cpu::simd::{Vector, convert, multiversion};
use std::ops::Range;

/// So many places are added in float32 before they join the sums, which are float64: there may be millions of places.
const BLOCK: usize = 32;

/// The normalization in this layout at concrete shapes.
pub struct ChannelsLast {
    norm: GroupNorm,
    groups: usize,
    x: Operand,
    /// Places of each channel.
    places: usize,
    scratch: Scratch,
}

/// What a thread keeps of some channels; in its scratch memory.
struct Channels {
    sums: *mut f64,
    mean: *mut f32,
    /// The sums of a block before it is known.
    factor: *mut f32,
    shift: *mut f32,
    /// A block of places in float32, where they lie in another dtype.
    rows: *mut f32,
}

impl ChannelsLast {
    pub fn new(norm: GroupNorm, groups: usize, x: Operand, threads: usize) -> Self {
        let rows = if x.dtype == DType::Float32 { 0 } else { BLOCK };
        let each = size_of::<f64>() + (3 + rows) * size_of::<f32>();
        Self {
            scratch: Scratch::new(each * x.shape[1], threads, x.shape[0] * groups),
            places: x.shape[2..].iter().product(),
            norm,
            groups,
            x,
        }
    }

    pub fn workspace(&self) -> usize {
        self.scratch.workspace()
    }

    /// Normalises these groups, counted over all images.
    unsafe fn work(&self, range: Range<usize>, call: &Call) {
        let each = self.x.shape[1] / self.groups;
        self.scratch.with(call.workspace, |memory| {
            let mut at = range.start;
            while at < range.end {
                let (image, first) = (at / self.groups, at % self.groups);
                let count = (self.groups - first).min(range.end - at);
                // SAFETY: the groups lie within the operands, and the memory is large enough for all channels.
                unsafe { self.normalise(image, first * each..(first + count) * each, call, memory) };
                at += count;
            }
        });
    }

    unsafe fn normalise(&self, image: usize, channels: Range<usize>, call: &Call, memory: *mut u8) {
        let (count, each) = (channels.len(), self.x.shape[1] / self.groups);
        let start = image * self.places * self.x.shape[1] + channels.start;
        let numbers = (each * self.places) as f64;
        // SAFETY: as the caller says.
        unsafe {
            let own = Channels::at(memory, count);
            let sums = std::slice::from_raw_parts_mut(own.sums, count);
            let [mean, factor, shift] =
                [own.mean, own.factor, own.shift].map(|array| std::slice::from_raw_parts_mut(array, count));
            self.sum(start, count, call, &own, false);
            for (mean, sums) in mean.chunks_mut(each).zip(sums.chunks(each)) {
                mean.fill((sums.iter().sum::<f64>() / numbers) as f32);
            }
            self.sum(start, count, call, &own, true);
            for (factor, sums) in factor.chunks_mut(each).zip(sums.chunks(each)) {
                let variance = (sums.iter().sum::<f64>() / numbers) as f32;
                factor.fill(1.0 / (variance + self.norm.epsilon).sqrt());
            }
            let side = |i: usize| self.norm.sides[i].bytes().as_ptr().cast::<f32>().add(channels.start);
            for at in 0..count {
                factor[at] *= *side(0).add(at);
                shift[at] = *side(1).add(at);
            }
            self.write(start, count, call, &own);
        }
    }

    /// The sums of each channel, or of the squares of what it differs from the mean by.
    unsafe fn sum(&self, start: usize, count: usize, call: &Call, own: &Channels, squares: bool) {
        // SAFETY: as the caller says.
        unsafe {
            own.sums.write_bytes(0, count);
            for first in (0..self.places).step_by(BLOCK) {
                let rows = BLOCK.min(self.places - first);
                let (x, stride) = self.read(start, first..first + rows, count, call, own);
                let mean = if squares {
                    own.mean.cast_const()
                } else {
                    std::ptr::null()
                };
                sum_columns([rows, count, stride], x, mean, own.factor);
                for at in 0..count {
                    *own.sums.add(at) += f64::from(*own.factor.add(at));
                }
            }
        }
    }

    unsafe fn write(&self, start: usize, count: usize, call: &Call, own: &Channels) {
        let size = self.x.dtype.size();
        for first in (0..self.places).step_by(BLOCK) {
            let rows = BLOCK.min(self.places - first);
            // SAFETY: as the caller says.
            unsafe {
                let (x, stride) = self.read(start, first..first + rows, count, call, own);
                for row in 0..rows {
                    let to = call.outputs[0].add((start + (first + row) * self.x.shape[1]) * size);
                    let is_wide = self.x.dtype == DType::Float32;
                    let y = if is_wide { to.cast() } else { own.rows.add(row * stride) };
                    scale_row(count, x.add(row * stride), own.mean, own.factor, own.shift, y);
                    if !is_wide {
                        convert::from_f32(self.x.dtype, y, to, count);
                    }
                }
            }
        }
    }

    /// Some places in float32, and how far apart these are.
    unsafe fn read(
        &self,
        start: usize,
        places: Range<usize>,
        count: usize,
        call: &Call,
        own: &Channels,
    ) -> (*const f32, usize) {
        let (size, stride) = (self.x.dtype.size(), self.x.shape[1]);
        // SAFETY: as the caller says.
        unsafe {
            let from = |place: usize| call.inputs[0].add((start + place * stride) * size);
            if self.x.dtype == DType::Float32 {
                return (from(places.start).cast(), stride);
            }
            for (row, place) in places.enumerate() {
                convert::to_f32(self.x.dtype, from(place), own.rows.add(row * count), count);
            }
        }
        (own.rows, count)
    }
}

impl Launcher for ChannelsLast {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let (call, this) = (Shared(call), &*self);
        if this.x.elements() == 0 {
            return Ok(());
        }
        let grain = super::GRAIN / (this.x.shape[1] / this.groups * this.places);
        parallel::over(this.x.shape[0] * this.groups, grain, |range| {
            let call = call.get();
            // SAFETY: the planner gives addresses that hold the operands of the request.
            unsafe { this.work(range, call) }
        })
    }
}

impl Channels {
    /// Those of `count` channels.
    unsafe fn at(memory: *mut u8, count: usize) -> Self {
        let sums = memory.cast::<f64>();
        // SAFETY: the memory has room for all.
        unsafe {
            let mean = sums.add(count).cast::<f32>();
            Self {
                sums,
                mean,
                factor: mean.add(count),
                shift: mean.add(2 * count),
                rows: mean.add(3 * count),
            }
        }
    }
}

multiversion! {
    /// The sums of the columns of so many rows, so far apart; with means, of the squares of what they differ from these by.
    unsafe fn sum_columns<V>(extents: [usize; 3], x: *const f32, mean: *const f32, sums: *mut f32) {
        let [rows, columns, stride] = extents;
        sums.write_bytes(0, columns);
        let mut row = 0;
        // Four rows at a time, so that sums are fetched and put back once for them.
        while row + 4 <= rows {
            let x = [0, 1, 2, 3].map(|next| x.add((row + next) * stride));
            add_rows::<V, 4>(columns, x, mean, sums);
            row += 4;
        }
        while row < rows {
            add_rows::<V, 1>(columns, [x.add(row * stride)], mean, sums);
            row += 1;
        }
    }
}

#[inline(always)]
unsafe fn add_rows<V: Vector, const ROWS: usize>(
    columns: usize,
    rows: [*const f32; ROWS],
    mean: *const f32,
    sums: *mut f32,
) {
    let mut i = 0;
    while i < columns {
        let n = V::LANES.min(columns - i);
        // SAFETY: the columns stay below their number.
        unsafe {
            let load = |p: *const f32| match n == V::LANES {
                true => V::load(p.add(i)),
                false => V::load_part(p.add(i), n),
            };
            let mut sum = load(sums);
            if mean.is_null() {
                rows.iter().for_each(|&row| sum = sum + load(row));
            } else {
                let mean = load(mean);
                rows.iter().for_each(|&row| {
                    let apart = load(row) - mean;
                    sum = apart.fma(apart, sum);
                });
            }
            match n == V::LANES {
                true => sum.store(sums.add(i)),
                false => sum.store_part(sums.add(i), n),
            }
        }
        i += n;
    }
}

multiversion! {
    /// `y = (x - mean) * factor + shift`, for a row; `y` may be `x`.
    unsafe fn scale_row<V>(
        n: usize,
        x: *const f32,
        mean: *const f32,
        factor: *const f32,
        shift: *const f32,
        y: *mut f32,
    ) {
        let mut i = 0;
        while i < n {
            let part = V::LANES.min(n - i);
            let load = |p: *const f32| if part == V::LANES { V::load(p.add(i)) } else { V::load_part(p.add(i), part) };
            let scaled = (load(x) - load(mean)).fma(load(factor), load(shift));
            if part == V::LANES {
                scaled.store(y.add(i));
            } else {
                scaled.store_part(y.add(i), part);
            }
            i += part;
        }
    }
}
