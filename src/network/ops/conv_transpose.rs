//! ConvTranspose.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attrs, Preset, Read, attr};
use crate::network::dim::Dim;
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, Sizes, TensorType};
use crate::network::ops::spatial::{self, Window};
use crate::network::ops::{conv, indexing, strides, tf32};

/// Transposed convolution over 1 to 3 spatial axes (ONNX ConvTranspose).
pub static DEF: OpDef = OpDef {
    name: "ConvTranspose",
    doc: "The transpose of a Conv: x [N, C, spatial...], w [C, M/group, kernel...], b [M] (ONNX ConvTranspose)",
    inputs: &["x", "w", "b?"],
    attrs: &[
        attr("group", Preset::Int(1), "number of groups of channels"),
        spatial::STRIDES,
        spatial::DILATIONS,
        spatial::PADS,
        spatial::AUTO_PAD,
        attr(
            "output_padding",
            Preset::Ints(&[]),
            "extent added to the end of each spatial axis; empty: 0",
        ),
        attr(
            "output_shape",
            Preset::Ints(&[]),
            "spatial extent of the output, from which the padding follows; empty: it follows from the padding",
        ),
        tf32::TF32,
    ],
    infer,
    evaluate,
    lowering: Lowering::BEARS,
    spatial: true,
    multiplications: Some(multiplications),
    ..OpDef::PLAIN
};

/// Each element of the input meets the weights [C, M/group, kernel...] of its channel.
fn multiplications(sizes: &Sizes) -> Option<f64> {
    Some(sizes.product(0, 0)? * sizes.product(1, 1)?)
}

/// The window of a ConvTranspose layer, and along each spatial axis the extent of the output for an input of `sizes`
/// and what is cut off before it.
///
/// # Errors
/// If the attributes do not fit.
pub fn geometry(attrs: &Attrs, weights: &[Dim], sizes: &[Dim]) -> Result<(Window, Vec<Dim>, Vec<Dim>)> {
    let window = conv::window(attrs, weights)?;
    let rank = window.kernel.len();
    let extra = spatial::list(attrs, "output_padding", rank, 0, 0)?;
    let wanted = spatial::list(attrs, "output_shape", rank, 0, 0)?;
    let (mut extents, mut cuts) = (vec![], vec![]);
    for axis in 0..rank {
        let stride = Dim::from(window.strides[axis]);
        let steps = sizes[axis].clone() * stride.clone() - stride.clone();
        let full = steps + (window.reach(axis) + extra[axis]).into();
        let extent = match attrs.text("auto_pad") {
            _ if !attrs.ints("output_shape").is_empty() => Dim::from(wanted[axis]),
            "SAME_UPPER" | "SAME_LOWER" => sizes[axis].clone() * stride,
            _ => {
                extents.push(full - (window.begin[axis] + window.end[axis]).into());
                cuts.push(window.begin[axis].into());
                continue;
            }
        };
        let cut = full - extent.clone();
        let two = Dim::from(2i64);
        cuts.push(match attrs.text("auto_pad") {
            "SAME_UPPER" => cut.floordiv(&two),
            _ => cut.ceildiv(&two),
        });
        extents.push(extent);
    }
    Ok((window, extents, cuts))
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (x, w) = (infer.input(0)?, infer.input(1)?);
    conv::check_operands(x, w, "[C, M/group, kernel...]")?;
    infer.require_equal(&w.shape[0], &x.shape[1], "weights and input differ in channels")?;
    let group = conv::groups(infer)?;
    conv::check_groups(infer, &w.shape[0], group)?;
    let channels = w.shape[1].clone() * group.into();
    conv::check_bias(infer, &channels)?;
    let (_, extents, _) = geometry(infer.attrs, &w.shape, &x.shape[2..])?;
    if extents.iter().any(|d| d.as_const().is_some_and(|v| v < 0)) {
        return Err(Error::shape("the padding cuts off more than there is").got(x.describe()));
    }
    let shape = [&[x.shape[0].clone(), channels], &extents[..]].concat();
    Ok(vec![TensorType::new(x.dtype, shape)])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (x, w) = (e.input(0)?, e.input(1)?);
    let shape = &e.outputs[0].1;
    let dims = |shape: &[usize]| shape.iter().map(|&d| Dim::from(d)).collect::<Vec<_>>();
    let (window, _, cuts) = geometry(e.attrs, &dims(w.shape()), &dims(&x.shape()[2..]))?;
    let cuts: Vec<_> = cuts.iter().map(|d| d.as_const().unwrap_or(0)).collect();
    let group = e.attrs.int("group") as usize;
    let (channels, per_group) = (x.shape()[1], w.shape()[1]);
    let (xs, ws, out_strides) = (x.to_f64(), w.to_f64(), strides(shape));
    let taps = indexing::positions(&w.shape()[2..]);
    let positions = indexing::positions(&x.shape()[2..]);
    let mut out = vec![0.0; shape.iter().product()];
    if let Some(bias) = e.optional(2).map(Array::to_f64) {
        let inner = out_strides[1].max(1);
        out.iter_mut()
            .enumerate()
            .for_each(|(i, v)| *v = bias[i / inner % shape[1]]);
    }
    for (at, &value) in xs.iter().enumerate() {
        let (plane, position) = (at / positions.len(), &positions[at % positions.len()]);
        let (n, c) = (plane / channels, plane % channels);
        for (tap, offsets) in taps.iter().enumerate() {
            let place =
                |a: usize| position[a] as i64 * window.strides[a] + offsets[a] as i64 * window.dilations[a] - cuts[a];
            let Some(target) = (0..cuts.len()).try_fold(0, |sum, a| {
                let i = usize::try_from(place(a)).ok().filter(|&i| i < shape[a + 2])?;
                Some(sum + i * out_strides[a + 2])
            }) else {
                continue;
            };
            let first = c / (channels / group) * per_group;
            for m in 0..per_group {
                let weight = ws[(c * per_group + m) * taps.len() + tap];
                out[n * out_strides[0] + (first + m) * out_strides[1] + target] += value * weight;
            }
        }
    }
    e.output(&out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, complete};

    #[test]
    fn extents_follow_from_padding_and_back() {
        let weights = [8, 4, 3i64].map(Dim::from);
        let of = |pairs: &[(&str, Attr)], size: Dim| {
            let given = pairs.iter().map(|(n, v)| (n.to_string(), v.clone())).collect();
            let (_, extents, cuts) = geometry(&complete(DEF.attrs, given).unwrap(), &weights, &[size]).unwrap();
            (extents[0].to_string(), cuts[0].to_string())
        };
        let stride = ("strides", Attr::Ints(vec![2]));
        let h = Dim::symbol("h");
        let pads = [
            stride.clone(),
            ("pads", Attr::Ints(vec![1, 1])),
            ("output_padding", Attr::Ints(vec![1])),
        ];
        assert_eq!(of(&pads, h.clone()), ("2*h".into(), "1".into()));
        let same = [stride.clone(), ("auto_pad", Attr::Text("SAME_UPPER".into()))];
        assert_eq!(of(&same, h), ("2*h".into(), "0".into()));
        let shaped = [stride, ("output_shape", Attr::Ints(vec![8]))];
        assert_eq!(of(&shaped, 4i64.into()), ("8".into(), "1".into()));
    }
}
