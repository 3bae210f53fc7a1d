//! Sin.

use crate::network::op::Lowering;
use crate::network::ops::pointwise::unary_float;

unary_float!("Sin", "the sine (ONNX Sin)", f64::sin, Lowering::BOUNDED.exact(&[0]));
