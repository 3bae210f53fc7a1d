//! ReduceL2.

use crate::error::Result;
use crate::network::op::{Decomposition, Lowering, OpDef};
use crate::network::ops::rewrite::Rewrite;
use crate::network::ops::{mul, reduce, reduce_sum, sqrt};
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// The square root of the sum of squares over axes (ONNX ReduceL2).
pub static DEF: OpDef = OpDef {
    name: "ReduceL2",
    doc: "The square root of the sum of squares over axes (ONNX ReduceL2)",
    inputs: &["x"],
    attrs: reduce::ATTRS,
    infer: reduce::infer_float,
    evaluate: |e| reduce::evaluate(e, |v| reduce::sum(v.iter().map(|v| v * v)).sqrt(), None),
    lowering: Lowering::WIDE,
    decomposition: Decomposition::WithoutKernel(decompose),
    ..OpDef::PLAIN
};

fn decompose(network: &Network, id: LayerId) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let x = rewrite.input(0)?;
    let x = rewrite.apply(&mul::DEF, &[x, x])?;
    let sum = rewrite.apply_same(&reduce_sum::DEF, x)?;
    let result = rewrite.apply(&sqrt::DEF, &[sum])?;
    rewrite.finish(result)
}
