//! AveragePool.

use crate::error::{Error, Result};
use crate::network::attr::{Preset, Read, attr};
use crate::network::least::Least;
use crate::network::op::{Infer, Lowering, OpDef, TensorType};
use crate::network::ops::{pool, spatial};

/// The mean of each window (ONNX AveragePool).
pub static DEF: OpDef = OpDef {
    name: "AveragePool",
    doc: "The mean of the elements of each window of x [N, C, spatial...] (ONNX AveragePool)",
    inputs: &["x"],
    attrs: &[
        pool::KERNEL_SHAPE,
        spatial::STRIDES,
        spatial::DILATIONS,
        spatial::PADS,
        spatial::AUTO_PAD,
        pool::CEIL_MODE,
        attr(
            "count_include_pad",
            Preset::Int(0),
            "the mean counts elements of the padding, as zeros",
        ),
    ],
    infer,
    evaluate: |e| {
        pool::evaluate(e, |attrs, v, padded| {
            let count = if attrs.flag("count_include_pad") {
                padded
            } else {
                v.len()
            };
            v.iter().sum::<f64>() / count as f64
        })
    },
    lowering: Lowering::BEARS,
    spatial: true,
    least: Least::First,
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let x = infer.input(0)?;
    if !x.dtype.is_float() {
        return Err(Error::dtype("the op averages floating-point tensors").got(x.dtype.name()));
    }
    pool::infer(infer)
}
