//! uint64: kernels of the processor compute with its numbers as with the int64 of the same bits. Ops for which the two
//! differ from 2^63 on have a rule here, rank by [`ranks`], or refuse it.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attrs, Read};
use crate::network::dtype::DType;
use crate::network::op::TensorType;

/// The ops that give the same bits for either: those that move elements, compare bits, or wrap.
const SAME_BITS: [&str; 52] = [
    "Add",
    "BitCast",
    "BitShift",
    "BitwiseAnd",
    "BitwiseNot",
    "BitwiseOr",
    "BitwiseXor",
    "Cast",
    "CenterCropPad",
    "Compress",
    "Concat",
    "ConstantOfShape",
    "CumProd",
    "CumSum",
    "Deferred",
    "DepthToSpace",
    "Einsum",
    "Equal",
    "Expand",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "Identity",
    "If",
    "Loop",
    "MatMul",
    "Mul",
    "NonZero",
    "OneHot",
    "Pad",
    "Plugin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
    "Reshape",
    "ReverseSequence",
    "Scan",
    "ScatterElements",
    "ScatterND",
    "Shape",
    "Size",
    "Slice",
    "SpaceToDepth",
    "Split",
    "Squeeze",
    "Sub",
    "Tile",
    "Transpose",
    "Trilu",
    "Unsqueeze",
    "Where",
];

/// How one element of integers is computed, from the bits of those of the inputs.
pub type Rule = fn(&Attrs, &[i64]) -> i64;

/// The rule of a pointwise op on uint64, where it is another one than that on int64.
pub fn rule(op: &str) -> Option<Rule> {
    fn of(v: &[i64]) -> [u64; 2] {
        [v[0] as u64, v[1] as u64]
    }
    let rule: Rule = match op {
        "Div" => |_, v| of(v)[0].checked_div(of(v)[1]).unwrap_or(0) as i64,
        "Mod" => |_, v| of(v)[0].checked_rem(of(v)[1]).unwrap_or(0) as i64,
        "Max" => |_, v| of(v)[0].max(of(v)[1]) as i64,
        "Min" => |_, v| of(v)[0].min(of(v)[1]) as i64,
        "Less" => |_, v| (of(v)[0] < of(v)[1]).into(),
        "LessOrEqual" => |_, v| (of(v)[0] <= of(v)[1]).into(),
        "Greater" => |_, v| (of(v)[0] > of(v)[1]).into(),
        "GreaterOrEqual" => |_, v| (of(v)[0] >= of(v)[1]).into(),
        _ => return None,
    };
    Some(rule)
}

/// Integers that have the order of an array's elements.
pub fn ranks(array: &Array) -> Vec<i64> {
    let mut ranks = array.to_i64();
    if array.dtype() == DType::UInt64 {
        ranks.iter_mut().for_each(|rank| *rank ^= i64::MIN);
    }
    ranks
}

/// Checks that an op gives for uint64 what it should.
///
/// # Errors
/// If it takes or gives uint64 and would take it for int64.
pub fn check<'a>(op: &str, attrs: &Attrs, mut types: impl Iterator<Item = &'a TensorType> + Clone) -> Result<()> {
    let unsigned = |ty: &&TensorType| ty.dtype == DType::UInt64;
    let first = types.clone().next();
    let Some(found) = types.find(unsigned) else {
        return Ok(());
    };
    let known = match op {
        "ScatterElements" | "ScatterND" => !matches!(attrs.text("reduction"), "max" | "min"),
        // Exponents of floats are taken in double precision.
        "Pow" => first.is_some_and(|base| base.dtype.is_float()),
        "TopK" => true,
        _ => SAME_BITS.contains(&op) || rule(op).is_some(),
    };
    if known {
        return Ok(());
    }
    Err(Error::dtype(format!(
        "{op} of uint64 is not supported: it would take numbers from 2^63 on for negative ones"
    ))
    .expected("another dtype, or an op that moves, adds, multiplies, divides or compares")
    .got(found.describe())
    .hint("insert a Cast to int64 where no number reaches 2^63"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::ops;

    #[test]
    fn the_lists_name_ops() {
        let unknown = |name: &&&str| ops::find(name).is_err();
        assert_eq!(SAME_BITS.iter().find(unknown), None);
    }
}
