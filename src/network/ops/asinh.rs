//! Asinh.

use crate::network::op::Lowering;
use crate::network::ops::pointwise::unary_float;

unary_float!(
    "Asinh",
    "the inverse hyperbolic sine (ONNX Asinh)",
    f64::asinh,
    Lowering::WIDE
);
