//! Round.

use crate::network::op::Lowering;
use crate::network::ops::pointwise::unary_float;

unary_float!(
    "Round",
    "the nearest integer, the even one of two (ONNX Round)",
    f64::round_ties_even,
    Lowering::WIDE.exact(&[0])
);
