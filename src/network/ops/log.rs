//! Log.

use crate::network::op::Lowering;
use crate::network::ops::pointwise::unary_float;

unary_float!("Log", "the natural logarithm (ONNX Log)", f64::ln, Lowering::WIDE);
