//! uint64: kernels of the processor compute with its numbers as with the int64 of the same bits. Ops for which the two
//! differ from 2^63 on have a rule here, rank by [`ranks`], or refuse it.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::Attrs;
use crate::network::dtype::DType;
use crate::network::op::{IntegerRule, OpDef, TensorType, Uint64};

/// The two operands of a rule as unsigned numbers.
pub fn bits(v: &[i64]) -> [u64; 2] {
    [v[0] as u64, v[1] as u64]
}

/// The rule of a pointwise op on uint64, where it is another one than that on int64.
pub fn rule(op: &OpDef) -> Option<IntegerRule> {
    match op.uint64 {
        Uint64::Rule(rule) => Some(rule),
        _ => None,
    }
}

/// Integers that have the order of an array's elements.
pub fn ranks(array: &Array) -> Vec<i64> {
    let mut ranks = array.to_i64();
    ranks.iter_mut().for_each(|rank| *rank = swapped(array.dtype(), *rank));
    ranks
}

/// The rank of an element of a dtype, or the element of a rank.
pub fn swapped(dtype: DType, number: i64) -> i64 {
    match dtype {
        DType::UInt64 => number ^ i64::MIN,
        _ => number,
    }
}

/// Checks that an op gives for uint64 what it should.
///
/// # Errors
/// If it takes or gives uint64 and would take it for int64.
pub fn check<'a>(op: &OpDef, attrs: &Attrs, mut types: impl Iterator<Item = &'a TensorType> + Clone) -> Result<()> {
    let unsigned = |ty: &&TensorType| ty.dtype == DType::UInt64;
    let first = types.clone().next();
    let Some(found) = types.find(unsigned) else {
        return Ok(());
    };
    let known = match op.uint64 {
        Uint64::Exact | Uint64::Rule(_) => true,
        Uint64::Moved => op.moves(),
        Uint64::When(takes) => first.is_some_and(|first| takes(attrs, first.dtype)),
    };
    if known {
        return Ok(());
    }
    Err(Error::dtype(format!(
        "{} of uint64 is not supported: it would take numbers from 2^63 on for negative ones",
        op.name
    ))
    .expected("another dtype, or an op that moves, adds, multiplies, divides or compares")
    .got(found.describe())
    .hint("insert a Cast to int64 where no number reaches 2^63"))
}
