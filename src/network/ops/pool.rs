//! What pooling ops share: attributes, the shape rule, and the walk over windows.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attr, AttrDef, Attrs, Preset, Read, attr, attrs, complete};
use crate::network::op::{Evaluate, Infer, OpDef, TensorType};
use crate::network::ops::rewrite::Rewrite;
use crate::network::ops::spatial::Window;
use crate::network::ops::{indexing, strides};
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// `kernel_shape`.
pub const KERNEL_SHAPE: AttrDef = attr(
    "kernel_shape",
    Preset::RequiredInts,
    "extent of the window along each spatial axis",
);
/// `ceil_mode`.
pub const CEIL_MODE: AttrDef = attr(
    "ceil_mode",
    Preset::Int(0),
    "also take a last window that lies partly outside, if it starts inside",
);

/// No window has more taps: more is a mistake, and a list of them would fill the memory.
const MOST_TAPS: i64 = 1 << 22;

/// The window of a pooling layer.
///
/// # Errors
/// If an attribute does not fit, or the window is larger than any that is meant.
pub fn window(attrs: &Attrs) -> Result<Window> {
    let window = Window::read(attrs, attrs.ints("kernel_shape").to_vec())?;
    let around = |(axis, pad): (usize, &i64)| *pad >= window.reach(axis % window.kernel.len());
    if window.begin.iter().chain(&window.end).enumerate().any(around) {
        return Err(
            Error::shape("the padding is as large as the window, which would lie in nothing else")
                .expected(format!("less than the window, {:?}, on each side", window.kernel))
                .got(format!("pads {:?}", [&window.begin[..], &window.end].concat()))
                .hint("put a Pad with the value that is meant before it"),
        );
    }
    let taps = window.kernel.iter().try_fold(1i64, |taps, &k| taps.checked_mul(k));
    match taps.filter(|&taps| taps <= MOST_TAPS) {
        Some(_) => Ok(window),
        None => Err(Error::unsupported("the window is too large")
            .expected(format!("at most {MOST_TAPS} elements"))
            .got(format!("kernel_shape {:?}", window.kernel))),
    }
}

/// The rule of pooling ops.
pub fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (x, window) = (infer.input(0)?, window(infer.attrs)?);
    if window.kernel.is_empty() || x.rank() != window.kernel.len() + 2 {
        return Err(
            Error::shape("input and kernel_shape differ in rank, or there is no spatial dimension")
                .expected(format!("[N, C, and {} spatial dimensions]", window.kernel.len().max(1)))
                .got(x.describe()),
        );
    }
    let mut shape = x.shape[..2].to_vec();
    for (axis, size) in x.shape[2..].iter().enumerate() {
        let out = window.output(axis, size, infer.attrs.flag("ceil_mode"));
        if out.as_const().is_some_and(|v| v < 0) {
            return Err(Error::shape("the kernel is larger than the padded input").got(x.describe()));
        }
        shape.push(out);
    }
    Ok(vec![TensorType::new(x.dtype, shape)])
}

/// The reference of pooling ops: combines the elements in each window; the second number counts padding too.
pub fn evaluate(e: &Evaluate, combine: fn(&Attrs, &[f64], usize) -> f64) -> Result<Vec<Array>> {
    let (x, window) = (e.input(0)?, window(e.attrs)?);
    let shape = &e.outputs[0].1;
    let (sizes, strides, data) = (&x.shape()[2..], strides(x.shape()), x.to_f64());
    let pads: Vec<_> = (0..sizes.len())
        .map(|a| window.padding(a, sizes[a] as i64, shape[a + 2] as i64))
        .collect();
    let kernel: Vec<_> = window.kernel.iter().map(|&k| k as usize).collect();
    let taps = indexing::positions(&kernel);
    let mut out = vec![];
    for plane in 0..shape[0] * shape[1] {
        for position in indexing::positions(&shape[2..]) {
            let (mut values, mut padded) = (vec![], 0);
            for tap in &taps {
                let place =
                    |a: usize| position[a] as i64 * window.strides[a] - pads[a].0 + tap[a] as i64 * window.dilations[a];
                padded += (0..pads.len()).all(|a| place(a) < sizes[a] as i64 + pads[a].1) as usize;
                let inside = (0..pads.len()).all(|a| (0..sizes[a] as i64).contains(&place(a)));
                if inside {
                    let at: usize = (0..pads.len()).map(|a| place(a) as usize * strides[a + 2]).sum();
                    values.push(data[plane * strides[1] + at]);
                }
            }
            out.push(combine(e.attrs, &values, padded));
        }
    }
    e.output(&out)
}

/// The rule of global pooling.
pub fn infer_global(infer: &Infer) -> Result<Vec<TensorType>> {
    let x = infer.input(0)?;
    if x.rank() < 3 || !x.dtype.is_float() {
        return Err(Error::shape("the input can't be pooled")
            .expected("floating-point numbers [N, C, spatial...]")
            .got(x.describe()));
    }
    let shape = x.shape.iter().enumerate();
    let shape: Vec<_> = shape
        .map(|(a, d)| if a < 2 { d.clone() } else { 1i64.into() })
        .collect();
    Ok(vec![TensorType::new(x.dtype, shape)])
}

fn over_spatial(rank: usize) -> Attrs {
    attrs([("axes", Attr::Ints((2..rank as i64).collect()))])
}

/// The reference of global pooling, which is a reduction.
pub fn evaluate_global(reduction: &OpDef, e: &Evaluate) -> Result<Vec<Array>> {
    let attrs = complete(reduction.attrs, over_spatial(e.input(0)?.shape().len()))?;
    (reduction.evaluate)(&Evaluate { attrs: &attrs, ..*e })
}

/// Writes a global pooling as a reduction.
pub fn decompose_global<'n>(reduction: &'static OpDef, network: &'n Network, id: LayerId) -> Result<Patch<'n>> {
    let mut rewrite = Rewrite::of(network, id);
    let x = rewrite.input(0)?;
    let axes: Vec<_> = (2..rewrite.ty(x).rank()).collect();
    let result = rewrite.reduce(reduction, x, &axes)?;
    rewrite.finish(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::dtype::DType;
    use crate::network::ops::find;

    #[test]
    fn a_window_has_a_dimension() {
        let mut network = Network::new("");
        let x = network.add_input("x", DType::Float32, vec![1i64.into(), 3i64.into()]);
        let given = attrs([("kernel_shape", Attr::Ints(vec![]))]);
        let added = network.add_layer("p", find("MaxPool").unwrap(), given, &[Some(x.unwrap())]);
        assert!(added.unwrap_err().to_string().contains("no spatial dimension"));
    }

    #[test]
    fn a_window_lies_in_more_than_padding() {
        let refused = |op: &str, pads: [i64; 4], dilation: i64| {
            let mut network = Network::new("");
            let shape = [1i64, 1, 8, 8].map(Into::into).to_vec();
            let x = network.add_input("x", DType::Float32, shape).unwrap();
            let ints = |values: &[i64]| Attr::Ints(values.to_vec());
            let given = attrs([
                ("kernel_shape", ints(&[2, 3])),
                ("dilations", ints(&[dilation; 2])),
                ("pads", ints(&pads)),
            ]);
            let added = network.add_layer("p", find(op).unwrap(), given, &[Some(x)]);
            added.err().map(|e| e.to_string())
        };
        for op in ["MaxPool", "AveragePool", "LpPool"] {
            assert_eq!(refused(op, [1, 2, 1, 2], 1), None);
            assert_eq!(refused(op, [2, 4, 2, 4], 2), None);
            for pads in [[2, 0, 0, 0], [0, 0, 2, 0], [0, 3, 0, 0], [0, 0, 0, 3]] {
                let message = refused(op, pads, 1).unwrap_or_default();
                assert!(message.contains("as large as the window"), "{op} {pads:?}: {message}");
            }
        }
    }
}
