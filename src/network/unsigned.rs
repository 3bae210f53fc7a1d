//! uint64: its numbers are computed with as the int64 of the same bits. Ops for which the two differ from 2^63 on refuse it.

use crate::error::{Error, Result};
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

/// Checks that an op gives for uint64 what it should.
///
/// # Errors
/// If it takes or gives uint64 and would take it for int64.
pub fn check<'a>(op: &str, attrs: &Attrs, mut types: impl Iterator<Item = &'a TensorType>) -> Result<()> {
    let unsigned = |ty: &&TensorType| ty.dtype == DType::UInt64;
    let Some(found) = types.find(unsigned) else {
        return Ok(());
    };
    let ordered = match op {
        "ScatterElements" | "ScatterND" => matches!(attrs.text("reduction"), "max" | "min"),
        _ => !SAME_BITS.contains(&op),
    };
    if !ordered {
        return Ok(());
    }
    Err(Error::dtype(format!(
        "{op} of uint64 is not supported: it would take numbers from 2^63 on for negative ones"
    ))
    .expected("another dtype, or an op that moves, adds, multiplies or compares for equality")
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
