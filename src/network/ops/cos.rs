//! Cos.

use crate::network::ops::pointwise::unary_float;

unary_float!("Cos", "the cosine (ONNX Cos)", f64::cos);
