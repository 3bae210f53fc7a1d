//! Acos.

use crate::network::ops::pointwise::unary_float;

unary_float!("Acos", "the inverse cosine (ONNX Acos)", f64::acos);
