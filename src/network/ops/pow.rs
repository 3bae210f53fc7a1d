//! Pow.

use crate::error::{Error, Result};
use crate::network::dtype::DType;
use crate::network::op::{Infer, Lowering, OpDef, Pointwise, TensorType, Uint64};
use crate::network::ops::pointwise;

/// `x` to the power of `y`, with broadcasting; the dtype is that of `x` (ONNX Pow).
pub static DEF: OpDef = OpDef {
    name: "Pow",
    doc: "x to the power of y, with broadcasting; the dtype is that of x, y may have another; integers wrap (ONNX Pow)",
    inputs: &["x", "y"],
    attrs: &[],
    infer,
    evaluate,
    pointwise: Some(Pointwise {
        float: |_, v| v[0].powf(v[1]),
        int: Some(|_, v| power(v[0], v[1])),
    }),
    lowering: Lowering::WIDE.exact(&[1]),
    // Exponents of floats are taken in double precision.
    uint64: Uint64::When(|_, base| base.is_float()),
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (x, y) = (infer.input(0)?, infer.input(1)?);
    if x.dtype == DType::Bool || y.dtype == DType::Bool {
        return Err(Error::dtype("the op works on numbers").got(DType::Bool.name()));
    }
    let shape = infer.broadcast(&[&x.shape, &y.shape])?;
    Ok(vec![TensorType::new(x.dtype, shape)])
}

/// A negative exponent gives the truncated quotient: 0 unless the base is 1 or -1.
fn power(base: i64, exponent: i64) -> i64 {
    match u32::try_from(exponent) {
        Ok(exponent) => base.wrapping_pow(exponent),
        Err(_) => (base as f64).powf(exponent as f64) as i64,
    }
}

#[cfg(test)]
mod tests {
    use super::power;

    #[test]
    fn integer_powers_are_exact() {
        assert_eq!(power(3, 39), 4_052_555_153_018_976_267);
        assert_eq!([power(2, -1), power(-1, -3), power(0, 0)], [0, -1, 1]);
    }
}
