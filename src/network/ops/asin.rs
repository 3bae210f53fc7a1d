//! Asin.

use crate::network::ops::pointwise::unary_float;

unary_float!("Asin", "the inverse sine (ONNX Asin)", f64::asin);
