//! A convolution at concrete extents: tiles are shared among the threads, in chunks whose points stay in the second-level cache.

use super::epilogue::{self, EpilogueOp};
use super::product::{self, Product, ROWS};
use super::weights::{Transformed, WIDTH};
use super::{LANES, POINTS, SIDE, TILE, transform};
use crate::error::Result;
use crate::plan::layout::{Axes, Operand, axes};
use crate::plan::{Call, Instance, Launcher, Prepared, Request};
use crate::providers::cpu::kernels::chain::Link;
use crate::providers::cpu::kernels::parallel;
use crate::providers::cpu::kernels::primitive::{Argument, Side};
use crate::providers::cpu::kernels::scratch::Scratch;
use crate::providers::cpu::simd::{Avx512, Vector};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of points that a chunk of tiles has, about.
const CHUNK: usize = 768 << 10;

/// What is done beside the shapes.
pub struct Spec<'a> {
    /// The weights.
    pub weights: Arc<Transformed>,
    /// Rows and columns of zeros above and left of the input.
    pub begin: [usize; 2],
    /// The bias.
    pub bias: &'a Side,
    /// What follows.
    pub links: &'a [Link],
    /// The first input of the kernel that an operand of the links is.
    pub first: usize,
}

/// The convolution of a request.
///
/// It takes float32 on four axes, with channels of input and result in whole vectors and dense.
pub fn prepare(spec: Spec, request: &Request) -> Prepared {
    let (src, dst) = (&request.inputs[0], &request.outputs[0]);
    let tiles = [dst.shape[2], dst.shape[3]].map(|extent| extent.div_ceil(TILE));
    let all = dst.shape[0] * tiles[0] * tiles[1];
    let c = src.shape[1];
    let bytes_of_tile = POINTS * c * size_of::<f32>();
    let most = (CHUNK / bytes_of_tile).clamp(ROWS, 8 * ROWS);
    // Chunks of one size, as many for each thread.
    let threads = request.threads.max(1);
    let chunks = all.div_ceil(most);
    let chunks = if chunks >= threads {
        chunks.next_multiple_of(threads)
    } else {
        chunks
    };
    let chunk = all.div_ceil(chunks);
    let chunks = all.div_ceil(chunk);
    let splits = threads.div_ceil(chunks).min(spec.weights.blocks());
    // Points a power of two apart would share their places in the caches.
    let stride = chunk * c + LANES;
    let floats = POINTS * (stride + chunk * WIDTH * LANES);
    let size = spec.weights.bytes() as f64 / f64::from(1 << 20);
    let name = format!("Winograd F(2x2, 3x3), {size:.1} MiB of transformed weights");
    let scratch = Scratch::new(floats * size_of::<f32>(), threads, chunks * splits);
    let workspace = scratch.workspace();
    let operands = request.inputs.iter().enumerate().skip(spec.first);
    let operands = operands.map(|(at, operand)| (!operand.in_place).then_some(at));
    let convolution = Convolution {
        grid: TileGrid {
            from: Steps::of(src),
            to: Steps::of(dst),
            input: [src.shape[2], src.shape[3]],
            output: [dst.shape[2], dst.shape[3]],
            begin: spec.begin,
            tiles,
        },
        bias: spec.bias.argument(),
        operations: epilogue::operations(spec.links),
        operands: operands.collect(),
        weights: spec.weights,
        all,
        chunk,
        chunks,
        splits,
        stride,
        scratch,
    };
    Instance::new(name, convolution).with_workspace(workspace).into()
}

/// Floats from an image, row, pixel or block of channels to the next one.
#[derive(Clone, Copy)]
struct Steps {
    image: usize,
    row: usize,
    pixel: usize,
    block: usize,
}

impl Steps {
    fn of(operand: &Operand) -> Self {
        let Axes { strides, block } = axes(operand);
        Self {
            image: strides[0],
            row: strides[2],
            pixel: strides[3],
            block,
        }
    }
}

/// Where tiles lie.
struct TileGrid {
    from: Steps,
    to: Steps,
    input: [usize; 2],
    output: [usize; 2],
    begin: [usize; 2],
    tiles: [usize; 2],
}

impl TileGrid {
    /// Image, row and column of a tile.
    fn tile(&self, tile: usize) -> [usize; 3] {
        let [rows, columns] = self.tiles;
        [tile / (rows * columns), tile / columns % rows, tile % columns]
    }
}

struct Convolution {
    grid: TileGrid,
    weights: Arc<Transformed>,
    bias: Option<Argument>,
    operations: Vec<EpilogueOp>,
    /// The input that each operand of these is; none for what stands where the result goes.
    operands: Vec<Option<usize>>,
    all: usize,
    chunk: usize,
    chunks: usize,
    /// Parts of the channels of the result.
    splits: usize,
    stride: usize,
    scratch: Scratch,
}

/// The addresses of a call.
struct Addresses {
    x: *const f32,
    y: *mut f32,
    bias: *const f32,
    operands: [*const f32; 8],
}

// SAFETY: what is written through them, each thread writes in other places.
unsafe impl Sync for Addresses {}

impl Convolution {
    fn addresses(&mut self, call: &Call) -> Result<Addresses> {
        let input = |at: usize| call.inputs[at].cast::<f32>();
        let y = call.outputs[0].cast::<f32>();
        let mut operands = [std::ptr::null(); 8];
        for (to, operand) in operands.iter_mut().zip(&self.operands) {
            *to = operand.map_or(y.cast_const(), input);
        }
        let bias = self.bias.as_mut().map(|bias| bias.address(call)).transpose()?;
        Ok(Addresses {
            x: input(0),
            y,
            bias: bias.map_or(std::ptr::null(), <*const u8>::cast),
            operands,
        })
    }

    /// Some tiles and some blocks of channels of the result.
    ///
    /// # Safety
    /// The addresses are those of the operands, and the scratch memory holds points and sums; the processor must have AVX-512.
    unsafe fn task(&self, tiles: Range<usize>, blocks: Range<usize>, at: &Addresses, scratch: *mut f32) {
        let [c, _] = self.weights.channels;
        let sums = scratch.wrapping_add(POINTS * self.stride);
        // SAFETY: the caller's promise.
        unsafe {
            self.gather(tiles.clone(), at, scratch);
            let groups = tiles.len().div_ceil(ROWS);
            for block in blocks {
                let width = self.weights.width(block);
                let stride = self.chunk * width * LANES;
                for point in 0..POINTS {
                    for group in 0..groups {
                        let [first, end] = [group, group + 1].map(|g| g * tiles.len() / groups);
                        let product = Product {
                            terms: c,
                            rows: (scratch.add(point * self.stride + first * c), c),
                            weights: self.weights.block(point, block),
                            to: (sums.add(point * stride + first * width * LANES), width * LANES),
                        };
                        product::run(end - first, width, &product);
                    }
                }
                self.scatter(tiles.clone(), block, at, sums);
            }
        }
    }

    /// What follows the sums of 16 channels of a result.
    ///
    /// # Safety
    /// As [`Convolution::task`].
    #[inline(always)]
    unsafe fn finished<V: Vector>(&self, mut x: V, at: &Addresses, channel: usize, place: usize) -> V {
        // SAFETY: the caller's promise.
        unsafe {
            if !at.bias.is_null() {
                x = x + V::load(at.bias.add(channel));
            }
            for operation in &self.operations {
                x = match *operation {
                    EpilogueOp::Eltwise(function) => epilogue::eltwise(function, x).unwrap_or(x),
                    EpilogueOp::Full(binary, operand) => {
                        epilogue::binary(binary, x, V::load(at.operands[operand].add(place)))
                    }
                    EpilogueOp::Channel(binary, operand) => {
                        epilogue::binary(binary, x, V::load(at.operands[operand].add(channel)))
                    }
                };
            }
        }
        x
    }
}

impl Convolution {
    /// The points of some tiles.
    ///
    /// # Safety
    /// As [`Convolution::task`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
    unsafe fn gather(&self, tiles: Range<usize>, at: &Addresses, to: *mut f32) {
        let (grid, [c, _]) = (&self.grid, self.weights.channels);
        for (number, tile) in tiles.enumerate() {
            let [image, row, column] = grid.tile(tile);
            // Of negative ones there is nothing to read.
            let rows: [usize; SIDE] = std::array::from_fn(|i| (row * TILE + i).wrapping_sub(grid.begin[0]));
            let columns: [usize; SIDE] = std::array::from_fn(|i| (column * TILE + i).wrapping_sub(grid.begin[1]));
            for block in 0..c / LANES {
                // SAFETY: the caller's promise, and what lies outside of the input is not read.
                unsafe {
                    let from = at.x.add(image * grid.from.image + block * grid.from.block);
                    let mut d = [[Avx512::splat(0.0); SIDE]; SIDE];
                    for (values, &y) in d.iter_mut().zip(&rows) {
                        for (value, &x) in values.iter_mut().zip(&columns) {
                            if y < grid.input[0] && x < grid.input[1] {
                                *value = Avx512::load(from.add(y * grid.from.row + x * grid.from.pixel));
                            }
                        }
                    }
                    let to = to.add(number * c + block * LANES);
                    for (i, row) in transform::points(d).into_iter().enumerate() {
                        for (j, point) in row.into_iter().enumerate() {
                            point.store(to.add((i * SIDE + j) * self.stride));
                        }
                    }
                }
            }
        }
    }

    /// Writes 16 channels of a result that are summed in the plain order. Of an infinity, and of a number near the greatest one, tiles
    /// make NaN.
    ///
    /// # Safety
    /// As [`Convolution::task`].
    #[cold]
    #[inline(never)]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
    unsafe fn store_plainly(&self, at: &Addresses, [image, row, column]: [usize; 3], channel: usize, to: usize) {
        let (grid, [c, _]) = (&self.grid, self.weights.channels);
        let mut sums = [0.0f32; LANES];
        for tap in 0..9 {
            let y = (row + tap / 3).wrapping_sub(grid.begin[0]);
            let x = (column + tap % 3).wrapping_sub(grid.begin[1]);
            if y >= grid.input[0] || x >= grid.input[1] {
                continue;
            }
            let start = image * grid.from.image + y * grid.from.row + x * grid.from.pixel;
            for input in 0..c {
                let from = start + input / LANES * grid.from.block + input % LANES;
                for (lane, sum) in sums.iter_mut().enumerate() {
                    let weight = self.weights.plain(channel + lane).wrapping_add(input * 9 + tap);
                    // SAFETY: the caller's promise, and the place lies in the input.
                    *sum += unsafe { *at.x.add(from) * weight.read_unaligned() };
                }
            }
        }
        // SAFETY: there are as many sums as lanes, and the place is that of the result.
        unsafe {
            let value = Avx512::load(sums.as_ptr());
            self.finished(value, at, channel, to).store(at.y.add(to));
        }
    }

    /// The results of some tiles in a block of channels.
    ///
    /// # Safety
    /// As [`Convolution::task`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
    unsafe fn scatter(&self, tiles: Range<usize>, block: usize, at: &Addresses, sums: *const f32) {
        let (grid, width) = (&self.grid, self.weights.width(block));
        let stride = self.chunk * width * LANES;
        for (number, tile) in tiles.enumerate() {
            let [image, row, column] = grid.tile(tile);
            for vector in 0..width {
                let channel = (block * WIDTH + vector) * LANES;
                // SAFETY: the caller's promise, and nothing is written outside of the result.
                unsafe {
                    let from = sums.add((number * width + vector) * LANES);
                    let mut p = [[Avx512::splat(0.0); SIDE]; SIDE];
                    for (i, row) in p.iter_mut().enumerate() {
                        for (j, point) in row.iter_mut().enumerate() {
                            *point = Avx512::load(from.add((i * SIDE + j) * stride));
                        }
                    }
                    let first = image * grid.to.image + channel / LANES * grid.to.block;
                    for (i, values) in transform::results(p).into_iter().enumerate() {
                        for (j, value) in values.into_iter().enumerate() {
                            let (y, x) = (row * TILE + i, column * TILE + j);
                            if y < grid.output[0] && x < grid.output[1] {
                                let to = first + y * grid.to.row + x * grid.to.pixel;
                                match value.abs().lt(Avx512::splat(f32::INFINITY)) {
                                    u16::MAX => self.finished(value, at, channel, to).store(at.y.add(to)),
                                    _ => self.store_plainly(at, [image, y, x], channel, to),
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

impl Launcher for Convolution {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let (at, workspace) = (self.addresses(call)?, parallel::Address(call.workspace));
        let (this, blocks) = (&*self, self.weights.blocks());
        parallel::over(this.chunks * this.splits, 1, |tasks| {
            this.scratch.with(workspace.get(), |scratch| {
                for task in tasks {
                    let (chunk, split) = (task / this.splits, task % this.splits);
                    let tiles = chunk * this.chunk..((chunk + 1) * this.chunk).min(this.all);
                    let part = split * blocks / this.splits..(split + 1) * blocks / this.splits;
                    // SAFETY: the kernel is offered where AVX-512 is there; addresses are those of the operands, and tasks write
                    // different places.
                    unsafe { this.task(tiles, part, &at, scratch.cast()) };
                }
            });
        })
    }
}
