//! A convolution as kernels on pixels see it.

/// A convolution over two axes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Images.
    pub images: usize,
    /// Height and width of the input.
    pub input: [usize; 2],
    /// And of the result.
    pub output: [usize; 2],
    /// And of the kernel.
    pub kernel: [usize; 2],
    /// Padding before.
    pub begin: [i64; 2],
    /// Steps along both axes.
    pub strides: [usize; 2],
    /// Between elements of the kernel.
    pub dilations: [usize; 2],
    /// Channels of the input.
    pub channels: usize,
    /// And of the result.
    pub results: usize,
}

impl Problem {
    /// Pixels of the result.
    pub fn pixels(&self) -> usize {
        self.images * self.output[0] * self.output[1]
    }

    /// Elements of the kernel.
    pub fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// How far the last element of the kernel is from the first one.
    pub fn reach(&self) -> [usize; 2] {
        [0, 1].map(|axis| (self.kernel[axis] - 1) * self.dilations[axis])
    }

    /// Whether pixels are rows of a matrix, each of which is looked at by itself.
    pub fn is_rows(&self) -> bool {
        let each = self.taps() == 1 && self.strides == [1, 1] && !self.sees_outside();
        each && self.images == 1 && self.input == self.output && self.input[0] == 1
    }

    /// Whether a window sees anything beyond the image.
    pub fn sees_outside(&self) -> bool {
        let last = |axis: usize| (self.output[axis] - 1) * self.strides[axis] + self.reach()[axis];
        [0, 1].into_iter().any(|axis| {
            let begin = self.begin[axis];
            begin > 0 || last(axis) as i64 - begin >= self.input[axis] as i64
        })
    }

    /// Whether large tiles leave some of so many processors idle.
    pub fn is_small(&self, processors: usize) -> bool {
        /// Rows and columns of such a tile.
        const LARGE: usize = 128;
        self.pixels().div_ceil(LARGE) * self.results.div_ceil(LARGE) <= processors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One row of pixels, so many of the input and of the result.
    fn row(input: usize, output: usize, kernel: usize, begin: i64, stride: usize) -> Problem {
        Problem {
            images: 1,
            input: [1, input],
            output: [1, output],
            kernel: [1, kernel],
            begin: [0, begin],
            strides: [1, stride],
            dilations: [1, 1],
            channels: 16,
            results: 16,
        }
    }

    #[test]
    fn windows_see_outside_before_the_first_pixel_and_behind_the_last_one() {
        assert!(!row(9, 7, 3, 0, 1).sees_outside());
        assert!(row(9, 8, 3, 0, 1).sees_outside());
        assert!(row(9, 7, 3, 1, 1).sees_outside());
        assert!(!row(9, 9, 1, 0, 1).sees_outside());
        assert!(row(9, 11, 1, 0, 1).sees_outside());
        assert!(!row(10, 4, 3, 0, 2).sees_outside());
    }

    #[test]
    fn rows_are_pixels_that_are_each_looked_at_by_itself() {
        assert!(row(9, 9, 1, 0, 1).is_rows());
        assert!(!row(9, 9, 3, 1, 1).is_rows());
        // As many, and others: pixels -1, 1 and 3.
        assert!(!row(3, 3, 1, 1, 2).is_rows());
    }
}
