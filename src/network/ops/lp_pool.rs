//! LpPool.

use crate::error::{Error, Result};
use crate::network::attr::{Preset, Read, attr};
use crate::network::op::{Infer, Lowering, OpDef, TensorType};
use crate::network::ops::{pool, spatial};

/// The p-norm of each window (ONNX LpPool).
pub static DEF: OpDef = OpDef {
    name: "LpPool",
    doc: "sum(|x|^p)^(1/p) over each window of x [N, C, spatial...] (ONNX LpPool)",
    inputs: &["x"],
    attrs: &[
        pool::KERNEL_SHAPE,
        spatial::STRIDES,
        spatial::DILATIONS,
        spatial::PADS,
        spatial::AUTO_PAD,
        pool::CEIL_MODE,
        attr("p", Preset::Int(2), "which norm"),
    ],
    infer,
    evaluate: |e| {
        pool::evaluate(e, |attrs, v, _| {
            let p = attrs.int("p") as f64;
            v.iter().map(|v| v.abs().powf(p)).sum::<f64>().powf(1.0 / p)
        })
    },
    lowering: Lowering::BEARS,
    spatial: true,
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let x = infer.input(0)?;
    if !x.dtype.is_float() || infer.attrs.int("p") < 1 {
        return Err(
            Error::dtype("a norm needs floating-point numbers and a positive p").got(format!(
                "{} and {}",
                x.dtype.name(),
                infer.attrs.int("p")
            )),
        );
    }
    pool::infer(infer)
}
