//! Small convolutions, which leave most of a GPU idle if they are cut into large tiles: the kernel of `tiled_conv.cu`.

use super::super::Gpu;
use super::super::launch::fields;
use super::super::pointwise::code::element;
use super::super::spare::Spare;
use super::super::words::divisor;
use super::cuts::{Cut, Tile, ranked};
use super::direct::{Direct, after, code, numbers, parameters, sides};
use super::problem::Problem;
use crate::error::Result;
use crate::network::dtype::DType;
use crate::plan::{Call, Instance, Launcher, Prepared};
use crate::providers::cuda::compile::{EntryPoint, compiled};
use crate::providers::cuda::device::{Arguments, Device, Grid};
use crate::providers::cuda::library::cudnn::{Convolution, Tensor};
use std::sync::Arc;

/// What kernels for tiles of pixels are made of.
pub const PARTS: &str = concat!(
    include_str!("../../../../../kernels/fragments.cuh"),
    include_str!("../../../../../kernels/cluster.cuh"),
    include_str!("../../../../../kernels/products.cuh"),
    include_str!("../../../../../kernels/pixels.cuh")
);
const SOURCE: &str = include_str!("../../../../../kernels/tiled_conv.cu");
/// So many tiles are timed.
pub const TILES: u32 = 6;
/// Bytes and elements that are read at once.
pub const PACK: [usize; 2] = [16, 8];
/// Spatial axes that the kernel walks.
const AXES: usize = 2;

/// Whether the kernel can do a convolution of so many channels over so many axes; a product of pixels has any.
pub fn fits(dtype: DType, channels: i64, axes: usize, product: bool) -> bool {
    let half = matches!(dtype, DType::Float16 | DType::BFloat16);
    half && channels > 0 && channels % PACK[1] as i64 == 0 && (axes <= AXES || product)
}

/// Whether pixels lie one after another, at places that can be read at once.
fn lies_well(tensor: &Tensor) -> bool {
    let (sizes, strides) = (&tensor.sizes, &tensor.strides);
    let last = sizes.len() - 1;
    let follow = (2..last).all(|axis| strides[axis] == strides[axis + 1] * sizes[axis + 1]);
    follow && strides[0] == strides[2] * sizes[2] && tensor.alignment >= PACK[0]
}

/// The convolution as the kernel sees it, if it can.
pub fn problem(c: &Convolution) -> Option<Problem> {
    let residual = c.residual.as_ref().unwrap_or(&c.y);
    let (taps, channels) = (c.w.sizes[2..].iter().product::<i64>(), c.x.sizes[1]);
    let even = channels % PACK[1] as i64 == 0 && c.x.step() % PACK[1] as i64 == 0;
    let weights = c.w.step() == channels && c.w.strides[0] == taps * channels && c.w.alignment >= PACK[0];
    let well = [&c.x, &c.y, residual].into_iter().all(lies_well);
    if c.transposed || c.groups() != 1 || !even || !weights || !well {
        return None;
    }
    let size = |list: &[i64]| list.iter().map(|&n| n as usize).collect::<Vec<_>>();
    let [channels, results] = [c.x.sizes[1] as usize, c.y.sizes[1] as usize];
    let padded = c.begin.iter().chain(&c.end).any(|&n| n != 0);
    if taps == 1 && !padded && c.strides.iter().all(|&s| s == 1) {
        // Pixels are all alike: they are one row.
        let pixels = [1, c.y.pixels() as usize];
        return Some(Problem {
            images: 1,
            input: pixels,
            output: pixels,
            kernel: [1, 1],
            begin: [0, 0],
            strides: [1, 1],
            dilations: [1, 1],
            channels,
            results,
        });
    }
    Some(Problem {
        images: c.x.sizes[0] as usize,
        input: size(&c.x.sizes[2..]).try_into().ok()?,
        output: size(&c.y.sizes[2..]).try_into().ok()?,
        kernel: size(&c.w.sizes[2..]).try_into().ok()?,
        begin: c.begin.clone().try_into().ok()?,
        strides: size(&c.strides).try_into().ok()?,
        dilations: size(&c.dilations).try_into().ok()?,
        channels,
        results,
    })
}

/// How the kernel does a convolution.
pub struct Plan {
    tile: Tile,
    grid: Grid,
    shape: Vec<i32>,
}

impl Plan {
    /// With the `number`th of the tiles that look best for it, if there is such a one and it is small.
    pub fn new(device: &Device, c: &Convolution, number: usize) -> Option<Self> {
        let problem = problem(c)?;
        let processors = device.multiprocessors as usize;
        if !problem.is_small(processors) {
            return None;
        }
        let (tile, cut) = ranked(Tile::all(device), &problem, processors)
            .into_iter()
            .nth(number)?;
        let grid = Grid {
            blocks: tile.grid(&problem, &cut).map(|n| n as u32),
            threads: tile.threads() as u32,
        };
        let shape = fields(words(c, &problem, &tile, &cut)).ok()?;
        Some(Self { tile, grid, shape })
    }
}

/// `Shape` of `pixels.cuh`.
pub fn words(c: &Convolution, problem: &Problem, tile: &Tile, cut: &Cut) -> Vec<i64> {
    let residual = c.residual.as_ref().unwrap_or(&c.y);
    let (kernel, [down, across]) = (problem.kernel, cut.tiles(problem));
    let mut words: Vec<i64> = [problem.input, problem.output]
        .concat()
        .into_iter()
        .map(|n| n as i64)
        .collect();
    words.extend([problem.channels as i64, problem.results as i64]);
    words.extend([c.x.step(), c.y.step(), residual.step()]);
    words.extend(problem.begin);
    let rest = [
        &problem.strides[..],
        &kernel,
        &cut.places,
        &[cut.slots()],
        &cut.pixels,
        &[cut.regions, usize::from(cut.single)],
        &cut.place_slots,
        &cut.tap_slots,
        &cut.tap_pixels,
        &[tile.steps(problem)],
    ];
    words.extend(rest.concat().into_iter().map(|n| n as i64));
    words.push(code(c.activation));
    words.extend(numbers(c.activation));
    for size in [cut.places[1], cut.region[1], problem.taps(), kernel[1], down, across] {
        words.extend(divisor(size));
    }
    words
}

fn source(c: &Convolution, tile: &Tile, held: bool) -> String {
    let ty = element(c.dtype).unwrap_or("float16");
    let (attributes, block, after, parameters) = (tile.attributes(), tile.block(), after(c), parameters(ty));
    format!(
        "{PARTS}{SOURCE}\nextern \"C\" __global__ void {attributes} tiled_convolution({ty}* y, \
         const {ty}* x, const {ty}* w, {parameters}, const Shape shape) {{\n    \
         convolve<{block}, {after}, {held}>(y, x, w, Sides<{ty}>{{bias, residual, scale, shift}}, shape);\n}}\n",
    )
}

/// A small convolution.
pub struct Tiled {
    function: EntryPoint,
    grid: Grid,
    shape: Vec<i32>,
    convolution: Convolution,
    spare: Spare,
}

impl Tiled {
    /// The kernel for a convolution that there is a plan for; `held` says that nobody writes the weights any more.
    pub fn prepared(gpu: &Arc<Gpu>, c: &Convolution, plan: &Plan, held: bool) -> Prepared {
        let bytes = plan.tile.shared_bytes();
        let launcher = Self {
            function: gpu
                .compiler
                .entry(&source(c, &plan.tile, held), "tiled_convolution", bytes),
            grid: plan.grid,
            shape: plan.shape.clone(),
            spare: Direct::spare(gpu, c, c.dtype),
            convolution: c.clone(),
        };
        compiled(
            [launcher.function.clone()],
            Instance::new(plan.tile.describe(), launcher),
        )
    }
}

impl Launcher for Tiled {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let operands = [call.outputs[0].cast_const(), call.inputs[0], call.inputs[1]];
        let addresses = [&operands[..], &sides(&self.convolution, call)].concat();
        // A slice may begin anywhere, and where is not known any sooner.
        if !addresses.iter().all(|address| address.addr().is_multiple_of(PACK[0])) {
            return self.spare.launch(call);
        }
        let mut arguments = Arguments::default();
        addresses.iter().for_each(|&address| _ = arguments.address(address));
        arguments.fields(&self.shape);
        // SAFETY: these are the parameters that the source declares, for operands that the planner vouches for.
        unsafe { self.function.launch(self.grid, &arguments, call.stream) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::cuda::library::cudnn::After;

    fn convolution(x: [i64; 4], w: [i64; 4], y: [i64; 4], stride: i64, begin: i64) -> Convolution {
        Convolution {
            dtype: DType::Float16,
            tf32: false,
            transposed: false,
            x: Tensor::dense(x.to_vec()),
            w: Tensor::dense(w.to_vec()),
            y: Tensor::dense(y.to_vec()),
            strides: vec![stride; 2],
            dilations: vec![1; 2],
            begin: vec![begin; 2],
            end: vec![begin; 2],
            bias: true,
            residual: None,
            activation: None,
            after: After::default(),
        }
    }

    #[test]
    fn pixels_that_are_all_alike_are_one_row() {
        let c = convolution([2, 64, 7, 9], [32, 64, 1, 1], [2, 32, 7, 9], 1, 0);
        assert_eq!(problem(&c).map(|p| (p.images, p.output)), Some((1, [1, 126])));
        let c = convolution([2, 64, 7, 9], [32, 64, 1, 1], [2, 32, 4, 5], 2, 0);
        assert_eq!(problem(&c).map(|p| (p.images, p.output)), Some((2, [4, 5])));
    }

    #[test]
    fn what_can_not_be_read_at_once_is_left_to_others() {
        let mut c = convolution([1, 24, 7, 7], [255, 24, 3, 3], [1, 255, 7, 7], 1, 1);
        assert!(problem(&c).is_some());
        c.x.alignment = 8;
        assert!(problem(&c).is_none());
        let c = convolution([1, 12, 7, 7], [8, 12, 3, 3], [1, 8, 7, 7], 1, 1);
        assert!(problem(&c).is_none());
        let c = convolution([1, 16, 7, 7], [16, 8, 3, 3], [1, 16, 7, 7], 1, 1);
        assert!(problem(&c).is_none());
    }

    #[test]
    fn words_fill_the_struct() {
        let c = convolution([1, 64, 28, 28], [64, 64, 3, 3], [1, 64, 14, 14], 2, 1);
        let problem = problem(&c).unwrap();
        let (tile, cut) = ranked(Tile::every().collect(), &problem, 132)[0];
        let words = words(&c, &problem, &tile, &cut);
        assert_eq!(words.len(), 32 + 6 * 3);
        assert_eq!(words[..15], [28, 28, 14, 14, 64, 64, 64, 64, 64, 1, 1, 2, 2, 3, 3]);
        assert_eq!(words[28], 9 * 64 / tile.size[2] as i64);
        assert_eq!([words[38], words[41]], [9, 3]);
    }
}
