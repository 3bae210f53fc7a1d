//! Cosh.

use crate::network::op::Lowering;
use crate::network::ops::pointwise::unary_float;

unary_float!(
    "Cosh",
    "the hyperbolic cosine (ONNX Cosh)",
    f64::cosh,
    Lowering::WIDE.exact(&[0])
);
