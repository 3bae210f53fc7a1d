//! The first convolution of a network, of images with few channels: the kernel of `stem.cu`, on tensor cores.

use super::super::Gpu;
use super::super::launch::fields;
use super::super::pointwise::code::element;
use super::super::spare::Spare;
use super::direct::{Direct, code, numbers, sides};
use crate::error::{Error, Result};
use crate::network::dtype::DType;
use crate::plan::{Call, Instance, Launcher, Prepared};
use crate::providers::cuda::compile::{EntryPoint, compiled};
use crate::providers::cuda::device::{Arguments, Grid};
use crate::providers::cuda::library::cudnn::Convolution;
use std::sync::Arc;

/// The kernel.
pub const SOURCE: &str = include_str!("../../../../../kernels/stem.cu");
/// Threads of a block.
pub const THREADS: u32 = 256;
/// Places that a block computes at once, along each axis.
const TILE: i64 = 16;
/// Channels of a chunk: a block computes one or two of them.
const CHUNK: i64 = 32;
/// Bytes and elements that are written at once.
const PACK: [usize; 2] = [16, 8];

/// Whether the kernel is for a convolution of so many channels with such a window, all of which is compiled in.
pub fn fits([results, channels]: [i64; 2], kernel: &[i64], strides: &[i64], dilations: &[i64]) -> bool {
    let [&[height, width], &[down, across]] = [kernel, strides] else {
        return false;
    };
    // Channels are padded where two neighbours would not begin at an even place; a row of the kernel is four pairs or more.
    let padded = channels + across * channels % 2;
    (1..=4).contains(&channels)
        && results % PACK[1] as i64 == 0
        && height <= 7
        && width <= 7
        && down == across
        && across <= 2
        && dilations == [1, 1]
        && (width * padded + 1) / 2 >= 4
}

/// A convolution of few channels.
pub struct Stem {
    function: EntryPoint,
    shape: Vec<i32>,
    grid: Grid,
    convolution: Convolution,
    spare: Spare,
}

impl Stem {
    /// The kernel for a convolution that [`fits`], of an input in any layout, of the weights' type or
    /// float32.
    ///
    /// # Errors
    /// If the result is a slice at odd places.
    pub fn new(gpu: &Arc<Gpu>, c: &Convolution, from: DType) -> Result<Self> {
        if c.residual.is_some()
            || !c.after.is_nothing()
            || c.y.step() % PACK[1] as i64 != 0
            || c.w.step() != c.w.sizes[1]
        {
            return Err(
                Error::unsupported("a convolution is not for the kernel of few channels").got(format!("{c:?}")),
            );
        }
        let share = Share::of(gpu, c);
        Ok(Self {
            function: gpu.compiler.entry(&source(c, &share, from), "first_convolution", 0),
            shape: fields(share.words)?,
            grid: share.grid,
            spare: Direct::spare(gpu, c, from),
            convolution: c.clone(),
        })
    }

    /// It as a kernel at concrete shapes.
    pub fn prepared(self) -> Prepared {
        compiled(
            [self.function.clone()],
            Instance::new("few channels, on tensor cores", self),
        )
    }
}

/// How the work is shared.
pub struct Share {
    /// `Shape` of `stem.cu`.
    pub words: Vec<i64>,
    /// The blocks.
    pub grid: Grid,
    /// 32 times how many channels a block computes.
    chunks: u32,
}

impl Share {
    /// For a convolution that [`fits`].
    pub fn of(gpu: &Gpu, c: &Convolution) -> Self {
        let chunks = if c.y.sizes[1] > CHUNK { 2 } else { 1 };
        let across = (c.y.sizes[1] as u32).div_ceil(chunks * CHUNK as u32);
        /// Blocks that a multiprocessor holds; each brings its weights once, for all tiles that it computes.
        const BLOCKS: u32 = 2;
        let (words, tiles) = words(c);
        let along = (gpu.device.multiprocessors * BLOCKS).div_ceil(across);
        Self {
            words,
            grid: Grid {
                blocks: [along.min(tiles as u32), across, 1],
                threads: THREADS,
            },
            chunks,
        }
    }

    /// The last numbers that `stem` is compiled for.
    pub fn window(&self, c: &Convolution) -> String {
        let [height, width] = [2, 3].map(|axis| c.w.sizes[axis]);
        let (channels, stride) = (c.x.sizes[1], c.strides[1]);
        format!("{height}, {width}, {channels}, {stride}, {}", self.chunks)
    }
}

fn source(c: &Convolution, share: &Share, from: DType) -> String {
    let ty = element(c.dtype).unwrap_or("float16");
    let x = if from == DType::Float32 { "float" } else { "uint16" };
    let (window, terms) = (share.window(c), c.w.sizes[1..].iter().product::<i64>());
    let code = code(c.activation);
    format!(
        "{SOURCE}\nextern \"C\" __global__ void __launch_bounds__({THREADS}, 2) first_convolution({ty}* y, const {x}* x, \
         const uint16* w, const {ty}* bias, const Shape shape) {{\n    \
         stem<{ty}, {x}, uint16, {window}>(x, w, {terms}, ({x})0, AsTheyAre<{ty}>{{}}, ActivatedWriter<{ty}, {code}>{{y, bias}}, \
         shape);\n}}\n"
    )
}

/// `Shape` of `stem.cu`, and how many tiles there are.
fn words(c: &Convolution) -> (Vec<i64>, i64) {
    let mut words = [&c.x.sizes[2..], &c.y.sizes[2..], &c.y.sizes[1..2], &c.begin].concat();
    words.extend(numbers(c.activation));
    words.extend(&c.x.strides);
    let [down, across] = [2, 3].map(|axis| (c.y.sizes[axis] + TILE - 1) / TILE);
    let tiles = down * across * c.y.sizes[0];
    words.extend([c.y.step(), across, down, tiles]);
    (words, tiles)
}

impl Launcher for Stem {
    fn launch(&mut self, call: &Call) -> Result<()> {
        if !call.outputs[0].addr().is_multiple_of(PACK[0]) {
            return self.spare.launch(call);
        }
        let [bias, ..] = sides(&self.convolution, call);
        let mut arguments = Arguments::default();
        for address in [call.outputs[0].cast_const(), call.inputs[0], call.inputs[1], bias] {
            arguments.address(address);
        }
        arguments.fields(&self.shape);
        // SAFETY: these are the parameters that the source declares, for operands that the planner vouches for.
        unsafe { self.function.launch(self.grid, &arguments, call.stream) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::cuda::library::cudnn::{After, Tensor};

    #[test]
    fn stems_of_known_networks_fit() {
        let fits = |channels: [i64; 2], kernel: i64, stride: i64| fits(channels, &[kernel; 2], &[stride; 2], &[1, 1]);
        assert!(fits([64, 3], 7, 2) && fits([32, 3], 3, 2) && fits([64, 3], 3, 1) && fits([32, 3], 6, 2));
        assert!(!fits([64, 8], 3, 2) && !fits([64, 1], 3, 2) && !fits([63, 3], 3, 2) && !fits([64, 3], 11, 4));
    }

    #[test]
    fn tiles_cover_the_result() {
        let c = Convolution {
            dtype: DType::Float16,
            tf32: false,
            transposed: false,
            x: Tensor::dense(vec![2, 3, 224, 224]),
            w: Tensor::dense(vec![64, 3, 7, 7]),
            y: Tensor::dense(vec![2, 64, 112, 113]),
            strides: vec![2, 2],
            dilations: vec![1, 1],
            begin: vec![3, 3],
            end: vec![3, 3],
            bias: true,
            residual: None,
            activation: None,
            after: After::default(),
        };
        let (words, tiles) = words(&c);
        assert_eq!(tiles, 7 * 8 * 2);
        assert_eq!(
            words,
            [
                224,
                224,
                112,
                113,
                64,
                3,
                3,
                0,
                0,
                224 * 224 * 3,
                1,
                672,
                3,
                64,
                8,
                7,
                112
            ]
        );
    }
}
