//! HardSwish.

use crate::error::Result;
use crate::network::attr::Attr;
use crate::network::least::Least;
use crate::network::op::{Decomposition, Lowering, OpDef, Pointwise};
use crate::network::ops::rewrite::Rewrite;
use crate::network::ops::{hard_sigmoid, mul, pointwise};
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// `x * max(0, min(1, x / 6 + 0.5))`.
pub static DEF: OpDef = OpDef {
    name: "HardSwish",
    doc: "x * max(0, min(1, x / 6 + 0.5)) (ONNX HardSwish)",
    inputs: &["x"],
    attrs: &[],
    infer: pointwise::infer_float,
    evaluate,
    pointwise: Some(Pointwise {
        float: |_, v| v[0] * (v[0] / 6.0 + 0.5).clamp(0.0, 1.0),
        int: None,
    }),
    lowering: Lowering::BEARS,
    decomposition: Decomposition::WithoutKernel(decompose),
    least: Least::At(-0.375),
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();

fn decompose(network: &Network, id: LayerId) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let x = rewrite.input(0)?;
    let gate = [("alpha", Attr::Float(1.0 / 6.0)), ("beta", Attr::Float(0.5))];
    let gate = rewrite.apply_with(&hard_sigmoid::DEF, gate, &[x])?;
    let result = rewrite.apply(&mul::DEF, &[x, gate])?;
    rewrite.finish(result)
}
