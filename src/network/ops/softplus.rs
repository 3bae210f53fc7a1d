//! Softplus.

use crate::network::least::Least;
use crate::network::op::Lowering;
use crate::network::ops::pointwise::unary_float;

unary_float!(
    "Softplus",
    "ln(1 + exp(x)) (ONNX Softplus)",
    |x| if x.is_nan() {
        x
    } else {
        x.max(0.0) + (-x.abs()).exp().ln_1p()
    },
    Lowering::BEARS,
    Least::At(0.0)
);
