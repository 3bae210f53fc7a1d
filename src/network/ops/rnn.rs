//! RNN.

use crate::network::op::{Lowering, OpDef};
use crate::network::ops::recurrent::{self, Kind};
use crate::network::ops::tf32;

/// A plain recurrent layer (ONNX RNN).
pub static DEF: OpDef = OpDef {
    name: "RNN",
    doc: "f(x W^T + h R^T + b) over the steps of x; gives the state h of each step, and the last h (ONNX RNN)",
    inputs: &["x", "w", "r", "b?", "sequence_lens?", "initial_h?"],
    attrs: &[
        recurrent::ACTIVATIONS,
        recurrent::ALPHA,
        recurrent::BETA,
        recurrent::CLIP,
        recurrent::DIRECTION,
        recurrent::HIDDEN_SIZE,
        recurrent::LAYOUT,
        tf32::TF32,
    ],
    infer: |infer| recurrent::infer(infer, Kind::Rnn),
    evaluate: |e| recurrent::evaluate(e, Kind::Rnn),
    lowering: Lowering::BEARS,
    multiplications: Some(recurrent::multiplications),
    ..OpDef::PLAIN
};
