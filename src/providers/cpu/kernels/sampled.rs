//! GridSample and RoiAlign: the neighbours of a block of places once, then every channel through them.

use super::parallel::{self, Shared};
use super::scope::Scope;
use super::{Answer, Why};
use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::dtype::DType;
use crate::network::ops::grid_sample::Sampler;
use crate::network::ops::indexing;
use crate::network::ops::roi_align::Align;
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Call, Form, Kernel, Launcher, Prepared, Request, Tactic};
use crate::providers::cpu::simd::{map1, map2, multiversion};
use half::{bf16, f16};

/// Places that are worked on together.
const PLACES: usize = 128;
/// Channels that are.
const CHANNELS: usize = 64;
/// So many channels are worth reading as one run.
const MANY: i64 = 16;

/// GridSample and RoiAlign in f32.
pub fn offer(scope: &Scope) -> Answer {
    let attrs = &scope.layer().attrs;
    let rule = match scope.op() {
        "GridSample" => Sampler::read(attrs).map(Rule::Grid),
        "RoiAlign" => Align::read(attrs).map(Rule::Rois),
        _ => return Ok(vec![]),
    };
    let rule = rule.map_err(|e| Why::new(e.message()))?;
    let dtype = scope.output_type(0).dtype;
    if !dtype.is_float() || dtype == DType::Float64 {
        return Err(Why::new(format!("{dtype} can't be interpolated in f32")));
    }
    let name = scope.op();
    let inputs = scope.layer().inputs.len();
    let inputs: Vec<usize> = (0..inputs).collect();
    let channels = scope.input_type(0).and_then(|x| x.shape[1].as_const()).unwrap_or(0);
    let whole_rows = dtype == DType::Float32 && channels >= MANY && scope.output_type(0).rank() == 4;
    Ok(vec![scope.alone(Sampled { name, rule, whole_rows }, &inputs)])
}

/// What says where to read.
#[derive(Debug, Clone)]
enum Rule {
    Grid(Sampler),
    Rois(Align),
}

struct Sampled {
    name: &'static str,
    rule: Rule,
    /// Whether all channels of a place can be read as one run: they are many, and f32.
    whole_rows: bool,
}

impl Kernel for Sampled {
    fn name(&self) -> String {
        self.name.into()
    }

    fn identity(&self) -> String {
        format!("{:?}", self.rule)
    }

    fn forms(&self) -> Vec<Form> {
        let inputs = match self.rule {
            Rule::Grid(_) => 2,
            Rule::Rois(_) => 3,
        };
        let form = |layout: Layout| Form {
            tactic: Tactic::ONLY,
            inputs: [vec![layout], vec![Layout::Plain; inputs - 1]].concat(),
            outputs: vec![Layout::Plain],
        };
        match self.rule {
            // Many regions read each element: bringing the channels together pays whatever it costs.
            Rule::Rois(_) if self.whole_rows => vec![form(Layout::ChannelsLast)],
            Rule::Grid(_) if self.whole_rows => vec![form(Layout::ChannelsLast), form(Layout::Plain)],
            _ => vec![form(Layout::Plain)],
        }
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let (x, y) = (&request.inputs[0], &request.outputs[0]);
        if x.elements() == 0 && y.elements() != 0 {
            return Err(Error::shape("there is nothing to read in an image without elements").got(x.describe()));
        }
        Ok(Prepared::new(
            "neighbours of a block of places",
            SampledInstance {
                rule: self.rule.clone(),
                inputs: request.inputs.to_vec(),
                out: y.shape.clone(),
            },
        ))
    }
}

struct SampledInstance {
    rule: Rule,
    inputs: Vec<Operand>,
    out: Vec<usize>,
}

/// The neighbours of some places: those of place `i` lie at `ends[i - 1]..ends[i]`.
#[derive(Default)]
struct Taps {
    ends: Vec<usize>,
    at: Vec<usize>,
    weights: Vec<f32>,
}

impl Taps {
    fn clear(&mut self) {
        self.ends.clear();
        self.at.clear();
        self.weights.clear();
    }

    fn add(&mut self, at: usize, weight: f64) {
        self.at.push(at);
        self.weights.push(weight as f32);
    }

    fn end(&mut self) {
        self.ends.push(self.at.len());
    }

    /// What each place reads of a plane.
    fn read<T: Copy>(&self, plane: &[T], wide: impl Fn(T) -> f32, max: bool, mut put: impl FnMut(usize, f32)) {
        let mut start = 0;
        for (i, &end) in self.ends.iter().enumerate() {
            let taps = self.at[start..end].iter().zip(&self.weights[start..end]);
            // An element without weight may be infinite.
            let values = taps.map(|(&at, &weight)| if weight == 0.0 { 0.0 } else { weight * wide(plane[at]) });
            put(
                i,
                if max {
                    values.reduce(f32::max).unwrap_or(0.0)
                } else {
                    values.sum()
                },
            );
            start = end;
        }
    }
}

multiversion! {
    /// The weighted sum, or the greatest weighted element, of `n` rows that lie `at` places behind `x`; `sizes` are the
    /// elements from one place to the next, and those to do.
    unsafe fn weighted<V>(n: usize, at: *const usize, weights: *const f32, x: *const f32, sizes: [usize; 2], y: *mut f32, max: bool) {
        let [stride, count] = sizes;
        let none = V::splat(if max && n > 0 { f32::NEG_INFINITY } else { 0.0 });
        map1!(V, count, y, y, |_v| none);
        for i in 0..n {
            let weight = *weights.add(i);
            // An element without weight may be infinite.
            if weight == 0.0 {
                if max {
                    map1!(V, count, y, y, |v| v.max(V::splat(0.0)));
                }
                continue;
            }
            let (row, weight) = (x.add(*at.add(i) * stride), V::splat(weight));
            match max {
                true => map2!(V, count, y, row, y, |v, x| v.max(weight * x)),
                false => map2!(V, count, y, row, y, |v, x| v + weight * x),
            }
        }
    }
}

impl Launcher for SampledInstance {
    fn launch(&mut self, call: &Call) -> Result<()> {
        match &self.rule {
            Rule::Grid(sampler) => self.grid(*sampler, call),
            Rule::Rois(align) => self.rois(align, call),
        }
    }
}

impl SampledInstance {
    /// The elements of an input.
    fn array(&self, call: &Call, index: usize) -> Result<Array> {
        let operand = &self.inputs[index];
        // SAFETY: the planner gives addresses that hold the operands of the request.
        let bytes = unsafe { std::slice::from_raw_parts(call.inputs[index], operand.bytes()) };
        Array::from_bytes(operand.dtype, operand.shape.clone(), bytes)
    }

    fn grid(&self, sampler: Sampler, call: &Call) -> Result<()> {
        let grid = self.array(call, 1)?;
        let sizes = &self.inputs[0].shape[2..];
        let places: usize = self.out[2..].iter().product();
        let blocks = places.div_ceil(PLACES);
        let shared = Shared(call);
        parallel::over(self.out[0] * blocks, 1, |range| {
            let mut taps = Taps::default();
            let mut place = vec![0.0; PLACES * sizes.len()];
            for unit in range {
                let (n, first) = (unit / blocks, unit % blocks * PLACES);
                let count = PLACES.min(places - first);
                let place = &mut place[..count * sizes.len()];
                grid.load_f64s((n * places + first) * sizes.len(), place);
                taps.clear();
                for place in place.chunks(sizes.len()) {
                    sampler.taps(sizes, place, |at, weight| taps.add(at, weight));
                    taps.end();
                }
                self.planes(shared.get(), &taps, [n, n], first, false);
            }
        })
    }

    fn rois(&self, align: &Align, call: &Call) -> Result<()> {
        let (rois, images) = (self.array(call, 1)?.to_f64(), self.array(call, 2)?.to_i64());
        let shape = &self.inputs[0].shape;
        let images = images.into_iter().map(|image| indexing::index(image, shape[0]));
        let images = images.collect::<Result<Vec<_>>>()?;
        let sizes = [shape[2], shape[3]];
        let shared = Shared(call);
        parallel::over(images.len(), 1, |range| {
            let mut taps = Taps::default();
            for r in range {
                taps.clear();
                align.taps(sizes, &rois[r * 4..][..4], |bin, at, weight| {
                    while taps.ends.len() < bin {
                        taps.end();
                    }
                    taps.add(at, weight);
                });
                while taps.ends.len() < align.count() {
                    taps.end();
                }
                self.planes(shared.get(), &taps, [images[r], r], 0, align.max);
            }
        })
    }

    /// Every channel of image `from` through the neighbours, to image `to` of the output from place `first` on.
    fn planes(&self, call: &Call, taps: &Taps, [from, to]: [usize; 2], first: usize, max: bool) {
        if self.inputs[0].layout == Layout::ChannelsLast {
            return self.rows(call, taps, [from, to, first], max);
        }
        match self.inputs[0].dtype {
            DType::Float16 => {
                self.typed(call, taps, [from, to, first], max, |v: f16| v.to_f32(), f16::from_f32);
            }
            DType::BFloat16 => {
                self.typed(call, taps, [from, to, first], max, |v: bf16| v.to_f32(), bf16::from_f32);
            }
            _ => self.typed(call, taps, [from, to, first], max, |v: f32| v, |v| v),
        }
    }

    /// As [`SampledInstance::planes`], where the channels of a place lie together.
    fn rows(&self, call: &Call, taps: &Taps, [from, to, first]: [usize; 3], max: bool) {
        let (channels, size) = (self.out[1], self.inputs[0].shape[2..].iter().product::<usize>());
        let places: usize = self.out[2..].iter().product();
        let (x, y) = (call.inputs[0].cast::<f32>(), call.outputs[0].cast::<f32>());
        let mut sums = [0f32; CHANNELS];
        for c in (0..channels).step_by(CHANNELS) {
            let count = CHANNELS.min(channels - c);
            let mut start = 0;
            for (i, &end) in taps.ends.iter().enumerate() {
                let (at, weights) = (taps.at[start..end].as_ptr(), taps.weights[start..end].as_ptr());
                // SAFETY: the rows lie within the operands, and each thread has places of its own in the output.
                unsafe {
                    weighted(
                        end - start,
                        at,
                        weights,
                        x.add(from * size * channels + c),
                        [channels, count],
                        sums.as_mut_ptr(),
                        max,
                    );
                    let column = y.add((to * channels + c) * places + first + i);
                    (0..count).for_each(|k| column.add(k * places).write(sums[k]));
                }
                start = end;
            }
        }
    }

    fn typed<T: Copy>(
        &self,
        call: &Call,
        taps: &Taps,
        [from, to, first]: [usize; 3],
        max: bool,
        wide: impl Fn(T) -> f32,
        narrow: impl Fn(f32) -> T,
    ) {
        let (channels, size) = (self.out[1], self.inputs[0].shape[2..].iter().product::<usize>());
        let places: usize = self.out[2..].iter().product();
        let (x, y) = (call.inputs[0].cast::<T>(), call.outputs[0].cast::<T>());
        for c in 0..channels {
            // SAFETY: the planes lie within the operands, and each thread has places of its own in the output.
            unsafe {
                let plane = std::slice::from_raw_parts(x.add((from * channels + c) * size), size);
                let line = y.add((to * channels + c) * places + first);
                taps.read(plane, &wide, max, |i, value| line.add(i).write(narrow(value)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::network::array::Array;
    use crate::network::attr::{Attr, attrs};
    use crate::network::dtype::DType;
    use crate::providers::cpu::kernels::testing::Case;

    fn text(name: &'static str, value: &str) -> (&'static str, Attr) {
        (name, Attr::Text(value.into()))
    }

    #[test]
    fn grids_in_every_mode() {
        for mode in ["nearest", "linear", "cubic"] {
            for padding in ["zeros", "border", "reflection"] {
                for align in [0, 1] {
                    let how = || {
                        attrs([
                            text("mode", mode),
                            text("padding_mode", padding),
                            ("align_corners", Attr::Int(align)),
                        ])
                    };
                    let mut case = Case::new(DType::Float32);
                    let (x, grid) = (case.input("n 3 5 7"), case.input("n h 11 2"));
                    let (z, deep) = (case.input("n 2 3 4 5"), case.input("n 3 2 h 3"));
                    let y = case.layer("GridSample", how(), &[x, grid]);
                    let w = case.layer("GridSample", how(), &[z, deep]);
                    let rows = case.input("n 33 5 7");
                    let u = case.layer("GridSample", how(), &[rows, grid]);
                    case.output(u).output(y).output(w).check_fast(&[("n", 2), ("h", 13)]);
                    case.check_fast(&[("n", 1), ("h", 0)]);
                }
            }
        }
    }

    #[test]
    fn regions_in_every_mode() {
        for dtype in [DType::Float32, DType::Float16] {
            for (mode, coordinates, ratio) in [
                ("avg", "half_pixel", 0),
                ("max", "output_half_pixel", 2),
                ("avg", "output_half_pixel", 3),
            ] {
                let mut case = Case::new(dtype);
                let x = case.input(if ratio == 3 { "2 70 9 8" } else { "2 3 9 8" });
                let corners = [0.0, 0.0, 8.0, 9.0, 1.5, 2.5, 3.0, 7.25, 5.0, 5.0, 4.0, 4.0];
                let rois = case.constant(Array::from_f64(dtype, vec![3, 4], &corners).unwrap());
                let images = case.constant(Array::ints(&[1, 0, 1]));
                let how = attrs([
                    text("mode", mode),
                    text("coordinate_transformation_mode", coordinates),
                    ("output_height", Attr::Int(3)),
                    ("output_width", Attr::Int(2)),
                    ("sampling_ratio", Attr::Int(ratio)),
                    ("spatial_scale", Attr::Float(0.75)),
                ]);
                let y = case.layer("RoiAlign", how, &[x, rois, images]);
                case.output(y).check_fast(&[]);
            }
        }
    }
}
