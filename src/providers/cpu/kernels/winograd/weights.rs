//! Weights as the products read them.

use super::{LANES, POINTS, SIDE};
use crate::error::Result;
use crate::network::array::{Array, Buffer, bytes_of};
use crate::network::dtype::DType;
use crate::providers::cpu::kernels::parallel;
use crate::providers::cpu::team;

/// Vectors of channels of the result that are computed side by side.
pub const WIDTH: usize = 4;

/// A number for each of some channels of the result, which lie side by side.
type Lanes = [f64; LANES];

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
                for (block, input) in blocks.flat_map(|block| (0..c).map(move |input| (block, input))) {
                    let out = block * LANES;
                    let kernels = [0, 1, 2].map(|y| [0, 1, 2].map(|x| made.lanes(out, input, 3 * y + x)));
                    for (point, values) in transformed(&kernels).into_iter().flatten().enumerate() {
                        // SAFETY: the place lies in the buffer, with the lanes behind it, which are those of these channels alone.
                        let to = unsafe { &mut *to.get().add(made.place(point, out, input)).cast::<[f32; LANES]>() };
                        to.iter_mut().zip(values).for_each(|(to, value)| *to = value as f32);
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

    /// This element of the kernels of an input channel, for neighbouring channels of the result.
    fn lanes(&self, out: usize, input: usize, element: usize) -> Lanes {
        std::array::from_fn(|lane| {
            // SAFETY: the source has [K, C, 3, 3] floats, and these are indices below.
            f64::from(unsafe { *self.plain(out + lane).add(9 * input + element) })
        })
    }

    fn place(&self, point: usize, out: usize, input: usize) -> usize {
        let [c, k] = self.channels;
        let block = out / (WIDTH * LANES);
        let (width, lane) = (self.width(block) * LANES, out % (WIDTH * LANES));
        point * c * k + c * block * WIDTH * LANES + input * width + lane
    }
}

/// `G g G'` of kernels, row by row.
fn transformed(kernels: &[[Lanes; 3]; 3]) -> [[Lanes; SIDE]; SIDE] {
    let columns = [0, 1, 2].map(|x| along([&kernels[0][x], &kernels[1][x], &kernels[2][x]]));
    std::array::from_fn(|y| along([&columns[0][y], &columns[1][y], &columns[2][y]]))
}

/// `G g`, with the G of F(2, 3): rows 1 0 0, 1/2 1/2 1/2, 1/2 -1/2 1/2, 0 0 1.
fn along([first, middle, last]: [&Lanes; 3]) -> [Lanes; SIDE] {
    let mut result = [*first, [0.0; LANES], [0.0; LANES], *last];
    for lane in 0..LANES {
        let ends = 0.5 * (first[lane] + last[lane]);
        result[1][lane] = ends + 0.5 * middle[lane];
        result[2][lane] = ends - 0.5 * middle[lane];
    }
    result
}
