//! ReduceLogSum.

use crate::error::Result;
use crate::network::op::{Decomposition, Lowering, OpDef};
use crate::network::ops::rewrite::Rewrite;
use crate::network::ops::{log, reduce, reduce_sum};
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// The logarithm of the sum over axes (ONNX ReduceLogSum).
pub static DEF: OpDef = OpDef {
    name: "ReduceLogSum",
    doc: "The logarithm of the sum over axes (ONNX ReduceLogSum)",
    inputs: &["x"],
    attrs: reduce::ATTRS,
    infer: reduce::infer_float,
    evaluate: |e| reduce::evaluate(e, |v| v.iter().sum::<f64>().ln(), None),
    lowering: Lowering::WIDE,
    decomposition: Decomposition::WithoutKernel(decompose),
    ..OpDef::PLAIN
};

fn decompose(network: &Network, id: LayerId) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let x = rewrite.input(0)?;
    let sum = rewrite.apply_same(&reduce_sum::DEF, x)?;
    let result = rewrite.apply(&log::DEF, &[sum])?;
    rewrite.finish(result)
}
