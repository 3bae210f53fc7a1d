//! ReduceL2.

use crate::error::Result;
use crate::network::dtype::DType;
use crate::network::op::{Decomposition, Lowering, OpDef, Uint64};
use crate::network::ops::rewrite::Rewrite;
use crate::network::ops::{mul, reduce, reduce_sum, sqrt};
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// The square root of the sum of squares over axes; of integers it is computed in float64 and truncated (ONNX ReduceL2).
pub static DEF: OpDef = OpDef {
    name: "ReduceL2",
    doc: "The square root of the sum of squares over axes; of integers it is computed in float64 and truncated (ONNX \
          ReduceL2)",
    inputs: &["x"],
    attrs: reduce::ATTRS,
    infer: reduce::infer,
    evaluate: |e| reduce::evaluate(e, |v| reduce::sum(v.iter().map(|v| v * v)).sqrt(), None),
    lowering: Lowering::WIDE,
    uint64: Uint64::Exact,
    decomposition: Decomposition::WithoutKernel(decompose),
    ..OpDef::PLAIN
};

fn decompose(network: &Network, id: LayerId) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let x = rewrite.input(0)?;
    let dtype = rewrite.ty(x).dtype;
    let x = rewrite.cast(x, if dtype.is_int() { DType::Float64 } else { dtype })?;
    let x = rewrite.apply(&mul::DEF, &[x, x])?;
    let sum = rewrite.apply_same(&reduce_sum::DEF, x)?;
    let root = rewrite.apply(&sqrt::DEF, &[sum])?;
    let result = rewrite.cast(root, dtype)?;
    rewrite.finish(result)
}
