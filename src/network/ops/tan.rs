//! Tan.

use crate::network::op::Lowering;
use crate::network::ops::pointwise::unary_float;

unary_float!("Tan", "the tangent (ONNX Tan)", f64::tan, Lowering::WIDE.exact(&[0]));
