//! DeformConv: what the taps read at a block of places becomes a matrix, which the weights are multiplied with.

use super::attention::product::{Matrix, PANEL, Panels, product};
use super::parallel::{self, Shared};
use super::scope::{Scope, uniform_forms};
use super::scratch::Scratch;
use super::{Answer, Why};
use crate::error::Result;
use crate::network::array::Buffer;
use crate::network::attr::{Attr, Read};
use crate::network::dtype::DType;
use crate::network::ops::conv;
use crate::network::ops::spatial::Window;
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Call, Form, Instance, Kernel, Launcher, Prepared, Request};
use crate::providers::cpu::simd::{convert, multiversion};
use half::{bf16, f16};

/// Places that are worked on together.
const PLACES: usize = 2 * PANEL;
/// A place between four elements.
const AROUND: usize = 4;

/// DeformConv in f32.
pub fn offer(scope: &Scope) -> Answer {
    if scope.op() != "DeformConv" {
        return Ok(vec![]);
    }
    let dtype = scope.output_type(0).dtype;
    if !dtype.is_float() || dtype == DType::Float64 {
        return Err(Why::new(format!("{dtype} can't be multiplied in f32")));
    }
    let mut attrs = scope.layer().attrs.clone();
    attrs.insert("auto_pad".into(), Attr::Text("NOTSET".into()));
    let weights = scope.input_type(1).map(|w| w.shape.as_slice()).unwrap_or_default();
    let biased = scope.input(3).is_some();
    let kernel = Deformed {
        window: conv::window(&attrs, weights).map_err(|e| Why::new(e.message()))?,
        group: attrs.int("group") as usize,
        offsets: attrs.int("offset_group") as usize,
        bias: biased.then_some(3),
        mask: scope.input(4).map(|_| 3 + usize::from(biased)),
    };
    Ok(vec![scope.alone(kernel, &[0, 1, 2, 3, 4])])
}

#[derive(Debug, Clone)]
struct Deformed {
    window: Window,
    group: usize,
    /// Groups of channels with offsets of their own.
    offsets: usize,
    /// Which inputs of the kernel these are.
    bias: Option<usize>,
    mask: Option<usize>,
}

impl Kernel for Deformed {
    fn name(&self) -> String {
        "DeformConv".into()
    }

    fn identity(&self) -> String {
        format!("{self:?}")
    }

    fn forms(&self) -> Vec<Form> {
        let count = 3 + self.bias.iter().len() + self.mask.iter().len();
        uniform_forms(&[Layout::Plain], count, 1)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let (w, out) = (&request.inputs[1], &request.outputs[0].shape);
        let taps = self.window.kernel.iter().product::<i64>() as usize;
        let rows = request.inputs[0].shape[1] * taps + out[1];
        let blocks = out[0] * (out[2] * out[3]).div_ceil(PLACES);
        let launcher = DeformedInstance {
            scratch: Scratch::new(rows * PLACES * 4, request.threads, blocks),
            rule: self.clone(),
            inputs: request.inputs.to_vec(),
            out: request.outputs[0].shape.clone(),
            // f32 is read where it lies.
            weights: Buffer::try_zeroed(if w.dtype == DType::Float32 { 0 } else { w.elements() * 4 })?,
        };
        let workspace = launcher.scratch.workspace();
        Ok(Instance::new("what the taps read as a matrix", launcher)
            .with_workspace(workspace)
            .into())
    }
}

struct DeformedInstance {
    rule: Deformed,
    inputs: Vec<Operand>,
    out: Vec<usize>,
    weights: Buffer,
    /// A row for each tap of each channel, then one for each output.
    scratch: Scratch,
}

/// The neighbours of a block of places, and how much each counts.
struct Near {
    at: [[u32; AROUND]; PLACES],
    weights: [[f32; AROUND]; PLACES],
}

impl Near {
    /// Where a place lies between four elements of a plane; what is outside has no weight.
    fn set(&mut self, i: usize, [height, width]: [usize; 2], [y, x]: [f32; 2], scale: f32) {
        let (top, left) = (y.floor(), x.floor());
        let (down, across) = (y - top, x - left);
        for n in 0..AROUND {
            let (row, column) = (top + (n / 2) as f32, left + (n % 2) as f32);
            let inside = row >= 0.0 && column >= 0.0 && row < height as f32 && column < width as f32;
            let along = |far: bool, part: f32| if far { part } else { 1.0 - part };
            let weight = along(n / 2 == 1, down) * along(n % 2 == 1, across);
            self.at[i][n] = if inside {
                (row as usize * width + column as usize) as u32
            } else {
                0
            };
            self.weights[i][n] = if inside { scale * weight } else { 0.0 };
        }
    }

    /// What a plane has there.
    fn read<T: Copy>(&self, plane: &[T], wide: impl Fn(T) -> f32, line: &mut [f32]) {
        for (value, (at, weights)) in line.iter_mut().zip(self.at.iter().zip(&self.weights)) {
            *value = 0.0;
            for (&at, &weight) in at.iter().zip(weights) {
                // An element without weight may be infinite.
                *value += if weight == 0.0 {
                    0.0
                } else {
                    weight * wide(plane[at as usize])
                };
            }
        }
    }
}

multiversion! {
    /// Weights [rows, k] times what the taps read, [k, PLACES].
    unsafe fn weigh<V>(rows: usize, k: usize, weights: *const f32, read: *const f32, sums: *mut f32) {
        let (a, c) = (Matrix { at: weights, step: k }, Matrix { at: sums, step: PLACES });
        let b = Panels { at: read, step: PLACES, panel: PANEL };
        product::<V>([rows, k, PLACES], a, b, c, false);
    }
}

impl Launcher for DeformedInstance {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let weights = match self.weights.len() {
            0 => call.inputs[1].cast(),
            _ => {
                let (to, n) = (self.weights.as_ptr().cast::<f32>(), self.inputs[1].elements());
                // SAFETY: the operand has so many elements, and so has the buffer, which is this instance's own.
                unsafe { convert::to_f32(self.inputs[1].dtype, call.inputs[1], to, n) };
                to.cast_const()
            }
        };
        let places = self.out[2] * self.out[3];
        let blocks = places.div_ceil(PLACES);
        let shared = (Shared(call), weights as usize);
        let this = &*self;
        parallel::over(self.out[0] * blocks, 1, |range| {
            let mut near = Near {
                at: [[0; AROUND]; PLACES],
                weights: [[0.0; AROUND]; PLACES],
            };
            for unit in range {
                let first = unit % blocks * PLACES;
                let block = [unit / blocks, first, PLACES.min(places - first)];
                this.block(shared.0.get(), shared.1 as *const f32, block, &mut near);
            }
        })
    }
}

impl DeformedInstance {
    fn taps(&self) -> usize {
        self.rule.window.kernel.iter().product::<i64>() as usize
    }

    /// All channels of some places of an image.
    fn block(&self, call: &Call, weights: *const f32, [image, first, count]: [usize; 3], near: &mut Near) {
        let (channels, outputs) = (self.inputs[0].shape[1], self.out[1]);
        let rows = channels * self.taps();
        self.scratch.with(call.workspace, |scratch| {
            let read = scratch.cast::<f32>();
            // SAFETY: the scratch has a row for each tap of each channel, then one for each output; the weights of a group
            // lie behind those before it.
            unsafe {
                let sums = read.add(rows * PLACES);
                match self.inputs[0].dtype {
                    DType::Float16 => self.read(call, [image, first, count], near, |v: f16| v.to_f32(), read),
                    DType::BFloat16 => self.read(call, [image, first, count], near, |v: bf16| v.to_f32(), read),
                    _ => self.read(call, [image, first, count], near, |v: f32| v, read),
                }
                let (per, k) = (outputs / self.rule.group, rows / self.rule.group);
                for g in 0..self.rule.group {
                    let (from, to) = (read.add(g * k * PLACES), sums.add(g * per * PLACES));
                    weigh(per, k, weights.add(g * per * k), from, to);
                }
                self.write(call, [image, first, count], sums);
            }
        });
    }

    /// What every tap of every channel reads, a row each.
    ///
    /// # Safety
    /// `to` has those rows, and the call the operands of the request.
    unsafe fn read<T: Copy>(
        &self,
        call: &Call,
        [image, first, count]: [usize; 3],
        near: &mut Near,
        wide: impl Fn(T) -> f32 + Copy,
        to: *mut f32,
    ) {
        let (window, taps) = (&self.rule.window, self.taps());
        let [_, channels, height, width] = self.inputs[0].shape[..] else {
            return;
        };
        let (places, across) = (self.out[2] * self.out[3], self.out[3]);
        let (mut down, mut right, mut scale) = ([0f32; PLACES], [0f32; PLACES], [1f32; PLACES]);
        let per_offset = channels / self.rule.offsets;
        for owner in 0..self.rule.offsets {
            for tap in 0..taps {
                let line = (image * self.rule.offsets + owner) * taps + tap;
                // SAFETY: offsets have two lines of places for each tap, masks one.
                unsafe {
                    let load = |input: usize, line: usize, to: &mut [f32; PLACES]| {
                        let operand = &self.inputs[input];
                        let from = call.inputs[input].add((line * places + first) * operand.dtype.size());
                        convert::to_f32(operand.dtype, from, to.as_mut_ptr(), count);
                    };
                    load(2, 2 * line, &mut down);
                    load(2, 2 * line + 1, &mut right);
                    if let Some(mask) = self.rule.mask {
                        load(mask, line, &mut scale);
                    }
                }
                let kernel = [tap / window.kernel[1] as usize, tap % window.kernel[1] as usize];
                for i in 0..count {
                    let at = [(first + i) / across, (first + i) % across];
                    let fixed = |a: usize| {
                        at[a] as i64 * window.strides[a] - window.begin[a] + kernel[a] as i64 * window.dilations[a]
                    };
                    let place = [fixed(0) as f32 + down[i], fixed(1) as f32 + right[i]];
                    near.set(i, [height, width], place, scale[i]);
                }
                for c in owner * per_offset..(owner + 1) * per_offset {
                    // SAFETY: the plane lies within the operand, the row within what the caller gave.
                    let (plane, row) = unsafe {
                        let plane = call.inputs[0].cast::<T>().add((image * channels + c) * height * width);
                        let row = to.add((c * taps + tap) * PLACES);
                        (
                            std::slice::from_raw_parts(plane, height * width),
                            std::slice::from_raw_parts_mut(row, PLACES),
                        )
                    };
                    match plane.is_empty() {
                        true => row.fill(0.0),
                        false => near.read(plane, wide, &mut row[..count]),
                    }
                }
            }
        }
    }

    /// The sums with the bias, as elements of the result.
    ///
    /// # Safety
    /// There is a row of sums for each output, and the call has the operands of the request.
    unsafe fn write(&self, call: &Call, [image, first, count]: [usize; 3], sums: *mut f32) {
        let (outputs, places) = (self.out[1], self.out[2] * self.out[3]);
        let dtype = self.inputs[0].dtype;
        for m in 0..outputs {
            // SAFETY: the caller's promise; each thread has places of its own in the output.
            unsafe {
                let row = std::slice::from_raw_parts_mut(sums.add(m * PLACES), count);
                if let Some(bias) = self.rule.bias {
                    let mut value = 0f32;
                    convert::to_f32(dtype, call.inputs[bias].add(m * dtype.size()), &mut value, 1);
                    row.iter_mut().for_each(|sum| *sum += value);
                }
                let to = call.outputs[0].add(((image * outputs + m) * places + first) * dtype.size());
                convert::from_f32(dtype, row.as_ptr(), to, count);
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
    fn taps_of_every_kind() {
        for dtype in [DType::Float32, DType::Float16, DType::BFloat16] {
            for (group, offsets, masked, biased) in [(1, 1, true, true), (2, 4, true, false), (4, 2, false, true)] {
                let mut case = Case::new(dtype);
                let (x, w) = (case.input("n 8 25 11"), case.weights(&[12, 8 / group as usize, 3, 2]));
                // Strides 2 and 1, a row of zeros above and two columns beside.
                let offset = case.input(&format!("n {} 12 14", 12 * offsets));
                let mask = case.input(&format!("n {} 12 14", 6 * offsets));
                let bias = case.weights(&[12]);
                let how = attrs([
                    ("group", Attr::Int(group)),
                    ("offset_group", Attr::Int(offsets)),
                    ("strides", Attr::Ints(vec![2, 1])),
                    ("pads", Attr::Ints(vec![1, 2, 0, 2])),
                ]);
                let inputs = [
                    Some(x),
                    Some(w),
                    Some(offset),
                    biased.then_some(bias),
                    masked.then_some(mask),
                ];
                let y = case.layer_of("DeformConv", how, &inputs)[0];
                case.output(y).check_fast(&[("n", 2)]);
                case.check_fast(&[("n", 0)]);
            }
        }
    }
}
