//! GRU.

use crate::network::attr::{Preset, attr};
use crate::network::op::{Lowering, OpDef};
use crate::network::ops::recurrent::{self, Kind};
use crate::network::ops::tf32;

/// Gated recurrent units (ONNX GRU).
pub static DEF: OpDef = OpDef {
    name: "GRU",
    doc: "Gated recurrent units over the steps of x; gives the state h of each step, and the last h (ONNX GRU)",
    inputs: &["x", "w", "r", "b?", "sequence_lens?", "initial_h?"],
    attrs: &[
        recurrent::ACTIVATIONS,
        recurrent::ALPHA,
        recurrent::BETA,
        recurrent::CLIP,
        recurrent::DIRECTION,
        recurrent::HIDDEN_SIZE,
        recurrent::LAYOUT,
        attr(
            "linear_before_reset",
            Preset::Int(0),
            "the product with the state comes before it is reset",
        ),
        tf32::TF32,
    ],
    infer: |infer| recurrent::infer(infer, Kind::Gru),
    evaluate: |e| recurrent::evaluate(e, Kind::Gru),
    lowering: Lowering::BEARS,
    multiplications: Some(recurrent::multiplications),
    ..OpDef::PLAIN
};
