//! LSTM.

use crate::network::op::{Lowering, OpDef};
use crate::network::ops::recurrent::{self, Kind};
use crate::network::ops::tf32;

/// Long short-term memory (ONNX LSTM).
pub static DEF: OpDef = OpDef {
    name: "LSTM",
    doc: "Long short-term memory over the steps of x; gives the state h of each step, the last h, and the last cell c \
          (ONNX LSTM)",
    inputs: &["x", "w", "r", "b?", "sequence_lens?", "initial_h?", "initial_c?", "p?"],
    attrs: &[
        recurrent::ACTIVATIONS,
        recurrent::ALPHA,
        recurrent::BETA,
        recurrent::CLIP,
        recurrent::DIRECTION,
        recurrent::HIDDEN_SIZE,
        recurrent::INPUT_FORGET,
        recurrent::LAYOUT,
        tf32::TF32,
    ],
    infer: |infer| recurrent::infer(infer, Kind::Lstm),
    evaluate: |e| recurrent::evaluate(e, Kind::Lstm),
    lowering: Lowering::BEARS,
    multiplications: Some(recurrent::multiplications),
    ..OpDef::PLAIN
};
