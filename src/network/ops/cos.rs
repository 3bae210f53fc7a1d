//! Cos.

use crate::network::op::Lowering;
use crate::network::ops::pointwise::unary_float;

unary_float!("Cos", "the cosine (ONNX Cos)", f64::cos, Lowering::BOUNDED.exact(&[0]));
