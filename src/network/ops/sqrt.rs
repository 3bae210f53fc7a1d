//! Sqrt.

use crate::network::op::Lowering;
use crate::network::ops::pointwise::unary_float;

unary_float!(
    "Sqrt",
    "the square root; NaN below 0 (ONNX Sqrt)",
    f64::sqrt,
    Lowering::WIDE
);
