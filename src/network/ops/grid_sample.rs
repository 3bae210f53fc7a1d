//! GridSample.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attrs, Preset, Read, attr};
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType, Uint64};
use crate::network::ops::{indexing, strides};

/// Images read at the places of a grid (ONNX GridSample).
pub static DEF: OpDef = OpDef {
    name: "GridSample",
    doc: "x [N, C, spatial...] read at places [N, out..., axes] whose sides run from -1 to 1, the last axis first, for 1 \
          to 3 spatial axes; integers are interpolated in float64 and truncated (ONNX GridSample)",
    inputs: &["x", "grid"],
    attrs: &[
        attr(
            "align_corners",
            Preset::Int(0),
            "-1 and 1 are the centres of the outermost elements instead of their outer edges",
        ),
        attr(
            "mode",
            Preset::Text("linear"),
            "linear (bilinear), nearest or cubic (bicubic)",
        ),
        attr(
            "padding_mode",
            Preset::Text("zeros"),
            "what lies outside: zeros, border (the nearest element) or reflection",
        ),
        attr(
            "clamp_taps",
            Preset::Int(0),
            "cubic mode at the border brings each neighbour of a place inside (torch) instead of the place (ONNX)",
        ),
    ],
    infer,
    evaluate,
    lowering: Lowering::BEARS,
    uint64: Uint64::Exact,
    ..OpDef::PLAIN
};

/// The most spatial axes.
pub const AXES: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    Nearest,
    Linear,
    Cubic,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Padding {
    Zeros,
    Border,
    Reflection,
}

/// How places are read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    mode: Mode,
    padding: Padding,
    align_corners: bool,
    clamp_taps: bool,
}

/// Neighbours along one axis: at most four, with their weights; none for what is outside.
type Along = ([(Option<usize>, f64); 4], usize);

impl Sampler {
    /// Reads the attributes.
    ///
    /// # Errors
    /// If one is unknown.
    pub fn read(attrs: &Attrs) -> Result<Self> {
        let unknown = |name: &str, known: &str| {
            Err(Error::invalid(format!("attribute {name:?} is unknown"))
                .expected(known)
                .got(attrs.text(name)))
        };
        Ok(Self {
            mode: match attrs.text("mode") {
                "nearest" => Mode::Nearest,
                "linear" | "bilinear" => Mode::Linear,
                "cubic" | "bicubic" => Mode::Cubic,
                _ => return unknown("mode", "linear, nearest or cubic"),
            },
            padding: match attrs.text("padding_mode") {
                "zeros" => Padding::Zeros,
                "border" => Padding::Border,
                "reflection" => Padding::Reflection,
                _ => return unknown("padding_mode", "zeros, border or reflection"),
            },
            align_corners: attrs.flag("align_corners"),
            clamp_taps: attrs.flag("clamp_taps"),
        })
    }

    /// The outermost places that are inside.
    fn border(&self, size: usize) -> [f64; 2] {
        match self.align_corners {
            true => [0.0, size as f64 - 1.0],
            false => [-0.5, size as f64 - 0.5],
        }
    }

    /// The element at an index that may be outside.
    fn element(&self, i: f64, size: usize) -> Option<usize> {
        let last = size as f64 - 1.0;
        if (0.0..=last).contains(&i) {
            return Some(i as usize);
        }
        match self.padding {
            Padding::Zeros => None,
            Padding::Border => Some(i.clamp(0.0, last) as usize),
            Padding::Reflection => Some(reflected(i, self.border(size)).clamp(0.0, last) as usize),
        }
    }

    fn along(&self, place: f64, size: usize) -> Along {
        let extent = size as f64;
        let mut x = match self.align_corners {
            true => (place + 1.0) / 2.0 * (extent - 1.0),
            false => ((place + 1.0) * extent - 1.0) / 2.0,
        };
        if self.mode == Mode::Nearest {
            x = x.round_ties_even();
        }
        let border = self.border(size);
        if x < border[0] || x > border[1] {
            x = match self.padding {
                Padding::Zeros => x,
                Padding::Border if self.clamp_taps && self.mode == Mode::Cubic => x,
                Padding::Border => x.clamp(0.0, extent - 1.0),
                Padding::Reflection => reflected(x, border),
            };
        }
        let (base, t) = (x.floor(), x - x.floor());
        let tap = |offset: f64, weight: f64| (self.element(base + offset, size), weight);
        let none = (None, 0.0);
        match self.mode {
            Mode::Nearest => ([(self.element(x.trunc(), size), 1.0), none, none, none], 1),
            Mode::Linear => ([tap(0.0, 1.0 - t), tap(1.0, t), none, none], 2),
            Mode::Cubic => {
                let a = -0.75;
                let near = |d: f64| ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0;
                let far = |d: f64| ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a;
                let taps = [
                    tap(-1.0, far(t + 1.0)),
                    tap(0.0, near(t)),
                    tap(1.0, near(1.0 - t)),
                    tap(2.0, far(2.0 - t)),
                ];
                (taps, 4)
            }
        }
    }

    /// Calls `add` with each element of a plane of these extents that a place reads, and its weight.
    pub fn taps(&self, sizes: &[usize], place: &[f64], mut add: impl FnMut(usize, f64)) {
        let mut along: [Along; AXES] = [([(None, 0.0); 4], 0); AXES];
        for (axis, &size) in sizes.iter().enumerate() {
            // The last axis comes first in a place.
            along[axis] = self.along(place[sizes.len() - 1 - axis], size);
        }
        let count: usize = along[..sizes.len()].iter().map(|(_, n)| n).product();
        for mut i in 0..count {
            let (mut step, mut at, mut weight) = (1, 0, 1.0);
            let mut inside = true;
            for axis in (0..sizes.len()).rev() {
                let (taps, n) = &along[axis];
                let (index, factor) = taps[i % n];
                i /= n;
                inside &= index.is_some();
                at += index.unwrap_or(0) * step;
                step *= sizes[axis];
                weight *= factor;
            }
            if inside {
                add(at, weight);
            }
        }
    }
}

/// A place mirrored at the borders until it is between them.
fn reflected(x: f64, [low, high]: [f64; 2]) -> f64 {
    let range = high - low;
    if range <= 0.0 || !x.is_finite() {
        return low.max(0.0);
    }
    let away = (x - low).rem_euclid(2.0 * range);
    low + if away > range { 2.0 * range - away } else { away }
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (x, grid) = (infer.input(0)?, infer.input(1)?);
    Sampler::read(infer.attrs)?;
    let axes = x.rank().saturating_sub(2);
    let fits = (1..=AXES).contains(&axes) && grid.rank() == x.rank() && grid.dtype.is_float();
    if !fits || !grid.shape[axes + 1].is(axes as i64) {
        return Err(Error::shape("the input and the grid do not fit")
            .expected("[N, C, 1 to 3 spatial axes], and floating-point places [N, out..., as many as there are axes]")
            .got(format!("{} and {}", x.describe(), grid.describe())));
    }
    infer.require_equal(&x.shape[0], &grid.shape[0], "there is one grid per image")?;
    let mut shape = x.shape[..2].to_vec();
    shape.extend_from_slice(&grid.shape[1..=axes]);
    Ok(vec![TensorType::new(x.dtype, shape)])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (x, grid, shape) = (e.input(0)?, e.input(1)?.to_f64(), &e.outputs[0].1);
    let (sampler, sizes) = (Sampler::read(e.attrs)?, &x.shape()[2..]);
    let (planes, places): (_, usize) = (strides(x.shape()), shape[2..].iter().product());
    let count = shape.iter().product();
    if x.is_empty() && count > 0 {
        return Err(Error::shape("there is nothing to read in an image without elements").got(format!("{sizes:?}")));
    }
    let each = |read: &mut dyn FnMut(usize, usize, f64)| {
        for (i, place) in grid.chunks(sizes.len()).enumerate() {
            let (n, at) = (i / places, i % places);
            for c in 0..shape[1] {
                let (plane, to) = (n * planes[0] + c * planes[1], (n * shape[1] + c) * places + at);
                sampler.taps(sizes, place, |tap, weight| read(to, plane + tap, weight));
            }
        }
    };
    if sampler.mode == Mode::Nearest {
        // Elements that are not interpolated keep their bits.
        let mut found = vec![None; count];
        each(&mut |to, from, _| found[to] = Some(from));
        return Ok(vec![indexing::pick_or(x, shape.clone(), &found, 0.0)?]);
    }
    let (data, mut out) = (x.to_f64(), vec![0.0; count]);
    each(&mut |to, from, weight| out[to] += weight * data[from]);
    e.output(&out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_mirrored_as_often_as_need_be() {
        let mirror = |x| reflected(x, [0.0, 3.0]);
        assert_eq!([-1.0, 4.0, 7.0, -7.0, 1.5].map(mirror), [1.0, 2.0, 1.0, 1.0, 1.5]);
        assert_eq!(reflected(f64::INFINITY, [0.0, 3.0]), 0.0);
        assert_eq!(reflected(5.0, [0.0, 0.0]), 0.0);
    }
}
