//! A product at concrete shapes, brought to the simplest form.

use crate::network::Network;
use crate::network::attr::Read;
use crate::network::dim::Binding;
use crate::providers::common::operand_strides::coalesce;
use crate::providers::common::scope::Scope;

/// `m` x `k` by `k` x `n` matrices, in a batch. The results lie one after another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Terms of each sum.
    pub k: usize,
    /// Whether the left and the right operand lie transposed.
    pub transposed: [bool; 2],
    /// Extents of the batch, the outermost first; none is 1.
    pub batch: Vec<usize>,
    /// Elements from one left and from one right matrix to the next along each axis of the batch; 0 where it is the same.
    pub steps: [Vec<usize>; 2],
}

impl Problem {
    /// The product of operands of these shapes; a vector is a row on the left and a column on the right.
    pub fn new(mut transposed: [bool; 2], left: &[usize], right: &[usize]) -> Self {
        let (left, right) = (matrix(left, 0), matrix(right, 1));
        let [(m, k), (_, n)] = [(&left, transposed[0]), (&right, transposed[1])].map(|(shape, transposed)| {
            let [.., rows, columns] = shape[..] else { return (1, 1) };
            if transposed { (columns, rows) } else { (rows, columns) }
        });
        let rank = left.len().max(right.len()) - 2;
        let steps = [&left, &right].map(|shape| batch_steps(shape, rank));
        let extent = |axis: usize| {
            let of = |shape: &[usize]| (axis + shape.len()).checked_sub(rank + 2).map_or(1, |a| shape[a]);
            if of(&left) == 1 { of(&right) } else { of(&left) }
        };
        let extents: Vec<usize> = (0..rank).map(extent).collect();
        let (batch, steps) = coalesce(&extents, &[&steps[0], &steps[1]]);
        let [left_steps, right_steps] = <[_; 2]>::try_from(steps).unwrap_or_default();
        // One row or column lies as its transpose does: that of the shorter jumps.
        transposed[0] &= m != 1;
        transposed[1] |= n == 1;
        let mut problem = Self {
            m,
            n,
            k,
            transposed,
            batch,
            steps: [left_steps, right_steps],
        };
        problem.fold();
        problem
    }

    /// Takes batches that meet the same right matrix for more rows of one.
    fn fold(&mut self) {
        while let Some(&extent) = self.batch.last() {
            let [left, right] = [0, 1].map(|side| self.steps[side].last().copied().unwrap_or(0));
            let rows = right == 0 && left == self.m * self.k && !self.transposed[0];
            if extent != 1 && !rows {
                break;
            }
            self.m *= extent;
            self.batch.pop();
            self.steps.iter_mut().for_each(|steps| _ = steps.pop());
        }
    }

    /// How many products there are.
    pub fn batches(&self) -> usize {
        self.batch.iter().product()
    }

    /// Elements from one row to the next and from one column to the next, of the left and of the right operand.
    pub fn strides(&self) -> [[usize; 2]; 2] {
        let of = |rows: usize, columns: usize, transposed: bool| match transposed {
            true => [1, rows],
            false => [columns, 1],
        };
        [
            of(self.m, self.k, self.transposed[0]),
            of(self.k, self.n, self.transposed[1]),
        ]
    }
}

/// The problem at the shapes to optimise for.
pub fn opt(scope: &Scope) -> Option<Problem> {
    let network: &Network = scope.network;
    let opt = network.symbols.iter().map(|(name, range)| (name.clone(), range.opt));
    let opt: Binding = opt.collect();
    let shape = |input: usize| {
        let extents = scope.input_type(input)?.shape.iter();
        let extents = extents.map(|extent| usize::try_from(extent.eval(&opt).ok()?).ok());
        extents.collect::<Option<Vec<_>>>()
    };
    let attrs = &scope.layer().attrs;
    let transposed = [attrs.flag("transA"), attrs.flag("transB")];
    Some(Problem::new(transposed, &shape(0)?, &shape(1)?))
}

/// A shape as that of matrices.
fn matrix(shape: &[usize], side: usize) -> Vec<usize> {
    let mut shape = shape.to_vec();
    if shape.len() == 1 {
        shape.insert(side, 1);
    }
    shape
}

/// Elements from one matrix to the next along each of `rank` axes of a batch.
fn batch_steps(shape: &[usize], rank: usize) -> Vec<usize> {
    let own = shape.len() - 2;
    let mut steps = vec![0; rank];
    let mut step = shape[own] * shape[own + 1];
    for axis in (0..own).rev() {
        steps[rank - own + axis] = if shape[axis] == 1 { 0 } else { step };
        step *= shape[axis];
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(left: &[usize], right: &[usize]) -> Problem {
        Problem::new([false; 2], left, right)
    }

    #[test]
    fn batches_of_one_matrix_are_more_rows() {
        let folded = problem(&[2, 3, 5, 7], &[7, 4]);
        assert_eq!((folded.m, folded.n, folded.k, folded.batches()), (30, 4, 7, 1));
        let half = problem(&[2, 3, 5, 7], &[2, 1, 7, 4]);
        assert_eq!((half.m, half.batch.clone()), (15, vec![2]));
        assert_eq!(half.steps, [vec![105], vec![28]]);
        let turned = Problem::new([true, false], &[2, 7, 5], &[7, 4]);
        assert_eq!(
            (turned.m, turned.batch, turned.steps),
            (5, vec![2], [vec![35], vec![0]])
        );
    }

    #[test]
    fn each_side_may_stand_still() {
        let both = problem(&[2, 1, 5, 7], &[1, 3, 7, 4]);
        assert_eq!(both.batch, [2, 3]);
        assert_eq!(both.steps, [vec![35, 0], vec![0, 28]]);
        let left = problem(&[5, 7], &[2, 3, 7, 4]);
        assert_eq!((left.batch, left.steps), (vec![6], [vec![0], vec![28]]));
        let each = problem(&[2, 4, 9, 16], &[2, 4, 16, 9]);
        assert_eq!((each.batch, each.steps), (vec![8], [vec![144], vec![144]]));
    }

    #[test]
    fn vectors_are_rows_and_columns() {
        let row = problem(&[7], &[2, 7, 3]);
        assert_eq!((row.m, row.n, row.k, row.batch.clone()), (1, 3, 7, vec![2]));
        assert_eq!(row.steps, [vec![0], vec![21]]);
        let column = problem(&[2, 5, 7], &[7]);
        assert_eq!((column.m, column.n, column.k, column.batches()), (10, 1, 7, 1));
        assert_eq!(column.strides(), [[7, 1], [1, 7]]);
        let dot = problem(&[7], &[7]);
        assert_eq!((dot.m, dot.n, dot.k, dot.batches()), (1, 1, 7, 1));
    }

    #[test]
    fn nothing_to_sum_stays_a_product() {
        let empty = problem(&[5, 0], &[0, 4]);
        assert_eq!((empty.m, empty.n, empty.k, empty.batches()), (5, 4, 0, 1));
    }
}
