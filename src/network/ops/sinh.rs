//! Sinh.

use crate::network::op::Lowering;
use crate::network::ops::pointwise::unary_float;

unary_float!(
    "Sinh",
    "the hyperbolic sine (ONNX Sinh)",
    f64::sinh,
    Lowering::WIDE.exact(&[0])
);
