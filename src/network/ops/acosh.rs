//! Acosh.

use crate::network::op::Lowering;
use crate::network::ops::pointwise::unary_float;

unary_float!(
    "Acosh",
    "the inverse hyperbolic cosine (ONNX Acosh)",
    f64::acosh,
    Lowering::WIDE
);
