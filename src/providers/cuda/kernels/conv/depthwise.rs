//! Convolutions of each channel by itself: the kernel of `depthwise.cu`.

use super::super::Gpu;
use super::super::launch::fields;
use super::super::pointwise::code::element;
use super::super::words::divisor;
use super::direct::{WIDEST, after, code, numbers, pack, parameters, sides};
use crate::error::{Error, Result};
use crate::network::dtype::DType;
use crate::plan::{Call, Instance, Launcher, Prepared};
use crate::providers::cuda::compile::{EntryPoint, compiled};
use crate::providers::cuda::device::{Arguments, Grid};
use crate::providers::cuda::library::cudnn::Convolution;

const SOURCE: &str = include_str!("../../../../../kernels/depthwise.cu");
/// Threads of a block, at most.
const THREADS: usize = 256;
/// Packs of channels that a block computes, at most; neighbouring threads read neighbouring packs.
const MOST_GROUPS: usize = 32;
/// Bytes of weights that a block keeps.
const MOST_WEIGHTS: usize = 48 << 10;
/// `ROOM` of `depthwise.cu`, in floats.
const ROOM: usize = 4;

/// Results of a channel that the kernel can have: packs of them are those of whole channels, or of one.
const EACH: [i64; 3] = [1, 2, 4];

/// Whether the kernel is for a convolution of these extents and steps, with so many results of each channel: its width and step along
/// rows are compiled in.
pub fn fits(dtype: DType, each: i64, kernel: &[i64], strides: &[i64], dilations: &[i64]) -> bool {
    let last = kernel.len() - 1;
    matches!(dtype, DType::Float16 | DType::BFloat16 | DType::Float32)
        && EACH.contains(&each)
        && kernel.len() <= 2
        && (1..=7).contains(&kernel[last])
        && kernel[0] <= 11
        && strides[last] <= 2
        && dilations[last] == 1
}

/// What a thread computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Work {
    /// Channels.
    pack: usize,
    /// Places along a row.
    run: usize,
    /// Rows.
    rows: usize,
}

impl Work {
    /// So much that each multiprocessor still has threads enough, for packs of at most so many channels: what was fastest of all
    /// such for 18 convolutions on an H100 (docs/cuda-tuning.md).
    fn new(c: &Convolution, widest: usize, multiprocessors: usize) -> Self {
        let results = c.y.sizes.iter().product::<i64>() as usize;
        let width = c.w.sizes[3];
        // Two rows see most of their rows together, if one follows the other.
        let both = c.strides == [1, 1] && c.dilations[0] == 1;
        if let Some([pack, run]) = of_two_rows(width, results / multiprocessors).filter(|_| both) {
            return Self {
                pack: pack.min(widest),
                run,
                rows: 2,
            };
        }
        /// Threads of a multiprocessor; wide kernels have much to do, and gain most from pixels that several places see.
        const THREADS: [usize; 2] = [192, 96];
        let each = results / (multiprocessors * THREADS[usize::from(width > 5)]);
        let apart = c.strides[1] > 1;
        let [pack, run] = match each {
            32.. if !apart && width != 5 => [4, 8],
            16.. => [4, 4],
            8.. => [4, 2],
            _ if apart => [4, 1],
            _ => [2, 2],
        };
        Self {
            pack: pack.min(widest),
            run,
            rows: 1,
        }
    }

    /// Runs of a row.
    fn runs(&self, c: &Convolution) -> i64 {
        (c.y.sizes[3] as usize).div_ceil(self.run) as i64
    }

    /// Runs of all strips of rows of all images.
    fn items(&self, c: &Convolution) -> i64 {
        let strips = (c.y.sizes[2] as usize).div_ceil(self.rows) as i64;
        self.runs(c) * strips * c.y.sizes[0]
    }

    /// Rows of the kernel that are loaded before they are used: all, where registers hold them, or 0.
    fn height(&self, c: &Convolution) -> i64 {
        /// Bytes of pixels that a thread holds.
        const HELD: i64 = 240;
        let [height, width] = [c.w.sizes[2], c.w.sizes[3]];
        let seen = (self.run as i64 - 1) * c.strides[1] + width;
        let bytes = height * seen * (self.pack * c.dtype.size()) as i64;
        if bytes <= HELD && self.rows == 1 { height } else { 0 }
    }
}

/// Channels and places of a thread that computes two rows, where that pays: for kernels of a width, and so many results of a
/// multiprocessor.
fn of_two_rows(width: i64, results: usize) -> Option<[usize; 2]> {
    match (width, results) {
        (6.., 4_000..) => Some([2, 8]),
        (5, 10_000..) | (..5, 15_000..) => Some([4, 4]),
        (5, 4_000..) | (..5, 5_000..) => Some([4, 2]),
        _ => None,
    }
}

/// How the work is shared among blocks.
#[derive(Debug, PartialEq, Eq)]
struct Share {
    work: Work,
    /// Packs of channels of a block.
    groups: usize,
    threads: usize,
    blocks: [u32; 3],
    shared_bytes: usize,
}

impl Share {
    /// As many channels to a block as leave something for every multiprocessor to do.
    fn new(c: &Convolution, work: Work, multiprocessors: usize) -> Self {
        let [height, width] = [c.w.sizes[2] as usize, c.w.sizes[3] as usize];
        let packs = c.y.sizes[1] as usize / work.pack;
        let items = work.items(c) as usize;
        let bytes = |groups: usize| (groups * work.pack + ROOM) * height * width * size_of::<f32>();
        let lines = |groups: usize| (THREADS / groups).min(items);
        let fit = |groups: &usize| packs.is_multiple_of(*groups) && bytes(*groups) <= MOST_WEIGHTS;
        let blocks = |groups: usize| packs / groups * items.div_ceil(lines(groups));
        let all = || (1..=MOST_GROUPS.min(packs)).rev().filter(fit);
        let enough = all().find(|&groups| groups >= 4 && blocks(groups) >= multiprocessors);
        let groups = enough
            .or_else(|| all().rfind(|&groups| groups >= 4))
            .or_else(|| all().next())
            .unwrap_or(1);
        /// Blocks that a multiprocessor is given, of one row and of two: each brings its weights once, for all that it computes.
        const BLOCKS: [usize; 2] = [8, 2];
        let across = packs / groups;
        let most = (multiprocessors * BLOCKS[work.rows - 1]).div_ceil(across);
        let along = items.div_ceil(lines(groups)).min(most);
        Self {
            work,
            groups,
            threads: groups * lines(groups),
            blocks: [along as u32, across as u32, 1],
            shared_bytes: bytes(groups),
        }
    }
}

/// A convolution of each channel by itself.
pub struct Depthwise {
    packed: (Share, EntryPoint),
    /// For addresses that are at odd places, which are rare: compiled when they come.
    single: (Share, EntryPoint),
    convolution: Convolution,
}

impl Depthwise {
    /// The kernel for a convolution with two spatial axes; `held` says that nobody writes the weights any more.
    ///
    /// # Errors
    /// If it is too large, or its weights are a slice.
    pub fn new(gpu: &Gpu, c: &Convolution, held: bool) -> Result<Self> {
        let residual = c.residual.as_ref().unwrap_or(&c.y);
        let most = pack(
            WIDEST / c.dtype.size(),
            &[c.y.sizes[1], c.x.step(), c.y.step(), residual.step()],
        );
        if c.w.step() != 1 {
            return Err(Error::unsupported("the weights of a convolution are a slice"));
        }
        // The numbers that a launch takes are known to fit.
        let shared = |widest: usize| Self::shared(gpu, c, widest, held);
        let (packed, single) = (shared(most), shared(1));
        for (share, _) in [&packed, &single] {
            fields(words(c, share))?;
        }
        Ok(Self {
            packed,
            single,
            convolution: c.clone(),
        })
    }

    /// It as a kernel at concrete shapes.
    pub fn prepared(self) -> Prepared {
        let Work { pack, run, rows } = self.packed.0.work;
        let of_rows = if rows > 1 {
            format!(" of {rows} rows")
        } else {
            String::new()
        };
        let how = format!("depthwise, {pack} channels and {run} places{of_rows} a thread");
        compiled([self.packed.1.clone()], Instance::new(how, self))
    }

    fn shared(gpu: &Gpu, c: &Convolution, widest: usize, held: bool) -> (Share, EntryPoint) {
        let multiprocessors = gpu.device.multiprocessors as usize;
        let work = Work::new(c, widest, multiprocessors);
        let share = Share::new(c, work, multiprocessors);
        let source = source(c, work, held);
        let function = gpu.compiler.entry(&source, "depthwise_convolution", share.shared_bytes);
        (share, function)
    }
}

fn source(c: &Convolution, work: Work, held: bool) -> String {
    let ty = element(c.dtype).unwrap_or("float");
    let (width, stride, each) = (c.w.sizes[3], c.strides[1], c.y.sizes[1] / c.x.sizes[1]);
    let (Work { pack, run, rows }, height) = (work, work.height(c));
    let (code, after, parameters) = (code(c.activation), after(c), parameters(ty));
    format!(
        "{SOURCE}\nextern \"C\" __global__ void __launch_bounds__({THREADS}) depthwise_convolution({ty}* y, const {ty}* x, \
         const {ty}* w, {parameters}, const Shape shape) {{\n    \
         depthwise<{ty}, {pack}, {each}, {height}, {width}, {stride}, {run}, {rows}, {code}, {after}, {held}>(y, x, w, bias, residual, scale, \
         shift, shape);\n}}\n"
    )
}

/// `Shape` of `depthwise.cu`.
fn words(c: &Convolution, share: &Share) -> Vec<i64> {
    let residual = c.residual.as_ref().unwrap_or(&c.y);
    let mut words = [&c.x.sizes[2..], &c.y.sizes[2..], &c.w.sizes[2..3]].concat();
    words.extend([c.strides[0], c.dilations[0], c.begin[0], c.begin[1]]);
    words.extend([c.x.step(), c.y.step(), residual.step()]);
    words.extend(numbers(c.activation));
    words.extend([share.groups as i64, share.work.runs(c), share.work.items(c)]);
    words.extend(divisor((c.w.sizes[2] * c.w.sizes[3]) as usize));
    words
}

impl Launcher for Depthwise {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let c = &self.convolution;
        let operands = [call.outputs[0].cast_const(), call.inputs[0], call.inputs[1]];
        let addresses = [&operands[..], &sides(c, call)].concat();
        let bytes = self.packed.0.work.pack * c.dtype.size();
        // Weights are read one by one.
        let even = |at: usize| at == 2 || addresses[at].addr().is_multiple_of(bytes);
        let (share, function) = if (0..addresses.len()).all(even) {
            &self.packed
        } else {
            &self.single
        };
        let mut arguments = Arguments::default();
        addresses.iter().for_each(|&address| _ = arguments.address(address));
        arguments.fields(&fields(words(c, share))?);
        let grid = Grid {
            blocks: share.blocks,
            threads: share.threads as u32,
        };
        // SAFETY: these are the parameters that the source declares, for operands that the planner vouches for.
        unsafe { function.launch(grid, &arguments, call.stream) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::cuda::library::cudnn::{After, Tensor};

    fn convolution(batch: i64, channels: i64, extent: i64, kernel: i64) -> Convolution {
        let x = Tensor::dense(vec![batch, channels, extent, extent]);
        Convolution {
            dtype: DType::Float16,
            tf32: false,
            transposed: false,
            y: x.clone(),
            x,
            w: Tensor::dense(vec![channels, 1, kernel, kernel]),
            strides: vec![1, 1],
            dilations: vec![1, 1],
            begin: vec![kernel / 2; 2],
            end: vec![kernel / 2; 2],
            bias: true,
            residual: None,
            activation: None,
            after: After::default(),
        }
    }

    #[test]
    fn blocks_divide_the_channels_and_hold_their_weights() {
        for (batch, channels, extent, kernel, widest) in [
            (32, 32, 112, 3, 8),
            (1, 960, 7, 5, 4),
            (1, 24, 4, 7, 8),
            (2, 7, 9, 3, 1),
            (8, 1024, 14, 7, 8),
        ] {
            let c = convolution(batch, channels, extent, kernel);
            let share = Share::new(&c, Work::new(&c, widest, 132), 132);
            let packs = channels as usize / share.work.pack;
            assert_eq!(share.groups * share.blocks[1] as usize, packs, "{share:?}");
            assert!(
                share.threads <= THREADS && share.threads.is_multiple_of(share.groups),
                "{share:?}"
            );
            assert!(share.shared_bytes <= MOST_WEIGHTS, "{share:?}");
            assert_eq!(words(&c, &share).len(), 20);
        }
    }

    #[test]
    fn a_thread_does_little_where_there_is_little_to_do() {
        let work = |batch: i64, channels: i64, extent: i64, kernel: i64| {
            let c = convolution(batch, channels, extent, kernel);
            let work = Work::new(&c, 8, 132);
            ([work.pack, work.run, work.rows], work.height(&c))
        };
        assert_eq!(work(1, 960, 7, 3), ([2, 2, 1], 3));
        assert_eq!(work(1, 144, 56, 3), ([4, 4, 1], 3));
        assert_eq!(work(8, 144, 56, 3), ([4, 4, 2], 0));
        assert_eq!(work(8, 672, 14, 5), ([4, 2, 2], 0));
        assert_eq!(work(8, 768, 32, 7), ([2, 8, 2], 0));
        assert_eq!(work(1, 768, 32, 7), ([2, 8, 2], 0));
        assert_eq!(work(1, 384, 14, 7), ([2, 2, 1], 7));
    }

    #[test]
    fn small_work_is_spread_over_more_blocks() {
        let c = convolution(1, 960, 7, 3);
        let share = Share::new(&c, Work::new(&c, 8, 132), 132);
        assert!(share.blocks[0] * share.blocks[1] >= 24, "{share:?}");
    }
}
