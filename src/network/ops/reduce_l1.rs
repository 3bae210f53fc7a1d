//! ReduceL1.

use crate::error::Result;
use crate::network::op::{Decomposition, Lowering, OpDef};
use crate::network::ops::rewrite::Rewrite;
use crate::network::ops::{abs, reduce, reduce_sum};
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// The sum of absolute values over axes (ONNX ReduceL1).
pub static DEF: OpDef = OpDef {
    name: "ReduceL1",
    doc: "The sum of absolute values over axes (ONNX ReduceL1)",
    inputs: &["x"],
    attrs: reduce::ATTRS,
    infer: reduce::infer,
    evaluate: |e| {
        reduce::evaluate(
            e,
            |v| reduce::sum(v.iter().map(|v| v.abs())),
            Some(|v| v.iter().fold(0, |sum, &v| sum.wrapping_add(v.wrapping_abs()))),
        )
    },
    lowering: Lowering::WIDE,
    decomposition: Decomposition::WithoutKernel(decompose),
    ..OpDef::PLAIN
};

fn decompose(network: &Network, id: LayerId) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let x = rewrite.input(0)?;
    let x = rewrite.apply(&abs::DEF, &[x])?;
    let result = rewrite.apply_same(&reduce_sum::DEF, x)?;
    rewrite.finish(result)
}
