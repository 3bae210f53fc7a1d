//! Det.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType};

/// The determinants of square matrices (ONNX Det).
pub static DEF: OpDef = OpDef {
    name: "Det",
    doc: "The determinants of the square matrices in the last two dimensions (ONNX Det)",
    inputs: &["x"],
    attrs: &[],
    infer,
    evaluate,
    lowering: Lowering::WIDE,
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let x = infer.input(0)?;
    let [batch @ .., rows, columns] = x.shape.as_slice() else {
        return Err(Error::shape("a determinant is one of a matrix")
            .expected("a tensor of rank 2 or more")
            .got(x.describe()));
    };
    if !x.dtype.is_float() {
        return Err(Error::dtype("determinants are those of floating-point matrices").got(x.dtype.name()));
    }
    infer.require_equal(rows, columns, "a determinant is one of a square matrix")?;
    Ok(vec![TensorType::new(x.dtype, batch.to_vec())])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let x = e.input(0)?;
    let n = *x.shape().last().unwrap_or(&0);
    let mut data = x.to_f64();
    let count: usize = e.outputs[0].1.iter().product();
    // The matrix without elements has the determinant 1, the empty product.
    let found: Vec<_> = match n {
        0 => vec![1.0; count],
        _ => data.chunks_mut(n * n).map(|matrix| determinant(matrix, n)).collect(),
    };
    e.output(&found)
}

/// The product of the pivots of Gauss's elimination, each the greatest of its column.
fn determinant(matrix: &mut [f64], n: usize) -> f64 {
    let mut product = 1.0;
    for step in 0..n {
        let size = |row: &usize| matrix[row * n + step].abs();
        let best = (step..n).max_by(|a, b| size(a).total_cmp(&size(b))).unwrap_or(step);
        if best != step {
            (0..n).for_each(|column| matrix.swap(best * n + column, step * n + column));
            product = -product;
        }
        let pivot = matrix[step * n + step];
        product *= pivot;
        if pivot == 0.0 {
            return product;
        }
        for row in step + 1..n {
            let factor = matrix[row * n + step] / pivot;
            (step..n).for_each(|column| matrix[row * n + column] -= factor * matrix[step * n + column]);
        }
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_exchanged_where_a_pivot_is_zero() {
        assert_eq!(determinant(&mut [0.0, 1.0, 1.0, 0.0], 2), -1.0);
        assert_eq!(determinant(&mut [1.0, 2.0, 2.0, 4.0], 2), 0.0);
        assert!((determinant(&mut [2.0, 0.0, 1.0, 1.0, 3.0, 2.0, 1.0, 1.0, 4.0], 3) - 18.0).abs() < 1e-12);
    }
}
