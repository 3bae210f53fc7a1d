//! Floor.

use crate::network::op::Lowering;
use crate::network::ops::pointwise::unary_float;

unary_float!(
    "Floor",
    "the greatest integer that is at most x (ONNX Floor)",
    f64::floor,
    Lowering::WIDE.exact(&[0])
);
