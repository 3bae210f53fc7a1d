//! LRN.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType};
use crate::network::ops::{normalization, reduce};

/// Local response normalisation across channels (ONNX LRN).
pub static DEF: OpDef = OpDef {
    name: "LRN",
    doc: "x / (bias + alpha / size * sum(x^2 over size channels around))^beta, for x [N, C, ...] (ONNX LRN)",
    inputs: &["x"],
    attrs: &[
        attr("alpha", Preset::Float(1e-4), "scale of the sum"),
        attr("beta", Preset::Float(0.75), "exponent"),
        attr("bias", Preset::Float(1.0), "added to the scaled sum"),
        attr("size", Preset::RequiredInt, "number of channels in a sum"),
    ],
    infer,
    evaluate,
    lowering: Lowering::BEARS,
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let x = normalization::same_float(infer)?;
    x.axis(1)?;
    if infer.attrs.int("size") < 1 {
        return Err(Error::invalid("attribute \"size\" must be positive").got(infer.attrs.int("size").to_string()));
    }
    Ok(vec![x])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let [alpha, beta, bias] = ["alpha", "beta", "bias"].map(|name| e.attrs.float(name));
    let size = e.attrs.int("size") as usize;
    let (before, after) = ((size - 1) / 2, size / 2);
    reduce::map(e, &[1], |channels| {
        let squares: Vec<_> = channels.iter().map(|v| v * v).collect();
        for (c, v) in channels.iter_mut().enumerate() {
            let around = c.saturating_sub(before)..(c + after + 1).min(squares.len());
            let sum: f64 = squares[around].iter().sum();
            *v /= (bias + alpha / size as f64 * sum).powf(beta);
        }
    })
}
