//! Identity.

use crate::network::op::{Decomposition, Lowering, Movement, OpDef};
use crate::network::ops::rewrite::Rewrite;

/// The input as it is (ONNX Identity).
pub static DEF: OpDef = OpDef {
    name: "Identity",
    doc: "The input as it is (ONNX Identity)",
    inputs: &["x"],
    attrs: &[],
    infer: |infer| Ok(vec![infer.input(0)?.clone()]),
    evaluate: |e| Ok(vec![e.input(0)?.clone()]),
    lowering: Lowering::COMPUTES,
    movement: Movement::View,
    narrow: true,
    decomposition: Decomposition::Always(|network, id| {
        let rewrite = Rewrite::of(network, id);
        let x = rewrite.input(0)?;
        rewrite.finish(x)
    }),
    ..OpDef::PLAIN
};
