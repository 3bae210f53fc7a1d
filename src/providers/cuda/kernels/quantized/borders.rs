//! What windows see of an image at its borders: which elements of a kernel are within, for each pixel of a result.

use crate::providers::cuda::kernels::conv::problem::Problem;
use crate::providers::cuda::kernels::words::divisor;
use std::ops::Range;

/// Along one axis: places of the result that see the image with the same elements of the kernel are of one class.
#[derive(Debug, PartialEq, Eq)]
struct Axis {
    /// The elements that see the image in each class.
    classes: Vec<Range<usize>>,
    /// The class of each place.
    of: Vec<usize>,
}

impl Axis {
    fn new(found: &Problem, axis: usize) -> Self {
        let (mut classes, mut of) = (Vec::new(), Vec::new());
        for place in 0..found.output[axis] {
            let seen = seen(found, axis, place);
            let class = classes.iter().position(|class| *class == seen);
            of.push(class.unwrap_or(classes.len()));
            if class.is_none() {
                classes.push(seen);
            }
        }
        Self { classes, of }
    }
}

/// The elements of the kernel along an axis that see the image at a place of the result: neighbours.
fn seen(found: &Problem, axis: usize, place: usize) -> Range<usize> {
    let first = (place * found.strides[axis]) as i64 - found.begin[axis];
    let within = |tap: usize| (0..found.input[axis] as i64).contains(&(first + (tap * found.dilations[axis]) as i64));
    let taps = 0..found.kernel[axis];
    let count = taps.clone().filter(|&tap| within(tap)).count();
    let begin = taps.clone().find(|&tap| within(tap)).unwrap_or(0);
    begin..begin + count
}

/// Along rows and columns: pixels of the result are of as many classes as there are pairs.
pub struct Borders {
    axes: [Axis; 2],
    width: usize,
}

impl Borders {
    /// Those of a convolution.
    pub fn new(found: &Problem) -> Self {
        Self {
            axes: [0, 1].map(|axis| Axis::new(found, axis)),
            width: found.kernel[1],
        }
    }

    /// For each class whether each element of the kernel sees the image.
    pub fn classes(&self) -> impl Iterator<Item = impl Fn(usize) -> bool> {
        let ([rows, columns], width) = (&self.axes, self.width);
        let of_row = move |row| columns.classes.iter().map(move |column| (row, column));
        let sees = move |(row, column): (&Range<usize>, &Range<usize>)| {
            let (row, column) = (row.clone(), column.clone());
            move |tap: usize| row.contains(&(tap / width)) && column.contains(&(tap % width))
        };
        rows.classes.iter().flat_map(of_row).map(sees)
    }

    /// `Borders` of `implicit_gemm.cu`, for lists of so many numbers.
    pub fn words(&self, listed: usize) -> Vec<i64> {
        let extents = self.axes.iter().flat_map(|axis| divisor(axis.of.len()));
        std::iter::once((self.count() * listed) as i64).chain(extents).collect()
    }

    /// How many there are.
    fn count(&self) -> usize {
        self.axes.iter().map(|axis| axis.classes.len()).product()
    }

    /// For each row of the result and then for each column, numbers whose sum is the class of a pixel.
    pub fn parts(&self) -> impl Iterator<Item = usize> + '_ {
        let [rows, columns] = &self.axes;
        let each = columns.classes.len();
        rows.of
            .iter()
            .map(move |class| class * each)
            .chain(columns.of.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(input: [usize; 2], output: [usize; 2], kernel: usize, begin: i64, stride: usize) -> Problem {
        Problem {
            images: 2,
            input,
            output,
            kernel: [kernel; 2],
            begin: [begin; 2],
            strides: [stride; 2],
            dilations: [1; 2],
            channels: 32,
            results: 64,
        }
    }

    #[test]
    fn places_that_see_the_same_are_of_one_class() {
        let axis = Axis::new(&problem([6, 9], [6, 9], 3, 1, 1), 0);
        assert_eq!(axis.classes, [1..3, 0..3, 0..2]);
        assert_eq!(axis.of, [0, 1, 1, 1, 1, 2]);
        // Of an even length, windows two apart end within the image.
        let axis = Axis::new(&problem([6, 8], [3, 4], 3, 1, 2), 1);
        assert_eq!((axis.classes, axis.of), (vec![1..3, 0..3], vec![0, 1, 1, 1]));
    }

    #[test]
    fn elements_apart_jump_over_the_border_and_windows_may_see_nothing() {
        let mut found = problem([3, 3], [5, 5], 3, 3, 1);
        found.dilations = [2; 2];
        assert_eq!(
            [0, 1, 2, 3, 4].map(|place| seen(&found, 0, place)),
            [2..3, 1..3, 1..2, 0..2, 0..1]
        );
        assert_eq!(seen(&problem([2, 2], [6, 6], 1, 2, 1), 0, 0), 0..0);
        assert_eq!(seen(&problem([2, 2], [6, 6], 1, 2, 1), 0, 5), 0..0);
    }

    #[test]
    fn parts_of_a_pixel_name_its_class() {
        let borders = Borders::new(&problem([4, 5], [4, 5], 3, 1, 1));
        assert_eq!(borders.count(), 9);
        let parts: Vec<usize> = borders.parts().collect();
        assert_eq!(parts, [0, 3, 3, 6, 0, 1, 1, 1, 2]);
        // The lower right corner sees the upper left of the kernel.
        let corner = borders.classes().nth(parts[3] + parts[8]).unwrap();
        let seen: Vec<usize> = (0..9).filter(|&tap| corner(tap)).collect();
        assert_eq!(seen, [0, 1, 3, 4]);
    }
}
