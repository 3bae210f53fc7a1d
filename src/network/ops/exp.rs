//! Exp.

use crate::network::least::Least;
use crate::network::op::Lowering;
use crate::network::ops::pointwise::unary_float;

unary_float!(
    "Exp",
    "e to the power of x (ONNX Exp)",
    f64::exp,
    Lowering::WIDE.exact(&[0]),
    Least::At(0.0)
);
