//! Reciprocal.

use crate::network::op::Lowering;
use crate::network::ops::pointwise::unary_float;

unary_float!("Reciprocal", "1 / x (ONNX Reciprocal)", f64::recip, Lowering::WIDE);
