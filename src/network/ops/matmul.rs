//! MatMul.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attrs, Preset, Read, attr};
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, Sizes, TensorType, Uint64};
use crate::network::ops::{places, pointwise, strides, tf32};

/// Matrix product, batched over leading dimensions as numpy does (ONNX MatMul, with transposition of either side).
pub static DEF: OpDef = OpDef {
    name: "MatMul",
    doc: "Matrix product a [..., M, K], b [..., K, N], leading dimensions broadcast; a vector is a row on the left and \
          a column on the right (ONNX MatMul, with transposition of either side)",
    inputs: &["a", "b"],
    attrs: &[
        attr("transA", Preset::Int(0), "swap the last two dimensions of a first"),
        attr("transB", Preset::Int(0), "swap the last two dimensions of b first"),
        tf32::TF32,
    ],
    infer,
    evaluate,
    lowering: Lowering::SUMS,
    uint64: Uint64::Exact,
    multiplications: Some(multiplications),
    ..OpDef::PLAIN
};

/// The axis of the first operand that is summed over, counted from the end.
pub fn inner_from_end(attrs: &Attrs) -> usize {
    if attrs.flag("transA") { 2 } else { 1 }
}

/// One for each term of the sums.
pub(super) fn multiplications(sizes: &Sizes) -> Option<f64> {
    let a = sizes.input(0)?;
    let axis = a.len().checked_sub(inner_from_end(sizes.attrs));
    Some(sizes.given() * axis.map_or(1.0, |axis| a[axis]))
}

/// The two operands as batches of matrices: shapes `[batch..., rows, columns]` after transposition.
fn matrices<D: Clone>(attrs: &Attrs, shapes: [&[D]; 2], one: D) -> Result<[Vec<D>; 2]> {
    let matrix = |shape: &[D], transposed: bool, right: bool| {
        let mut shape = shape.to_vec();
        match shape.len() {
            0 => return Err(Error::shape("a scalar can't be multiplied as a matrix").hint("use Mul")),
            1 if transposed => return Err(Error::shape("a vector can't be transposed")),
            1 => shape.insert(right as usize, one.clone()),
            rank if transposed => shape.swap(rank - 2, rank - 1),
            _ => {}
        }
        Ok(shape)
    };
    let [a, b] = shapes;
    Ok([
        matrix(a, attrs.flag("transA"), false)?,
        matrix(b, attrs.flag("transB"), true)?,
    ])
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (a, b) = (infer.input(0)?, infer.input(1)?);
    pointwise::same_dtype(&[a, b])?;
    if a.dtype == DType::Bool {
        return Err(Error::dtype("the op multiplies numbers").got(a.dtype.name()));
    }
    let [left, right] = matrices(infer.attrs, [&a.shape, &b.shape], Dim::from(1i64))?;
    let (m, n) = (left.len() - 2, right.len() - 2);
    infer
        .require_equal(
            &left[m + 1],
            &right[n],
            "the inner dimensions of a matrix product differ",
        )
        .map_err(|e| e.hint(format!("the operands are {} and {}", a.describe(), b.describe())))?;
    let mut shape = infer.broadcast(&[&left[..m], &right[..n]])?;
    shape.extend((a.rank() > 1).then(|| left[m].clone()));
    shape.extend((b.rank() > 1).then(|| right[n + 1].clone()));
    Ok(vec![TensorType::new(a.dtype, shape)])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (a, b) = (e.input(0)?, e.input(1)?);
    let product = Product::new(e.attrs, a, b)?;
    if a.dtype().is_float() {
        return e.output(&product.run(&a.to_f64(), &b.to_f64(), 0.0, |sum, x, y| sum + x * y));
    }
    let add = |sum: i64, x: i64, y: i64| sum.wrapping_add(x.wrapping_mul(y));
    let values = product.run(&a.to_i64(), &b.to_i64(), 0, add);
    let (dtype, shape) = &e.outputs[0];
    Ok(vec![Array::from_i64(*dtype, shape.clone(), &values)?])
}

/// Where the elements of a batch of matrix products lie.
struct Product {
    /// For each matrix of the result, where those of the operands start.
    starts: [Vec<usize>; 2],
    rows: usize,
    inner: usize,
    columns: usize,
    /// Steps along rows and columns of each operand.
    steps: [[usize; 2]; 2],
}

impl Product {
    fn new(attrs: &Attrs, a: &Array, b: &Array) -> Result<Self> {
        let [left, right] = matrices(attrs, [a.shape(), b.shape()], 1)?;
        let (m, n) = (left.len() - 2, right.len() - 2);
        let rank = m.max(n);
        let mut batch = vec![1; rank];
        for lead in [&left[..m], &right[..n]] {
            let skip = rank - lead.len();
            (0..lead.len())
                .filter(|&i| lead[i] != 1)
                .for_each(|i| batch[skip + i] = lead[i]);
        }
        let starts = |shape: &[usize], lead: usize| {
            let strides = strides(shape);
            let mut steps = vec![0; rank];
            let moving = (0..lead).filter(|&i| shape[i] != 1);
            moving.for_each(|i| steps[rank - lead + i] = strides[i]);
            places(&batch, &steps)
        };
        let steps = |name: &str, columns: usize, rows: usize| match attrs.flag(name) {
            true => [1, rows],
            false => [columns, 1],
        };
        Ok(Self {
            starts: [starts(&left, m), starts(&right, n)],
            rows: left[m],
            inner: left[m + 1],
            columns: right[n + 1],
            steps: [
                steps("transA", left[m + 1], left[m]),
                steps("transB", right[n + 1], right[n]),
            ],
        })
    }

    fn run<T: Copy>(&self, a: &[T], b: &[T], zero: T, add: impl Fn(T, T, T) -> T) -> Vec<T> {
        let [[a_row, a_column], [b_row, b_column]] = self.steps;
        let mut out = vec![];
        for (&a0, &b0) in self.starts[0].iter().zip(&self.starts[1]) {
            for row in 0..self.rows {
                for column in 0..self.columns {
                    let term = |sum, k| {
                        add(
                            sum,
                            a[a0 + row * a_row + k * a_column],
                            b[b0 + k * b_row + column * b_column],
                        )
                    };
                    out.push((0..self.inner).fold(zero, term));
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Network;
    use crate::network::attr::{Attr, attrs, complete};
    use crate::network::reference::evaluate_op;

    fn product(flags: [i64; 2], a: (&[usize], &[i64]), b: (&[usize], &[i64])) -> Result<Array> {
        let flags = attrs([("transA", Attr::Int(flags[0])), ("transB", Attr::Int(flags[1]))]);
        let array = |(shape, values): (&[usize], &[i64])| Some(Array::ints(values).reshaped(shape.to_vec()).unwrap());
        let mut out = evaluate_op(&DEF, &complete(DEF.attrs, flags)?, &[array(a), array(b)])?;
        Ok(out.remove(0))
    }

    #[test]
    fn vectors_matrices_and_transposes() {
        let m: (&[usize], &[i64]) = (&[2, 3], &[1, 2, 3, 4, 5, 6]);
        assert_eq!(product([0, 1], m, m).unwrap().to_i64(), [14, 32, 32, 77]);
        assert_eq!(product([1, 0], m, m).unwrap().shape(), [3, 3]);
        let v = product([0, 0], m, (&[3], &[1, 0, 1])).unwrap();
        assert_eq!((v.shape(), v.to_i64()), (&[2][..], vec![4, 10]));
        assert_eq!(
            product([0, 0], (&[2], &[1, 2]), (&[2], &[3, 4])).unwrap().to_i64(),
            [11]
        );
        assert!(product([0, 0], m, m).is_err());
    }

    #[test]
    fn batches_are_broadcast_symbolically() {
        let mut network = Network::new("");
        let mut input = |name: &str, dims: &[&str]| {
            let dims = dims.iter().map(|d| d.parse().unwrap()).collect();
            Some(network.add_input(name, DType::Float32, dims).unwrap())
        };
        let inputs = [input("a", &["n", "1", "s", "64"]), input("b", &["12", "64", "t"])];
        let out = network.add_layer("m", &DEF, Attrs::new(), &inputs).unwrap()[0];
        assert_eq!(network[out].ty.describe(), "float32[n, 12, s, t]");
        assert!(network.guards.is_empty());
    }
}
