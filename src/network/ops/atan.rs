//! Atan.

use crate::network::ops::pointwise::unary_float;

unary_float!("Atan", "the inverse tangent (ONNX Atan)", f64::atan);
