//! Weights as the products read them.

use super::{LANES, POINTS, SIDE};
use crate::error::Result;
use crate::network::array::{Array, Buffer, bytes_of};
use crate::network::dtype::DType;
use crate::providers::cpu::kernels::parallel;
use crate::providers::cpu::team;

/// Vectors of channels of the result that are computed side by side.
pub const WIDTH: usize = 4;

/// G of F(2, 3).
const MATRIX: [[f64; 3]; SIDE] = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.0, 0.0, 1.0]];

/// `G g G'` of every pair of channels: by point, then by [`WIDTH`] vectors of channels of the result, then by channels of the input.
pub struct Transformed {
    /// Channels of the input, and of the result.
    pub channels: [usize; 2],
    held: Buffer,
    /// As the model has them.
    source: Array,
}

impl Transformed {
    /// Of weights [K, C, 3, 3] in float32.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn new(weights: &Array, threads: usize) -> Result<Self> {
        let (k, c) = (weights.shape()[0], weights.shape()[1]);
        let made = Self {
            channels: [c, k],
            held: Buffer::try_zeroed(bytes_of(DType::Float32, &[POINTS, c, k])?)?,
            source: weights.clone(),
        };
        let to = parallel::Address(made.held.as_ptr().cast::<f32>());
        team::run(threads, || {
            parallel::over(k / LANES, 1, |blocks| {
                let mut kernel = [0.0; 9];
                for pair in blocks.start * LANES * c..blocks.end * LANES * c {
                    weights.load_f64s(pair * 9, &mut kernel);
                    for (point, value) in transformed(&kernel).into_iter().enumerate() {
                        // SAFETY: the place lies in the buffer, and is that of this pair of channels alone.
                        unsafe { *to.get().add(made.place(point, pair / c, pair % c)) = value as f32 };
                    }
                }
            })
        })?;
        Ok(made)
    }

    /// Where the kernels [C, 3, 3] of a channel of the result begin, as the model has them.
    pub fn plain(&self, out: usize) -> *const f32 {
        let start = out * self.channels[0] * 9;
        self.source.bytes().as_ptr().cast::<f32>().wrapping_add(start)
    }

    /// Bytes.
    pub fn bytes(&self) -> usize {
        self.held.len()
    }

    /// Vectors of channels of the result that the block with this number has.
    pub fn width(&self, block: usize) -> usize {
        WIDTH.min(self.channels[1] / LANES - block * WIDTH)
    }

    /// Blocks of channels of the result.
    pub fn blocks(&self) -> usize {
        (self.channels[1] / LANES).div_ceil(WIDTH)
    }

    /// Where the weights of a point and a block begin.
    pub fn block(&self, point: usize, block: usize) -> *const f32 {
        let [c, k] = self.channels;
        let start = point * c * k + c * block * WIDTH * LANES;
        self.held.as_ptr().cast::<f32>().wrapping_add(start)
    }

    fn place(&self, point: usize, out: usize, input: usize) -> usize {
        let [c, k] = self.channels;
        let block = out / (WIDTH * LANES);
        let (width, lane) = (self.width(block) * LANES, out % (WIDTH * LANES));
        point * c * k + c * block * WIDTH * LANES + input * width + lane
    }
}

/// `G g G'` of one kernel, row by row.
fn transformed(kernel: &[f64; 9]) -> [f64; POINTS] {
    let dot = |row: &[f64; 3], values: [f64; 3]| row.iter().zip(values).map(|(a, b)| a * b).sum();
    let mut result = [0.0; POINTS];
    for (i, row) in MATRIX.iter().enumerate() {
        let rows = [0, 1, 2].map(|x| dot(row, [0, 1, 2].map(|y| kernel[3 * y + x])));
        for (j, column) in MATRIX.iter().enumerate() {
            result[i * SIDE + j] = dot(column, rows);
        }
    }
    result
}
