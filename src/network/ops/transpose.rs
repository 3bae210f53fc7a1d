//! Transpose.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attrs, Preset, Read, attr};
use crate::network::op::{Evaluate, Infer, Lowering, Movement, OpDef, TensorType};
use crate::network::ops::{indexing, strides, values};

/// The dimensions in another order (ONNX Transpose).
pub static DEF: OpDef = OpDef {
    name: "Transpose",
    doc: "The dimensions in another order (ONNX Transpose)",
    inputs: &["x"],
    attrs: &[attr(
        "perm",
        Preset::Ints(&[]),
        "for each dimension of the output, which of the input it is; empty: in reverse",
    )],
    infer,
    evaluate,
    lowering: Lowering::COMPUTES,
    movement: Movement::Permute,
    narrow: true,
    ..OpDef::PLAIN
};

/// The permutation of a Transpose layer whose input has this rank.
///
/// # Errors
/// If it is none.
pub fn permutation(attrs: &Attrs, rank: usize) -> Result<Vec<usize>> {
    let perm = attrs.ints("perm");
    if perm.is_empty() {
        return Ok((0..rank).rev().collect());
    }
    let mut sorted = perm.to_vec();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..rank as i64) {
        return Err(Error::invalid("attribute \"perm\" is no permutation")
            .expected(format!("each of 0..{rank} once"))
            .got(format!("{perm:?}")));
    }
    Ok(perm.iter().map(|&axis| axis as usize).collect())
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let x = infer.input(0)?;
    let perm = permutation(infer.attrs, x.rank())?;
    let shape: Vec<_> = perm.iter().map(|&axis| x.shape[axis].clone()).collect();
    let outputs = vec![TensorType::new(x.dtype, shape)];
    Ok(values::moved(infer, &[0], outputs, evaluate))
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let x = e.input(0)?;
    let perm = permutation(e.attrs, x.shape().len())?;
    let strides = strides(x.shape());
    let (shape, steps): (Vec<_>, Vec<_>) = perm.iter().map(|&axis| (x.shape()[axis], strides[axis])).unzip();
    Ok(vec![indexing::strided(x, shape, &steps)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::network::reference::evaluate_op;

    #[test]
    fn elements_follow_their_dimensions() {
        let x = Array::ints(&[0, 1, 2, 3, 4, 5]).reshaped(vec![1, 2, 3]).unwrap();
        let perm = |perm: &[i64]| attrs([("perm", Attr::Ints(perm.to_vec()))]);
        let out = evaluate_op(&DEF, &perm(&[2, 0, 1]), &[Some(x.clone())]).unwrap();
        assert_eq!(
            (out[0].shape(), out[0].to_i64()),
            (&[3, 1, 2][..], vec![0, 3, 1, 4, 2, 5])
        );
        assert!(evaluate_op(&DEF, &perm(&[0, 0, 1]), &[Some(x)]).is_err());
    }
}
