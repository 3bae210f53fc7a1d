//! MaxRoiPool.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType};
use crate::network::ops::{indexing, pointwise};

/// The greatest elements in the bins of regions (ONNX MaxRoiPool).
pub static DEF: OpDef = OpDef {
    name: "MaxRoiPool",
    doc: "Regions [R, 5] (image, x1, y1, x2, y2) of x [N, C, H, W], their numbers rounded, as bins of which each has its \
          greatest element, 0 where it is empty (ONNX MaxRoiPool)",
    inputs: &["x", "rois"],
    attrs: &[
        attr(
            "pooled_shape",
            Preset::RequiredInts,
            "bins along the height and the width",
        ),
        attr(
            "spatial_scale",
            Preset::Float(1.0),
            "what turns the regions' numbers into places of x",
        ),
    ],
    infer,
    evaluate,
    lowering: Lowering::BOUNDED,
    spatial: true,
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (x, rois, bins) = (infer.input(0)?, infer.input(1)?, infer.attrs.ints("pooled_shape"));
    pointwise::same_dtype(&[x, rois])?;
    let fits = x.rank() == 4 && x.dtype.is_float() && rois.rank() == 2 && rois.shape[1].is(5);
    if !fits || bins.len() != 2 || bins.iter().any(|&b| b < 1) {
        return Err(Error::shape("the images, the regions or pooled_shape do not fit")
            .expected("floating-point [N, C, H, W] and [R, 5], and two positive integers")
            .got(format!("{}, {} and {bins:?}", x.describe(), rois.describe())));
    }
    let [h, w] = [bins[0], bins[1]].map(Into::into);
    let shape = vec![rois.shape[0].clone(), x.shape[1].clone(), h, w];
    Ok(vec![TensorType::new(x.dtype, shape)])
}

/// The elements of a bin along one side of a region.
fn bin(from: f64, to: f64, scale: f64, [i, bins, size]: [usize; 3]) -> std::ops::Range<usize> {
    let [start, end] = [from, to].map(|v| (v * scale).round());
    let each = (end - start + 1.0).max(1.0) / bins as f64;
    let inside = |v: f64| (v + start).clamp(0.0, size as f64) as usize;
    inside((i as f64 * each).floor())..inside(((i + 1) as f64 * each).ceil())
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (x, rois, shape) = (e.input(0)?, e.input(1)?.to_f64(), &e.outputs[0].1);
    let [n, channels, height, width] = [0, 1, 2, 3].map(|a| x.shape()[a]);
    let (data, scale) = (x.to_f64(), e.attrs.float("spatial_scale"));
    let mut out = Vec::with_capacity(shape.iter().product());
    for roi in rois.chunks(5) {
        let image = indexing::index(roi[0] as i64, n)?;
        for c in 0..channels {
            let plane = &data[(image * channels + c) * height * width..][..height * width];
            for i in 0..shape[2] {
                let rows = bin(roi[2], roi[4], scale, [i, shape[2], height]);
                for j in 0..shape[3] {
                    let columns = bin(roi[1], roi[3], scale, [j, shape[3], width]);
                    let elements = rows
                        .clone()
                        .flat_map(|y| columns.clone().map(move |x| plane[y * width + x]));
                    out.push(elements.reduce(pointwise::greater).unwrap_or(0.0));
                }
            }
        }
    }
    e.output(&out)
}
