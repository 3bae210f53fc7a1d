//! Resize.

use crate::error::{Error, Result};
use crate::network::array::{Array, require};
use crate::network::attr::{Attrs, Preset, Read, attr};
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::least::Least;
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType, Uint64};
use crate::network::ops::{indexing, strides, values};

/// Resampling to another extent along some axes (ONNX Resize).
pub static DEF: OpDef = OpDef {
    name: "Resize",
    doc: "Resampling by factors (scales) or to extents (sizes): nearest, linear or cubic; integers are interpolated in \
          float64 and truncated (ONNX Resize)",
    inputs: &["x", "roi?", "scales?", "sizes?"],
    attrs: &[
        attr("mode", Preset::Text("nearest"), "nearest, linear or cubic"),
        attr(
            "coordinate_transformation_mode",
            Preset::Text("half_pixel"),
            "half_pixel, half_pixel_symmetric, pytorch_half_pixel, align_corners, asymmetric or tf_crop_and_resize",
        ),
        attr(
            "nearest_mode",
            Preset::Text("round_prefer_floor"),
            "round_prefer_floor, round_prefer_ceil, floor or ceil",
        ),
        attr("cubic_coeff_a", Preset::Float(-0.75), "shape of the cubic kernel"),
        attr(
            "antialias",
            Preset::Int(0),
            "linear and cubic: what is made smaller is read through a filter that is as much wider",
        ),
        attr(
            "exclude_outside",
            Preset::Int(0),
            "neighbours outside have no weight instead of the edge's value",
        ),
        attr(
            "extrapolation_value",
            Preset::Float(0.0),
            "what tf_crop_and_resize gives outside of x",
        ),
        attr(
            "axes",
            Preset::Ints(&[]),
            "the axes that roi, scales and sizes name; empty: all",
        ),
        attr(
            "keep_aspect_ratio_policy",
            Preset::Text("stretch"),
            "stretch, not_larger or not_smaller: whether sizes are taken as they are or as bounds of one common scale",
        ),
    ],
    infer,
    evaluate,
    lowering: Lowering::BEARS.operands(1),
    uint64: Uint64::Exact,
    spatial: true,
    least: Least::First,
    ..OpDef::PLAIN
};

/// The fraction of the smallest denominator that rounds to the same float32: what the model's author meant by a scale.
///
/// # Errors
/// If the scale is not positive.
pub fn fraction(scale: f64) -> Result<(i64, i64)> {
    if !(scale > 0.0 && scale < 1e9) {
        return Err(Error::invalid("a scale must be positive").got(scale.to_string()));
    }
    // Continued fraction: convergents p/q until one is the same float.
    let (mut p, mut q) = ((1i64, 0i64), (0i64, 1i64));
    let mut rest = scale;
    loop {
        let whole = rest.floor();
        p = (whole as i64 * p.0 + p.1, p.0);
        q = (whole as i64 * q.0 + q.1, q.0);
        let same = (p.0 as f64 / q.0 as f64) as f32 == scale as f32;
        if same || rest == whole || q.0 > 1 << 24 {
            return Ok((p.0, q.0));
        }
        rest = 1.0 / (rest - whole);
    }
}

/// Whether each number of the result is an element of the input, and none is made or filled in.
pub fn takes_elements(attrs: &Attrs) -> bool {
    attrs.text("mode") == "nearest" && attrs.text("coordinate_transformation_mode") != "tf_crop_and_resize"
}

/// The axes that a Resize layer names, in the order of its lists.
fn axes(attrs: &Attrs, x: &TensorType) -> Result<Vec<usize>> {
    let named = attrs.ints("axes");
    if named.is_empty() {
        return Ok((0..x.rank()).collect());
    }
    let axes = named.iter().map(|&a| x.axis(a)).collect::<Result<Vec<usize>>>()?;
    if (1..axes.len()).any(|at| axes[..at].contains(&axes[at])) {
        return Err(Error::invalid("axes name one axis twice")
            .expected("each axis once")
            .got(format!("axes {named:?} of {}", x.describe()))
            .hint("give one size or scale for each axis"));
    }
    Ok(axes)
}

fn unknown(name: &str, known: &str, got: &str) -> Error {
    Error::unsupported(format!("attribute '{name}' of Resize is unknown"))
        .expected(known)
        .got(format!("'{got}'"))
        .hint("give one of these")
}

fn given(ty: Option<&TensorType>) -> bool {
    // An empty list is ONNX's older way to leave an input out.
    ty.is_some_and(|t| !t.elements().is(0))
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let x = infer.input(0)?;
    let axes = axes(infer.attrs, x)?;
    Mode::read(infer.attrs)?;
    // Where any place lies tells whether it is known how places lie.
    Axis::ONE.place(infer.attrs.text("coordinate_transformation_mode"), 0.0)?;
    let (by_scale, by_size) = (given(infer.optional(2)), given(infer.optional(3)));
    if by_scale == by_size {
        return Err(
            Error::invalid("Resize takes either scales or sizes").got(format!("scales: {by_scale}, sizes: {by_size}"))
        );
    }
    let list = infer.input(if by_scale { 2 } else { 3 })?;
    if list.rank() != 1 || !list.elements().is(axes.len() as i64) {
        return Err(Error::shape("scales or sizes do not fit")
            .expected(format!("{} numbers, one per axis", axes.len()))
            .got(list.describe()));
    }
    let mut shape = x.shape.clone();
    if by_scale {
        let scales = infer.constant(2).map(Array::to_f64);
        for (i, &axis) in axes.iter().enumerate() {
            shape[axis] = match &scales {
                Some(scales) => {
                    let (p, q) = fraction(scales[i])?;
                    (shape[axis].clone() * p.into()).floordiv(&q.into())
                }
                None => infer.fresh(axis),
            };
        }
    } else {
        let sizes = values::target(infer, 3)?;
        // Sizes that depend on data give extents that do.
        let sizes = match infer.value(3) {
            Some(_) => bounded(infer.attrs, x, &axes, sizes)?,
            None => sizes,
        };
        for (&axis, size) in axes.iter().zip(sizes) {
            shape[axis] = size;
        }
    }
    Ok(vec![TensorType::new(x.dtype, shape)])
}

/// The extents that `sizes` ask for under the policy for the aspect ratio.
fn bounded(attrs: &Attrs, x: &TensorType, axes: &[usize], sizes: Vec<Dim>) -> Result<Vec<Dim>> {
    let pick: fn(&Dim, &Dim) -> Dim = match attrs.text("keep_aspect_ratio_policy") {
        "stretch" => return Ok(sizes),
        "not_larger" => values::least,
        "not_smaller" => values::greatest,
        other => {
            return Err(unknown(
                "keep_aspect_ratio_policy",
                "stretch, not_larger or not_smaller",
                other,
            ));
        }
    };
    let two = Dim::from(2i64);
    // floor(scale * extent + 1/2), for the scale of each axis: the least or greatest result belongs to that scale.
    let scaled = |extent: &Dim, (&axis, size): (&usize, &Dim)| {
        let before = &x.shape[axis];
        let doubled = two.clone() * size.clone() * extent.clone() + before.clone();
        doubled.floordiv(&(two.clone() * before.clone()))
    };
    if axes.iter().any(|&axis| x.shape[axis].is(0)) {
        return Err(Error::shape("an axis without elements has no aspect ratio").got(x.describe()));
    }
    let bound = |&axis: &usize| {
        let all = axes.iter().zip(&sizes).map(|pair| scaled(&x.shape[axis], pair));
        all.reduce(|a, b| pick(&a, &b)).unwrap_or_default()
    };
    Ok(axes.iter().map(bound).collect())
}

/// The one scale of all axes under the policy for the aspect ratio; none where each has its own.
fn common_scale(attrs: &Attrs, shape: &[usize], axes: &[usize], sizes: &[f64]) -> Option<f64> {
    let scales = axes.iter().zip(sizes).map(|(&axis, size)| size / shape[axis] as f64);
    match attrs.text("keep_aspect_ratio_policy") {
        "not_larger" => scales.reduce(f64::min),
        "not_smaller" => scales.reduce(f64::max),
        _ => None,
    }
}

/// How elements are interpolated.
enum Mode {
    Nearest(fn(f64) -> f64),
    Linear,
    Cubic(f64),
}

impl Mode {
    fn read(attrs: &Attrs) -> Result<Self> {
        match attrs.text("mode") {
            "nearest" => Ok(Mode::Nearest(match attrs.text("nearest_mode") {
                "round_prefer_floor" => |x| (x - 0.5).ceil(),
                "round_prefer_ceil" => |x| (x + 0.5).floor(),
                "floor" => f64::floor,
                "ceil" => f64::ceil,
                other => {
                    let known = "round_prefer_floor, round_prefer_ceil, floor or ceil";
                    return Err(unknown("nearest_mode", known, other));
                }
            })),
            "linear" => Ok(Mode::Linear),
            "cubic" => Ok(Mode::Cubic(attrs.float("cubic_coeff_a"))),
            other => Err(unknown("mode", "nearest, linear or cubic", other)),
        }
    }

    /// The weight of an element at a distance, and how far elements have weight.
    fn weight(&self, distance: f64) -> f64 {
        let d = distance.abs();
        match *self {
            Mode::Cubic(a) if d <= 1.0 => ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0,
            Mode::Cubic(a) if d < 2.0 => ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a,
            Mode::Cubic(_) => 0.0,
            _ => (1.0 - d).max(0.0),
        }
    }

    /// How far neighbours are on either side.
    fn reach(&self) -> f64 {
        match self {
            Mode::Nearest(_) => 0.5,
            Mode::Linear => 1.0,
            Mode::Cubic(_) => 2.0,
        }
    }

    /// The bytes of the neighbours of one element, here and in the tables that kernels make of them.
    fn bytes(&self, narrow: f64) -> usize {
        let neighbours = 2.0 * self.reach() / narrow + 2.0;
        (neighbours as usize).saturating_mul(2 * size_of::<(usize, f64)>())
    }

    /// The neighbours of a place and their weights; `narrow` is below 1 where a wider filter is wanted.
    fn taps(&self, place: f64, narrow: f64) -> Vec<(i64, f64)> {
        let base = place.floor();
        let (first, t) = (base as i64, place - base);
        if let Mode::Nearest(round) = *self {
            return vec![(round(place) as i64, 1.0)];
        }
        let start = (-self.reach() / narrow).floor() as i64 + 1;
        let mut taps: Vec<_> = (start..=1 - start)
            .map(|i| (first + i, self.weight((i as f64 - t) * narrow)))
            .collect();
        if narrow < 1.0 {
            let sum: f64 = taps.iter().map(|(_, weight)| weight).sum();
            taps.iter_mut().for_each(|(_, weight)| *weight /= sum);
        }
        taps
    }
}

/// Elements of the input along one axis, with weights.
pub type Weights = Vec<(usize, f64)>;

/// A layer at concrete shapes.
pub struct Resampling<'a> {
    /// The attributes, complete.
    pub attrs: &'a Attrs,
    /// The shape of the input.
    pub shape: &'a [usize],
    /// The shape of the output.
    pub out: &'a [usize],
    /// The region of interest, unless it is left out.
    pub roi: Option<Vec<f64>>,
    /// The scales, unless they are left out.
    pub scales: Option<Vec<f64>>,
    /// The sizes, which matter where the aspect ratio is kept.
    pub sizes: Option<Vec<f64>>,
}

impl Resampling<'_> {
    /// For each axis that the layer names, and each element of the output along it: the elements of the input with
    /// their weights; none where it lies outside.
    ///
    /// # Errors
    /// If an attribute is unknown.
    pub fn taps(&self) -> Result<Vec<(usize, Vec<Option<Weights>>)>> {
        let dims: Vec<_> = self.shape.iter().map(|&d| Dim::from(d as i64)).collect();
        let axes = axes(self.attrs, &TensorType::new(DType::Float32, dims))?;
        if let Some(roi) = self.roi.as_ref().filter(|roi| roi.len() != 2 * axes.len()) {
            return Err(Error::shape("roi needs a start and an end for each axis")
                .expected(format!("{} numbers", 2 * axes.len()))
                .got(roi.len().to_string()));
        }
        let sizes = self.sizes.as_ref();
        let common = sizes.and_then(|sizes| common_scale(self.attrs, self.shape, &axes, sizes));
        let along = |(k, &axis): (usize, &usize)| {
            let (size, out) = (self.shape[axis], self.out[axis]);
            let scale = match &self.scales {
                Some(scales) => fraction(scales[k]).map(|(p, q)| p as f64 / q as f64)?,
                None => common.unwrap_or(out as f64 / size as f64),
            };
            let roi = self.roi.as_ref().map_or([0.0, 1.0], |r| [r[k], r[axes.len() + k]]);
            Ok((axis, Axis { size, out, scale, roi }.taps(self.attrs)?))
        };
        axes.iter().enumerate().map(along).collect()
    }
}

/// One axis: where each element of the output lies in the input.
struct Axis {
    size: usize,
    out: usize,
    scale: f64,
    roi: [f64; 2],
}

impl Axis {
    const ONE: Self = Self {
        size: 1,
        out: 1,
        scale: 1.0,
        roi: [0.0, 1.0],
    };

    fn place(&self, mode: &str, i: f64) -> Result<f64> {
        let (size, out) = (self.size as f64, self.out as f64);
        Ok(match mode {
            "half_pixel" => (i + 0.5) / self.scale - 0.5,
            // As the standard has it, written so that places which are integers come out as such: they are rounded up and down.
            "half_pixel_symmetric" => (size - 1.0) / 2.0 + (2.0 * i + 1.0 - out) / (2.0 * self.scale),
            "pytorch_half_pixel" if out > 1.0 => (i + 0.5) / self.scale - 0.5,
            "align_corners" if out > 1.0 => i * (size - 1.0) / (out - 1.0),
            "pytorch_half_pixel" | "align_corners" => 0.0,
            "asymmetric" => i / self.scale,
            "tf_crop_and_resize" => {
                let [start, end] = self.roi.map(|r| r * (size - 1.0));
                if out > 1.0 {
                    start + i * (end - start) / (out - 1.0)
                } else {
                    (start + end) / 2.0
                }
            }
            other => {
                let known = "half_pixel, half_pixel_symmetric, pytorch_half_pixel, align_corners, asymmetric or \
                             tf_crop_and_resize";
                return Err(unknown("coordinate_transformation_mode", known, other));
            }
        })
    }

    /// For each element of the output, the elements of the input with their weights; none: it lies outside.
    fn taps(&self, attrs: &Attrs) -> Result<Vec<Option<Weights>>> {
        let (interpolation, mode) = (Mode::read(attrs)?, attrs.text("coordinate_transformation_mode"));
        let last = self.size as i64 - 1;
        let narrow = if attrs.flag("antialias") {
            self.scale.min(1.0)
        } else {
            1.0
        };
        require(self.out.saturating_mul(interpolation.bytes(narrow)))?;
        let element = |i: usize| {
            let place = self.place(mode, i as f64)?;
            if mode == "tf_crop_and_resize" && !(0.0..=last as f64).contains(&place) {
                return Ok(None);
            }
            let mut taps = interpolation.taps(place, narrow);
            if attrs.flag("exclude_outside") {
                taps.retain(|(at, _)| (0..=last).contains(at));
                let sum: f64 = taps.iter().map(|(_, weight)| weight).sum();
                taps.iter_mut().for_each(|(_, weight)| *weight /= sum);
            }
            Ok(Some(
                taps.into_iter()
                    .map(|(at, weight)| (at.clamp(0, last) as usize, weight))
                    .collect(),
            ))
        };
        (0..self.out).map(element).collect()
    }
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let x = e.input(0)?;
    let list = |index: usize| e.optional(index).map(Array::to_f64).filter(|l| !l.is_empty());
    let resampling = Resampling {
        attrs: e.attrs,
        shape: x.shape(),
        out: &e.outputs[0].1,
        roi: list(1),
        scales: list(2),
        sizes: list(3),
    };
    let mut shape = x.shape().to_vec();
    // What is not interpolated keeps its bits: places of elements go through the sums in their stead.
    let nearest = e.attrs.text("mode") == "nearest";
    let mut data = match nearest {
        true => (0..x.len()).map(|place| place as f64).collect(),
        false => x.to_f64(),
    };
    let mut outside = vec![false; data.len()];
    for (axis, taps) in resampling.taps()? {
        let size = shape[axis];
        let stride = strides(&shape)[axis];
        let (mut next, mut next_outside) = (vec![], vec![]);
        for outer in 0..shape[..axis].iter().product() {
            for taps in &taps {
                for inner in 0..stride {
                    let at = |i: usize| (outer * size + i) * stride + inner;
                    let taps = taps.as_deref();
                    let weighted = |&(i, weight): &(usize, f64)| weight * data[at(i)];
                    next.push(taps.unwrap_or(&[]).iter().map(weighted).sum());
                    next_outside.push(taps.is_none_or(|taps| taps.iter().any(|&(i, _)| outside[at(i)])));
                }
            }
        }
        shape[axis] = taps.len();
        (data, outside) = (next, next_outside);
    }
    let extrapolated = e.attrs.float("extrapolation_value");
    let found = data.iter().zip(outside);
    if nearest {
        let places: Vec<_> = found.map(|(&place, o)| (!o).then_some(place as usize)).collect();
        return Ok(vec![indexing::pick_or(x, shape, &places, extrapolated)?]);
    }
    let data: Vec<_> = found.map(|(&v, o)| if o { extrapolated } else { v }).collect();
    e.output(&data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Network;
    use crate::network::attr::{Attr, attrs, complete};
    use crate::network::reference::evaluate_op;

    #[test]
    fn scales_are_read_as_fractions() {
        let read = |scale: f32| fraction(scale as f64).unwrap();
        assert_eq!(
            [2.0, 0.5, 1.5, 0.7, 0.6, 1.0 / 3.0].map(read),
            [(2, 1), (1, 2), (3, 2), (7, 10), (3, 5), (1, 3)]
        );
        assert!(fraction(0.0).is_err());
    }

    #[test]
    fn linear_by_hand() {
        let x = Array::from_f64(DType::Float32, vec![1, 1, 2], &[1.0, 3.0]).unwrap();
        let scales = Array::from_f64(DType::Float32, vec![3], &[1.0, 1.0, 2.0]).unwrap();
        let attrs = complete(DEF.attrs, attrs([("mode", Attr::Text("linear".into()))])).unwrap();
        let out = evaluate_op(&DEF, &attrs, &[Some(x), None, Some(scales)]).unwrap();
        assert_eq!(out[0].to_f64(), [1.0, 1.5, 2.5, 3.0]);
    }

    #[test]
    fn an_axis_is_named_once() {
        let mut network = Network::new("");
        let shape = [1i64, 1, 2, 4].map(Into::into).to_vec();
        let x = network.add_input("x", DType::Float32, shape).unwrap();
        let scales = Array::from_f64(DType::Float32, vec![2], &[2.0, 2.0]).unwrap();
        let scales = network.add_constant("scales", scales);
        let axes = attrs([("axes", Attr::Ints(vec![-1, 3]))]);
        let added = network.add_layer("r", &DEF, axes, &[Some(x), None, Some(scales)]);
        assert!(added.unwrap_err().to_string().contains("twice"));
    }

    #[test]
    fn extents_scale_symbolically() {
        let mut network = Network::new("");
        let shape = ["n", "3", "h", "w"].map(|d| d.parse().unwrap()).to_vec();
        let x = network.add_input("x", DType::Float32, shape).unwrap();
        let scales = Array::from_f64(DType::Float32, vec![2], &[2.0, 0.5]).unwrap();
        let scales = network.add_constant("scales", scales);
        let axes = attrs([("axes", Attr::Ints(vec![2, 3]))]);
        let out = network
            .add_layer("r", &DEF, axes, &[Some(x), None, Some(scales)])
            .unwrap()[0];
        assert_eq!(network[out].ty.describe(), "float32[n, 3, 2*h, floordiv(w, 2)]");
    }
}
