//! Atanh.

use crate::network::op::Lowering;
use crate::network::ops::pointwise::unary_float;

unary_float!(
    "Atanh",
    "the inverse hyperbolic tangent (ONNX Atanh)",
    f64::atanh,
    Lowering::WIDE
);
