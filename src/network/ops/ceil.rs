//! Ceil.

use crate::network::op::Lowering;
use crate::network::ops::pointwise::unary_float;

unary_float!(
    "Ceil",
    "the least integer that is at least x (ONNX Ceil)",
    f64::ceil,
    Lowering::WIDE.exact(&[0])
);
