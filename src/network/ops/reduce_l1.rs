//! ReduceL1.

use crate::error::Result;
use crate::network::dtype::DType;
use crate::network::op::{Decomposition, Lowering, OpDef, Uint64};
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
        let int: fn(&[i64]) -> i64 = match e.input(0)?.dtype() {
            DType::UInt64 => |v| v.iter().fold(0, |sum, &v| sum.wrapping_add(v)),
            _ => |v| v.iter().fold(0, |sum, &v| sum.wrapping_add(v.wrapping_abs())),
        };
        reduce::evaluate(e, |v| reduce::sum(v.iter().map(|v| v.abs())), Some(int))
    },
    lowering: Lowering::WIDE,
    uint64: Uint64::Exact,
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
