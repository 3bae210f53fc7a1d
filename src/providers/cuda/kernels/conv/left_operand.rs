//! What a convolution multiplies as an implicit GEMM, as the copy engine of Hopper brings it.

use super::problem::Problem;
use crate::error::Result;
use crate::network::dtype::DType;
use crate::plan::Call;
use crate::providers::cuda::device::{Arguments, Boxes, Device, Windows};
use crate::providers::cuda::kernels::launch::fields;

/// Images as im2col matrices.
pub const SOURCE: &str = include_str!("../../../../../kernels/windows.cuh");
/// Bytes of an element.
const WIDTH: usize = 2;

/// The left operand: pixels as rows, or as the rows of an im2col matrix. Its elements have 16 bits.
pub enum LeftOperand {
    /// Pixels that are each looked at by itself.
    Rows(Boxes),
    /// Windows.
    Windows(Windows),
}

/// The bytes of a row that are brought at once.
pub fn line(of: &Problem) -> Option<usize> {
    match of.is_rows() {
        true if of.channels > 32 => Some(128),
        true => Some(64),
        false if of.channels.is_multiple_of(64) => Some(128),
        false if of.channels.is_multiple_of(32) => Some(64),
        false if of.channels.is_multiple_of(16) => Some(32),
        false => None,
    }
}

/// How often a step brings a line of so many bytes: one short line takes longer to wait for than to multiply.
pub fn lines(line: usize, terms: usize) -> usize {
    const MOST: usize = 4;
    let steps = terms.div_ceil(line / WIDTH);
    let all = if line == 32 { 1..=MOST } else { 1..=1 };
    all.rev().find(|&lines| steps.is_multiple_of(lines)).unwrap_or(1)
}

impl LeftOperand {
    /// That of a convolution whose pixels are so many elements apart; so many rows of so many bytes are brought at once. None where the
    /// copy engine does not bring it.
    pub fn new(of: &Problem, dtype: DType, pixel: usize, [rows, line]: [usize; 2]) -> Option<Self> {
        let pixel = pixel * WIDTH;
        if of.is_rows() {
            return Some(Self::Rows(Boxes {
                dtype,
                extents: vec![of.channels, of.pixels(), 1],
                strides: vec![pixel, pixel * of.pixels()],
                size: vec![line / WIDTH, rows, 1],
            }));
        }
        let windows = windows(of, dtype, pixel, [line / WIDTH, rows]);
        (windows.fits() && of.reach().iter().all(|&far| far < 256)).then_some(Self::Windows(windows))
    }

    /// `Windows` of `windows.cuh`.
    ///
    /// # Errors
    /// If they are too large.
    pub fn words(&self, of: &Problem) -> Result<Vec<i32>> {
        let words = |extents: &[usize]| extents.iter().map(|&word| word as i64).collect::<Vec<_>>();
        let image = [&[of.channels, of.kernel[1]], &of.output[..], &of.strides].concat();
        match self {
            Self::Rows(_) => Ok(vec![]),
            Self::Windows(_) => fields([words(&image), of.begin.to_vec(), words(&of.dilations)].concat()),
        }
    }

    /// The parameter of a kernel for these words, and what it makes of that and of `left`, its map.
    pub fn text(&self) -> [&'static str; 2] {
        match self {
            LeftOperand::Rows(_) => ["", "LeftRows{&left, 0}"],
            LeftOperand::Windows(_) => [", const Windows windows", "LeftWindows{&left, windows}"],
        }
    }

    /// What rows are of, for reports.
    pub fn describe(&self) -> &'static str {
        match self {
            LeftOperand::Rows(_) => "rows",
            LeftOperand::Windows(_) => "pixels",
        }
    }

    /// Passes the map of the first input of a call.
    ///
    /// # Errors
    /// If the driver has no such map.
    pub fn pass(&self, arguments: &mut Arguments, device: &Device, call: &Call) -> Result<()> {
        arguments.map(&match self {
            LeftOperand::Rows(boxes) => boxes.at(device, call.inputs[0])?,
            LeftOperand::Windows(windows) => windows.at(device, call.inputs[0])?,
        });
        Ok(())
    }
}

fn windows(of: &Problem, dtype: DType, pixel: usize, size: [usize; 2]) -> Windows {
    let [rows, columns] = of.input;
    let last = |axis: usize| ((of.output[axis] - 1) * of.strides[axis]) as i64;
    let upper = |axis: usize| (last(axis) - of.begin[axis] - (of.input[axis] as i64 - 1)) as i32;
    Windows {
        dtype,
        extents: [of.channels, columns, rows, of.images],
        strides: [pixel, pixel * columns, pixel * columns * rows],
        lower: [1, 0].map(|axis: usize| -of.begin[axis] as i32),
        upper: [upper(1), upper(0)],
        steps: [of.strides[1], of.strides[0]],
        size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_end_where_the_last_one_begins() {
        let of = Problem {
            images: 3,
            input: [19, 14],
            output: [10, 7],
            kernel: [3, 3],
            begin: [1, 1],
            strides: [2, 2],
            dilations: [1, 1],
            channels: 64,
            results: 192,
        };
        let Some(LeftOperand::Windows(windows)) = LeftOperand::new(&of, DType::Float16, 64, [128, 128]) else {
            panic!("no windows");
        };
        assert_eq!(windows.extents, [64, 14, 19, 3]);
        assert_eq!(windows.strides, [128, 128 * 14, 128 * 14 * 19]);
        // Columns 0 to 11 and rows 0 to 17, each less one, are the first ones that a window sees.
        assert_eq!((windows.lower, windows.upper), ([-1, -1], [-2, -1]));
    }
}
