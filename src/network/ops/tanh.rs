//! Tanh.

use crate::network::ops::pointwise::unary_float;

unary_float!("Tanh", "the hyperbolic tangent (ONNX Tanh)", f64::tanh);
