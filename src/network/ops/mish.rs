//! Mish.

use crate::error::Result;
use crate::network::least::Least;
use crate::network::op::{Decomposition, Lowering, OpDef, Pointwise};
use crate::network::ops::rewrite::Rewrite;
use crate::network::ops::{mul, pointwise, softplus, tanh};
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// `x * tanh(ln(1 + exp(x)))`.
pub static DEF: OpDef = OpDef {
    name: "Mish",
    doc: "x * tanh(ln(1 + exp(x))) (ONNX Mish)",
    inputs: &["x"],
    attrs: &[],
    infer: pointwise::infer_float,
    evaluate,
    pointwise: Some(Pointwise {
        float: |_, v| v[0] * (v[0].max(0.0) + (-v[0].abs()).exp().ln_1p()).tanh(),
        int: None,
    }),
    lowering: Lowering::BEARS,
    decomposition: Decomposition::WithoutKernel(decompose),
    least: Least::At(-0.3089),
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();

fn decompose(network: &Network, id: LayerId) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let x = rewrite.input(0)?;
    let gate = rewrite.apply(&softplus::DEF, &[x])?;
    let gate = rewrite.apply(&tanh::DEF, &[gate])?;
    let result = rewrite.apply(&mul::DEF, &[x, gate])?;
    rewrite.finish(result)
}
