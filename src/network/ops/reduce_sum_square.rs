//! ReduceSumSquare.

use crate::error::Result;
use crate::network::op::{Decomposition, Lowering, OpDef, Uint64};
use crate::network::ops::rewrite::Rewrite;
use crate::network::ops::{mul, reduce, reduce_sum};
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// The sum of squares over axes (ONNX ReduceSumSquare).
pub static DEF: OpDef = OpDef {
    name: "ReduceSumSquare",
    doc: "The sum of squares over axes (ONNX ReduceSumSquare)",
    inputs: &["x"],
    attrs: reduce::ATTRS,
    infer: reduce::infer,
    evaluate: |e| {
        reduce::evaluate(
            e,
            |v| reduce::sum(v.iter().map(|v| v * v)),
            Some(|v| v.iter().fold(0, |sum, &v| sum.wrapping_add(v.wrapping_mul(v)))),
        )
    },
    lowering: Lowering::WIDE,
    uint64: Uint64::Exact,
    decomposition: Decomposition::WithoutKernel(decompose),
    ..OpDef::PLAIN
};

fn decompose(network: &Network, id: LayerId) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let x = rewrite.input(0)?;
    let x = rewrite.apply(&mul::DEF, &[x, x])?;
    let result = rewrite.apply_same(&reduce_sum::DEF, x)?;
    rewrite.finish(result)
}
