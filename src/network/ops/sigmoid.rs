//! Sigmoid.

use crate::network::least::Least;
use crate::network::op::Lowering;
use crate::network::ops::pointwise::unary_float;

unary_float!(
    "Sigmoid",
    "1 / (1 + exp(-x)) (ONNX Sigmoid)",
    |x| 1.0 / (1.0 + (-x).exp()),
    Lowering::BEARS,
    Least::Unit
);
