//! Erf.

use crate::network::ops::pointwise::unary_float;

unary_float!("Erf", "the error function (ONNX Erf)", |x| erf(x));

// SAFETY: the C library's function of one number, without side effects.
unsafe extern "C" {
    /// The error function, to the precision of the C library.
    pub(super) safe fn erf(x: f64) -> f64;
}
