//! GatherND.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::dim::Dim;
use crate::network::op::{Evaluate, Infer, Lowering, Movement, OpDef, TensorType};
use crate::network::ops::{gather, indexing, strides};

/// Slices that index vectors name (ONNX GatherND).
pub static DEF: OpDef = OpDef {
    name: "GatherND",
    doc: "Slices of x that the vectors in the last dimension of the indices name (ONNX GatherND)",
    inputs: &["x", "indices"],
    attrs: &[attr(
        "batch_dims",
        Preset::Int(0),
        "number of leading dimensions that x and indices share",
    )],
    infer,
    evaluate,
    lowering: Lowering::COMPUTES,
    movement: Movement::Pick,
    ..OpDef::PLAIN
};

/// The length of the index vectors.
pub(super) fn vector_length(x: &TensorType, indices: &TensorType, batch: usize) -> Result<usize> {
    let length = indices.shape.last().and_then(Dim::as_const);
    let length = length.filter(|&n| batch < indices.rank() && (1..=(x.rank() as i64 - batch as i64)).contains(&n));
    length.map(|n| n as usize).ok_or_else(|| {
        Error::shape("the last dimension of the indices does not fit the input")
            .expected(format!(
                "between 1 and {} of {}",
                x.rank().saturating_sub(batch),
                x.describe()
            ))
            .got(indices.describe())
    })
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (x, indices) = (infer.input(0)?, gather::index_tensor(infer, 1)?);
    let batch = infer.attrs.int("batch_dims").max(0) as usize;
    let length = vector_length(x, indices, batch)?;
    for (a, b) in x.shape[..batch].iter().zip(&indices.shape) {
        infer.require_equal(a, b, "input and indices share their leading dimensions")?;
    }
    let lead = &indices.shape[..indices.rank() - 1];
    Ok(vec![TensorType::new(
        x.dtype,
        [lead, &x.shape[batch + length..]].concat(),
    )])
}

/// Where in `x` each slice starts that an index vector names, and how long slices are.
pub(super) fn slice_starts(x: &Array, indices: &Array, batch: usize) -> Result<(Vec<usize>, usize)> {
    let length = indices.shape().last().copied().unwrap_or(1);
    let (strides, numbers) = (strides(x.shape()), indices.to_i64());
    let inside: usize = x.shape()[batch + length..].iter().product();
    let per_batch: usize = indices.shape()[batch..indices.shape().len() - 1].iter().product();
    let whole: usize = x.shape()[batch..].iter().product();
    let start = |(i, vector): (usize, &[i64])| {
        let offsets = vector
            .iter()
            .enumerate()
            .map(|(k, &index)| Ok(indexing::index(index, x.shape()[batch + k])? * strides[batch + k]));
        Ok(i / per_batch * whole + offsets.sum::<Result<usize>>()?)
    };
    let starts = numbers.chunks(length).enumerate().map(start);
    Ok((starts.collect::<Result<_>>()?, inside))
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (x, indices) = (e.input(0)?, e.input(1)?);
    let (starts, length) = slice_starts(x, indices, e.attrs.int("batch_dims").max(0) as usize)?;
    let places: Vec<_> = starts.iter().flat_map(|&start| start..start + length).collect();
    Ok(vec![indexing::pick(x, e.outputs[0].1.clone(), &places)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::network::reference::evaluate_op;

    #[test]
    fn vectors_name_slices_within_batches() {
        let x = Array::ints(&[0, 1, 2, 3, 4, 5, 6, 7]).reshaped(vec![2, 2, 2]).unwrap();
        let run = |batch, indices: Array| {
            let attrs = attrs([("batch_dims", Attr::Int(batch))]);
            evaluate_op(&DEF, &attrs, &[Some(x.clone()), Some(indices)])
        };
        let pairs = Array::ints(&[0, 1, 1, -2]).reshaped(vec![2, 2]).unwrap();
        assert_eq!(run(0, pairs).unwrap()[0].to_i64(), [2, 3, 4, 5]);
        let rows = Array::ints(&[1, 0]).reshaped(vec![2, 1]).unwrap();
        assert_eq!(run(1, rows).unwrap()[0].to_i64(), [2, 3, 4, 5]);
        assert!(run(0, Array::ints(&[0, 0, 0, 0])).is_err());
    }
}
