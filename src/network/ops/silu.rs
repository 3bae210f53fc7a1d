//! Silu.

use crate::error::Result;
use crate::network::least::Least;
use crate::network::op::{Decomposition, Lowering, OpDef, Pointwise};
use crate::network::ops::rewrite::Rewrite;
use crate::network::ops::{mul, pointwise, sigmoid};
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// `x * sigmoid(x)`, as torch and TensorRT name it.
pub static DEF: OpDef = OpDef {
    name: "Silu",
    doc: "x * sigmoid(x), as torch and TensorRT name it (ONNX: Swish with alpha 1)",
    inputs: &["x"],
    attrs: &[],
    infer: pointwise::infer_float,
    evaluate,
    pointwise: Some(Pointwise {
        float: |_, v| v[0] / (1.0 + (-v[0]).exp()),
        int: None,
    }),
    lowering: Lowering::BEARS,
    decomposition: Decomposition::WithoutKernel(decompose),
    least: Least::At(-0.2785),
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();

fn decompose(network: &Network, id: LayerId) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let x = rewrite.input(0)?;
    let gate = rewrite.apply(&sigmoid::DEF, &[x])?;
    let result = rewrite.apply(&mul::DEF, &[x, gate])?;
    rewrite.finish(result)
}
