//! Pow.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::Attrs;
use crate::network::dtype::DType;
use crate::network::op::{Evaluate, Infer, IntegerRule, Lowering, OpDef, Pointwise, TensorType, Uint64};
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
    uint64: Uint64::Exact,
    ..OpDef::PLAIN
};

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let [base, exponent] = [e.input(0)?, e.input(1)?].map(|a| a.dtype() == DType::UInt64);
    let int: IntegerRule = match (base, exponent) {
        (_, true) => |_, v| wrapping(v[0], v[1] as u64),
        (true, false) => |_, v| match u64::try_from(v[1]) {
            Ok(exponent) => wrapping(v[0], exponent),
            Err(_) => (v[0] == 1).into(),
        },
        (false, false) => return pointwise::evaluate(&DEF, e),
    };
    let float = |_: &Attrs, v: &[f64]| v[0].powf(v[1]);
    pointwise::evaluate_rule(Pointwise { float, int: Some(int) }, DEF.inputs.len(), e)
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (x, y) = (infer.input(0)?, infer.input(1)?);
    if x.dtype == DType::Bool || y.dtype == DType::Bool {
        return Err(Error::dtype("the op works on numbers").got(DType::Bool.name()));
    }
    let shape = infer.broadcast(&[&x.shape, &y.shape])?;
    Ok(vec![TensorType::new(x.dtype, shape)])
}

/// A negative exponent gives the truncated quotient: 0 unless the base is 1 or -1, of 0 too, as PyTorch has it.
fn power(base: i64, exponent: i64) -> i64 {
    match (u64::try_from(exponent), base) {
        (Ok(exponent), _) => wrapping(base, exponent),
        (Err(_), -1 | 1) => wrapping(base, exponent.unsigned_abs()),
        (Err(_), _) => 0,
    }
}

/// The lowest 64 bits of a power, which are the same with a sign and without.
fn wrapping(mut base: i64, mut exponent: u64) -> i64 {
    let mut power = 1i64;
    while exponent > 0 {
        if exponent % 2 == 1 {
            power = power.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        exponent /= 2;
    }
    power
}

#[cfg(test)]
mod tests {
    use super::power;

    #[test]
    fn integer_powers_are_exact() {
        assert_eq!(power(3, 39), 4_052_555_153_018_976_267);
        assert_eq!(
            [power(3, 1 << 40), power(2, 1 << 40)],
            [3i64.wrapping_pow(1 << 20).wrapping_pow(1 << 20), 0]
        );
        assert_eq!([power(2, -1), power(-1, -3), power(0, 0), power(0, -2)], [0, -1, 1, 0]);
    }
}
