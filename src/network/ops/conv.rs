//! Conv.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attrs, Preset, Read, attr};
use crate::network::dim::Dim;
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType};
use crate::network::ops::spatial::{self, Window};
use crate::network::ops::{indexing, strides, tf32};

/// Convolution (cross-correlation) over 1 to 3 spatial axes (ONNX Conv).
pub static DEF: OpDef = OpDef {
    name: "Conv",
    doc: "Cross-correlation: x [N, C, spatial...], w [M, C/group, kernel...], b [M] (ONNX Conv)",
    inputs: &["x", "w", "b?"],
    attrs: &[
        attr("group", Preset::Int(1), "number of groups of channels"),
        spatial::STRIDES,
        spatial::DILATIONS,
        spatial::PADS,
        spatial::AUTO_PAD,
        tf32::TF32,
    ],
    infer,
    evaluate,
    lowering: Lowering::BEARS,
    spatial: true,
    multiplications: Some(spatial::multiplications),
    ..OpDef::PLAIN
};

/// The window of a Conv layer whose weights have this shape.
pub fn window(attrs: &Attrs, weights: &[Dim]) -> Result<Window> {
    let kernel = weights.iter().skip(2).map(Dim::as_const).collect::<Option<Vec<_>>>();
    Window::read(
        attrs,
        kernel.ok_or_else(|| Error::unsupported("the kernel's extent is not known at build time"))?,
    )
}

/// Checks ranks and dtypes of input and weights.
pub(super) fn check_operands(x: &TensorType, w: &TensorType, weights: &str) -> Result<()> {
    if x.rank() < 3 || x.rank() != w.rank() {
        return Err(Error::shape("input and weights differ in rank, or are below 3")
            .expected(format!("[N, C, spatial...] and {weights}"))
            .got(format!("{} and {}", x.describe(), w.describe())));
    }
    if x.dtype != w.dtype || !x.dtype.is_float() {
        return Err(Error::dtype("input and weights must have one floating-point dtype")
            .expected(x.dtype.name())
            .got(w.dtype.name()));
    }
    Ok(())
}

/// The number of groups, which channels of the input and of the weights must divide into.
///
/// # Errors
/// If it is no number of groups.
pub(super) fn groups(infer: &Infer) -> Result<i64> {
    match infer.attrs.int("group") {
        group @ 1.. => Ok(group),
        group => Err(Error::invalid("group is no number of groups")
            .expected("1 or more")
            .got(group.to_string())),
    }
}

/// Checks that channels divide into groups.
pub(super) fn check_groups(infer: &Infer, channels: &Dim, group: i64) -> Result<()> {
    let rest = channels.modulo(&group.into());
    infer
        .require_equal(&rest, &Dim::default(), "channels divide into the groups")
        .map_err(|e| e.hint(format!("there are {channels} channels and {group} groups")))
}

/// Checks that the bias, if there is one, has one number per channel of the output.
pub(super) fn check_bias(infer: &Infer, channels: &Dim) -> Result<()> {
    let (x, Some(b)) = (infer.input(0)?, infer.optional(2)) else {
        return Ok(());
    };
    if b.dtype == x.dtype && b.shape.as_slice() == std::slice::from_ref(channels) {
        return Ok(());
    }
    let want = format!("{}[{channels}]", x.dtype);
    Err(Error::shape("the bias does not fit").expected(want).got(b.describe()))
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (x, w) = (infer.input(0)?, infer.input(1)?);
    check_operands(x, w, "[M, C/group, kernel...]")?;
    let group = groups(infer)?;
    infer.require_equal(
        &(w.shape[1].clone() * group.into()),
        &x.shape[1],
        "weights and input differ in channels",
    )?;
    check_groups(infer, &w.shape[0], group)?;
    check_bias(infer, &w.shape[0])?;
    let window = window(infer.attrs, &w.shape)?;
    let mut shape = vec![x.shape[0].clone(), w.shape[0].clone()];
    for (axis, size) in x.shape[2..].iter().enumerate() {
        let out = window.output(axis, size, false);
        if out.as_const().is_some_and(|v| v < 0) {
            return Err(Error::shape("the kernel is larger than the padded input").got(x.describe()));
        }
        shape.push(out);
    }
    Ok(vec![TensorType::new(x.dtype, shape)])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (x, w) = (e.input(0)?, e.input(1)?);
    let shape = &e.outputs[0].1;
    let kernel: Vec<Dim> = w.shape().iter().map(|&d| d.into()).collect();
    let window = window(e.attrs, &kernel)?;
    let group = e.attrs.int("group") as usize;
    let (channels, per_group) = (w.shape()[1], shape[1] / group);
    let taps = indexing::positions(&w.shape()[2..]);
    let (xs, ws) = (x.to_f64(), w.to_f64());
    let bias = e.optional(2).map(Array::to_f64);
    let (x_strides, positions) = (strides(x.shape()), indexing::positions(&shape[2..]));
    let pads: Vec<i64> = (0..shape.len() - 2)
        .map(|a| window.padding(a, x.shape()[a + 2] as i64, shape[a + 2] as i64).0)
        .collect();
    let mut out = Vec::with_capacity(shape.iter().product());
    for n in 0..shape[0] {
        for m in 0..shape[1] {
            let first = (m / per_group) * channels;
            for position in &positions {
                let mut sum = bias.as_ref().map_or(0.0, |b| b[m]);
                for (tap, offsets) in taps.iter().enumerate() {
                    let place = |a: usize| {
                        position[a] as i64 * window.strides[a] - pads[a] + offsets[a] as i64 * window.dilations[a]
                    };
                    let Some(at) = (0..pads.len()).try_fold(0, |at, a| {
                        let i = usize::try_from(place(a)).ok().filter(|&i| i < x.shape()[a + 2])?;
                        Some(at + i * x_strides[a + 2])
                    }) else {
                        continue;
                    };
                    for c in 0..channels {
                        let weight = ws[(m * channels + c) * taps.len() + tap];
                        sum += weight * xs[n * x_strides[0] + (first + c) * x_strides[1] + at];
                    }
                }
                out.push(sum);
            }
        }
    }
    e.output(&out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Network;
    use crate::network::attr::{Attr, attrs};
    use crate::network::dtype::DType;
    use crate::network::ops::find;

    #[test]
    fn a_convolution_has_one_group_at_least() {
        for op in ["Conv", "ConvTranspose", "ConvInteger", "DeformConv"] {
            for group in [0, -1, i64::MIN] {
                let mut network = Network::new("");
                let dtype = if op == "ConvInteger" {
                    DType::UInt8
                } else {
                    DType::Float32
                };
                let mut input = |name: &str, shape: [i64; 4]| {
                    let shape = shape.map(Dim::from).to_vec();
                    Some(network.add_input(name, dtype, shape).unwrap())
                };
                let mut inputs = vec![input("x", [1, 4, 8, 8]), input("w", [4, 4, 1, 1])];
                inputs.extend((op == "DeformConv").then(|| input("offset", [1, 2, 8, 8])));
                let given = attrs([("group", Attr::Int(group))]);
                let refused = network.add_layer("c", find(op).unwrap(), given, &inputs).unwrap_err();
                assert!(refused.to_string().contains("group"), "{op}: {refused}");
            }
        }
    }
}
