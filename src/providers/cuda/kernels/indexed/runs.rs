//! Where runs of a row-major tensor start, given the indices that name them.

use crate::network::ops::strides;
use crate::plan::layout::Operand;
use crate::providers::common::indexed::Rule;
use crate::providers::common::operand_strides::coalesce;
use crate::providers::cuda::kernels::words::divisor;

/// Runs in the order of their indices.
#[derive(Debug, PartialEq)]
pub struct Runs {
    /// Elements of one.
    pub length: usize,
    /// Extents of the axes that they are counted along.
    pub sizes: Vec<usize>,
    /// Along each, how far on the runs would start if their indices were 0.
    pub starts: Vec<usize>,
    /// Along each, how far on their indices lie.
    pub indices: Vec<usize>,
    /// Extent and stride of the axis that each number of an index counts along.
    pub numbers: Vec<[usize; 2]>,
}

impl Runs {
    /// Those of a tensor under a rule.
    pub fn new(rule: Rule, x: &Operand, indices: &Operand) -> Self {
        let (shape, own) = (x.shape.as_slice(), strides(&x.shape));
        let inside = |axis: usize| shape[axis..].iter().product::<usize>();
        let (length, sizes, starts, steps, numbers) = match rule {
            Rule::Axis(axis) => (
                inside(axis + 1),
                vec![shape[..axis].iter().product(), indices.elements()],
                vec![inside(axis), 0],
                vec![0, 1],
                axis..axis + 1,
            ),
            Rule::Elements(axis) => {
                let mut starts = own.clone();
                starts[axis] = 0;
                let sizes = indices.shape.clone();
                (1, sizes, starts, strides(&indices.shape), axis..axis + 1)
            }
            Rule::Vectors(batch) => {
                let last = indices.shape.len() - 1;
                let count = indices.shape[last];
                let product = |range: std::ops::Range<usize>| indices.shape[range].iter().product::<usize>();
                let (batches, each) = (product(0..batch), product(batch..last));
                (
                    inside(batch + count),
                    vec![batches, each],
                    vec![inside(batch), 0],
                    vec![each * count, count],
                    batch..batch + count,
                )
            }
        };
        let (sizes, mut along) = coalesce(&sizes, &[&starts, &steps]);
        let indices = along.pop().unwrap_or_default();
        Self {
            length,
            sizes,
            starts: along.pop().unwrap_or_default(),
            indices,
            numbers: numbers.map(|axis| [shape[axis], own[axis]]).collect(),
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.sizes.iter().product()
    }

    /// `Runs` of `indices.cuh`, in units of so many elements.
    pub fn words(&self, unit: usize) -> Vec<i64> {
        let extents = self.numbers.iter().map(|[extent, _]| *extent);
        let strides = self.numbers.iter().map(|[_, stride]| stride / unit);
        let starts = self.starts.iter().map(|start| start / unit);
        let lists = starts.chain(self.indices.iter().copied()).chain(extents).chain(strides);
        let sizes = self.sizes.iter().flat_map(|&size| divisor(size));
        sizes.chain(lists.map(|word| word as i64)).collect()
    }

    /// The extents that the numbers of an index count along.
    pub fn extents(&self) -> Vec<usize> {
        self.numbers.iter().map(|[extent, _]| *extent).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::dtype::DType;
    use crate::plan::layout::Layout;

    /// The start of each run, as the kernels find it.
    fn starts(runs: &Runs, indices: &[usize]) -> Vec<usize> {
        let one = |number: usize| {
            let (mut rest, mut start, mut at) = (number, 0, 0);
            for axis in (0..runs.sizes.len()).rev() {
                let place = rest % runs.sizes[axis];
                rest /= runs.sizes[axis];
                start += place * runs.starts[axis];
                at += place * runs.indices[axis];
            }
            let numbers = runs.numbers.iter().enumerate();
            start + numbers.map(|(k, [_, stride])| indices[at + k] * stride).sum::<usize>()
        };
        (0..runs.count()).map(one).collect()
    }

    fn operand(shape: &[usize]) -> Operand {
        Operand::dense(DType::Int64, shape.to_vec(), Layout::Plain)
    }

    #[test]
    fn every_rule_by_hand() {
        let x = operand(&[2, 3, 4]);
        let axis = Runs::new(Rule::Axis(1), &x, &operand(&[2]));
        assert_eq!((axis.length, starts(&axis, &[2, 0])), (4, vec![8, 0, 20, 12]));
        let elements = Runs::new(Rule::Elements(2), &x, &operand(&[2, 2, 1]));
        assert_eq!(
            (elements.length, starts(&elements, &[3, 0, 1, 2])),
            (1, vec![3, 4, 13, 18])
        );
        let vectors = Runs::new(Rule::Vectors(1), &x, &operand(&[2, 2, 1]));
        assert_eq!(
            (vectors.length, starts(&vectors, &[2, 0, 1, 1])),
            (4, vec![8, 0, 16, 16])
        );
        let vectors = Runs::new(Rule::Vectors(0), &x, &operand(&[2, 3]));
        assert_eq!(
            (vectors.length, starts(&vectors, &[1, 2, 3, 0, 1, 0])),
            (1, vec![23, 4])
        );
        assert_eq!(vectors.extents(), [2, 3, 4]);
        let scalar = Runs::new(Rule::Axis(0), &operand(&[5]), &operand(&[]));
        assert_eq!((scalar.length, starts(&scalar, &[4])), (1, vec![4]));
    }
}
