//! ReduceLogSumExp.

use crate::error::Result;
use crate::network::dtype::DType;
use crate::network::op::{Decomposition, Lowering, OpDef};
use crate::network::ops::rewrite::Rewrite;
use crate::network::ops::{add, clip, exp, log, pointwise, reduce, reduce_max, reduce_sum, sub};
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// The logarithm of the sum of exponentials over axes (ONNX ReduceLogSumExp).
pub static DEF: OpDef = OpDef {
    name: "ReduceLogSumExp",
    doc: "The logarithm of the sum of exponentials over axes, without overflow (ONNX ReduceLogSumExp)",
    inputs: &["x"],
    attrs: reduce::ATTRS,
    infer: reduce::infer_float,
    evaluate: |e| {
        let log_sum = |v: &[f64]| {
            let greatest = v.iter().copied().fold(f64::NEG_INFINITY, pointwise::greater);
            let offset = if greatest.is_infinite() { 0.0 } else { greatest };
            v.iter().map(|v| (v - offset).exp()).sum::<f64>().ln() + offset
        };
        reduce::evaluate(e, log_sum, None)
    },
    lowering: Lowering::WIDE,
    decomposition: Decomposition::WithoutKernel(decompose),
    ..OpDef::PLAIN
};

fn decompose(network: &Network, id: LayerId) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let x = rewrite.input(0)?;
    let axes = reduce::axes(rewrite.attrs(), rewrite.ty(x))?;
    let dtype = rewrite.ty(x).dtype;
    let mut offset = x;
    if !axes.is_empty() {
        offset = rewrite.reduce(&reduce_max::DEF, x, &axes)?;
    }
    // An infinite offset would give inf - inf.
    let limit = if dtype == DType::Float16 { 6e4 } else { 3e38 };
    let bounds = [-limit, limit].map(|bound| rewrite.number(dtype, bound));
    let offset = rewrite.apply(&clip::DEF, &[offset, bounds[0], bounds[1]])?;
    let shifted = rewrite.apply(&sub::DEF, &[x, offset])?;
    let powers = rewrite.apply(&exp::DEF, &[shifted])?;
    let sum = rewrite.apply_same(&reduce_sum::DEF, powers)?;
    let log = rewrite.apply(&log::DEF, &[sum])?;
    let offset = rewrite.reshape(offset, rewrite.output(0).shape.clone())?;
    let result = rewrite.apply(&add::DEF, &[log, offset])?;
    rewrite.finish(result)
}
