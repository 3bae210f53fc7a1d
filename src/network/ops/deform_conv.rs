//! DeformConv.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attr, Attrs, Preset, Read, attr};
use crate::network::dim::Dim;
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType};
use crate::network::ops::spatial::{self, Window};
use crate::network::ops::{conv, pointwise, strides};

/// A convolution whose taps lie where offsets say (ONNX DeformConv).
pub static DEF: OpDef = OpDef {
    name: "DeformConv",
    doc: "A convolution of x [N, C, H, W] with weights [M, C/group, kH, kW] whose taps are moved by offset and scaled by \
          mask, and read between elements (ONNX DeformConv)",
    inputs: &["x", "w", "offset", "b?", "mask?"],
    attrs: &[
        spatial::DILATIONS,
        attr("group", Preset::Int(1), "groups of channels"),
        attr(
            "offset_group",
            Preset::Int(1),
            "groups of channels with offsets of their own",
        ),
        spatial::PADS,
        spatial::STRIDES,
    ],
    infer,
    evaluate,
    lowering: Lowering::BOUNDED,
    spatial: true,
    multiplications: Some(spatial::multiplications),
    ..OpDef::PLAIN
};

fn window(attrs: &Attrs, weights: &[Dim]) -> Result<Window> {
    let mut attrs = attrs.clone();
    attrs.insert("auto_pad".into(), Attr::Text("NOTSET".into()));
    conv::window(&attrs, weights)
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (x, w, offset) = (infer.input(0)?, infer.input(1)?, infer.input(2)?);
    conv::check_operands(x, w, "[M, C/group, kH, kW]")?;
    let (group, offsets) = (infer.attrs.int("group"), infer.attrs.int("offset_group"));
    if x.rank() != 4 || group < 1 || offsets < 1 {
        return Err(Error::unsupported("DeformConv works on images")
            .expected("x [N, C, H, W], and positive groups")
            .got(format!("{}, group {group}, offset_group {offsets}", x.describe())));
    }
    infer.require_equal(
        &(w.shape[1].clone() * group.into()),
        &x.shape[1],
        "weights and input differ in channels",
    )?;
    conv::check_groups(infer, &w.shape[0], group)?;
    conv::check_groups(infer, &x.shape[1], offsets)?;
    let window = window(infer.attrs, &w.shape)?;
    let [height, width] = [0, 1].map(|a| window.output(a, &x.shape[a + 2], false));
    let taps = window.kernel.iter().product::<i64>() * offsets;
    let fits = |what: &str, given: &TensorType, shape: &[Dim]| -> Result<()> {
        pointwise::same_dtype(&[x, given])?;
        if given.rank() != shape.len() {
            return Err(Error::shape(format!("{what} does not fit"))
                .expected(format!("{} dimensions", shape.len()))
                .got(given.describe()));
        }
        let pairs = given.shape.iter().zip(shape);
        pairs.into_iter().try_for_each(|(a, b)| infer.require_equal(a, b, what))
    };
    let n = x.shape[0].clone();
    fits(
        "offset",
        offset,
        &[n.clone(), (2 * taps).into(), height.clone(), width.clone()],
    )?;
    if let Some(bias) = infer.optional(3) {
        fits("the bias", bias, &w.shape[..1])?;
    }
    if let Some(mask) = infer.optional(4) {
        fits("mask", mask, &[n.clone(), taps.into(), height.clone(), width.clone()])?;
    }
    Ok(vec![TensorType::new(
        x.dtype,
        vec![n, w.shape[0].clone(), height, width],
    )])
}

/// Four neighbours of a place in a plane; what is outside is zero.
fn read(plane: &[f64], [height, width]: [usize; 2], [y, x]: [f64; 2]) -> f64 {
    let (top, left) = (y.floor(), x.floor());
    let mut sum = 0.0;
    for (row, wy) in [(top, 1.0 - (y - top)), (top + 1.0, y - top)] {
        for (column, wx) in [(left, 1.0 - (x - left)), (left + 1.0, x - left)] {
            let inside = row >= 0.0 && column >= 0.0 && row < height as f64 && column < width as f64;
            if inside && wy * wx != 0.0 {
                sum += wy * wx * plane[row as usize * width + column as usize];
            }
        }
    }
    sum
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (x, w, shape) = (e.input(0)?, e.input(1)?, &e.outputs[0].1);
    let dims: Vec<Dim> = w.shape().iter().map(|&d| d.into()).collect();
    let window = window(e.attrs, &dims)?;
    let [group, offsets] = ["group", "offset_group"].map(|name| e.attrs.int(name) as usize);
    let (channels, sizes) = (x.shape()[1], [x.shape()[2], x.shape()[3]]);
    let (per_offset, per_group) = (channels / offsets, w.shape()[1]);
    let [kernel_h, kernel_w] = [w.shape()[2], w.shape()[3]];
    let (taps, places) = (kernel_h * kernel_w, shape[2] * shape[3]);
    let (xs, ws, offset) = (x.to_f64(), w.to_f64(), e.input(2)?.to_f64());
    let (bias, mask) = (e.optional(3).map(Array::to_f64), e.optional(4).map(Array::to_f64));
    let planes = strides(x.shape());
    let mut out = vec![0.0; shape.iter().product()];
    for n in 0..shape[0] {
        for c in 0..channels {
            let plane = &xs[n * planes[0] + c * planes[1]..];
            let owner = n * offsets + c / per_offset;
            let outputs = shape[1] / group;
            let first = c / per_group * outputs;
            for tap in 0..taps {
                let kernel = [tap / kernel_w, tap % kernel_w];
                for place in 0..places {
                    let at = [place / shape[3], place % shape[3]];
                    let moved = |a: usize| {
                        let fixed = (at[a] as i64 * window.strides[a] - window.begin[a]) as f64;
                        let tap_at = (kernel[a] as i64 * window.dilations[a]) as f64;
                        fixed + tap_at + offset[((owner * taps + tap) * 2 + a) * places + place]
                    };
                    let scale = mask.as_ref().map_or(1.0, |m| m[(owner * taps + tap) * places + place]);
                    let value = scale * read(plane, sizes, [moved(0), moved(1)]);
                    for m in first..first + outputs {
                        let weight = ws[(m * per_group + c % per_group) * taps + tap];
                        out[(n * shape[1] + m) * places + place] += weight * value;
                    }
                }
            }
        }
    }
    if let Some(bias) = bias {
        let lines = out.chunks_mut(places.max(1)).enumerate();
        lines.for_each(|(i, line)| line.iter_mut().for_each(|v| *v += bias[i % shape[1]]));
    }
    e.output(&out)
}
