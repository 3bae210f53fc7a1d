//! Softsign.

use crate::network::ops::pointwise::unary_float;

unary_float!("Softsign", "x / (1 + |x|) (ONNX Softsign)", |x| x / (1.0 + x.abs()));
