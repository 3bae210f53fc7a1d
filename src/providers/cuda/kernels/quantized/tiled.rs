//! Products of 8 bits on tensor cores: the kernel of `quantized_tiles.cu`, on pixels where they lie, or on patches.

use super::Quantized;
use super::blocks::Places;
use super::constants::OnDevice;
use super::plain::{self, Window};
use crate::error::Result;
use crate::plan::{Call, Instance, Launcher, Prepared};
use crate::providers::cuda::compile::{EntryPoint, compiled};
use crate::providers::cuda::device::{Arguments, Device, Grid};
use crate::providers::cuda::kernels::conv::cuts::{Cut, Tile, ranked};
use crate::providers::cuda::kernels::conv::problem::Problem;
use crate::providers::cuda::kernels::conv::tiled::{PACK, PARTS, problem, words};
use crate::providers::cuda::kernels::launch::fields;
use crate::providers::cuda::kernels::spare::Spare;
use crate::providers::cuda::library::cudnn::{Convolution, Tensor};

const SOURCE: &str = concat!(
    include_str!("../../../../../kernels/pairs.cuh"),
    include_str!("../../../../../kernels/quantized_tiles.cu")
);
const GROUPS: &str = include_str!("../../../../../kernels/groups.cuh");
/// So many tiles are timed, half of them for warpgroups where there are such.
pub const TILES: u32 = 10;

/// A convolution of integers of 8 bits as one of pairs of them, which are as wide as halves.
pub fn in_pairs(c: &Convolution) -> Option<Convolution> {
    let halved = |tensor: &Tensor| {
        let mut half = tensor.clone();
        half.sizes[1] /= 2;
        let last = half.strides.len();
        let steps = std::iter::once(0).chain(2..last);
        steps.for_each(|axis| half.strides[axis] /= 2);
        half
    };
    let even = |tensor: &Tensor| (tensor.sizes[1] % 2, tensor.step() % 2) == (0, 0);
    let mut c = c.clone();
    if !even(&c.x) || !even(&c.w) {
        return None;
    }
    (c.x, c.w) = (halved(&c.x), halved(&c.w));
    // Where results may be written at once is seen when they are.
    c.y.alignment = PACK[0];
    Some(c)
}

/// The tiles that look best, half of them for warpgroups where there are such: a guess tells the two sorts from each other badly.
fn best(device: &Device, problem: &Problem) -> Vec<(Tile, Cut)> {
    let (groups, warps): (Vec<Tile>, Vec<Tile>) = Tile::all_of_8_bits(device).into_iter().partition(|tile| tile.groups);
    let processors = device.multiprocessors as usize;
    let [groups, warps] = [groups, warps].map(|tiles| ranked(tiles, problem, processors));
    let half = (TILES / 2) as usize;
    let few = |tiles: &[(Tile, Cut)], most: usize| tiles[..tiles.len().min(most)].to_vec();
    let mut found = few(&groups, half);
    found.extend(few(&warps, TILES as usize - found.len()));
    found
}

/// How the kernel does a convolution.
struct Plan {
    problem: Problem,
    tile: Tile,
    grid: Grid,
    shape: Vec<i32>,
    places: Places,
}

impl Plan {
    /// With the `number`th of the tiles that look best for it, if there is such a one.
    fn new(of: &Quantized, c: &Convolution, number: usize) -> Option<Self> {
        let pairs = in_pairs(c)?;
        let problem = problem(&pairs)?;
        let (tile, cut) = best(&of.gpu.device, &problem).into_iter().nth(number)?;
        let grid = Grid {
            blocks: tile.grid(&problem, &cut).map(|n| n as u32),
            threads: tile.threads() as u32,
        };
        let shape = fields(words(&pairs, &problem, &tile, &cut)).ok()?;
        Some(Self {
            problem,
            tile,
            grid,
            shape,
            places: Places::of(of, c).ok()?,
        })
    }

    /// Whether what is beyond the image is not zero and seen.
    fn is_filled(&self, of: &Quantized) -> bool {
        of.scheme.zero != 0 && self.problem.sees_outside()
    }

    fn source(&self, of: &Quantized) -> String {
        let groups = self.tile.groups;
        let pair = plain::pair(of);
        let (declared, tail) = (plain::declared(of, ""), plain::tail(of, ""));
        format!(
            "{}{}{PARTS}{}{}{SOURCE}\nextern \"C\" __global__ void {} product_of_8_bits(Y0* y, const {pair}* x, const {pair}* w, \
             const float* scales{declared}, const Shape s{}, const int64 pitch, const int64 outside) {{\n    \
             convolve<{}, {}, {pair}>(y, x, w, Channels{{scales, (int32)pitch}}, {tail}, s, {}, (uint32)outside);\n}}\n",
            if groups { "#define WARPGROUPS\n" } else { "" },
            if groups { GROUPS } else { "" },
            plain::QUANTIZED,
            of.behind.text,
            self.tile.attributes(),
            self.places.declared,
            self.tile.block(),
            self.is_filled(of),
            self.places.made,
        )
    }

    fn entry(&self, of: &Quantized) -> EntryPoint {
        let source = self.source(of);
        of.gpu
            .compiler
            .entry(&source, "product_of_8_bits", self.tile.shared_bytes())
    }

    fn launch(&self, of: &Quantized, function: EntryPoint, constants: OnDevice) -> Tiled {
        let zero = of.scheme.zero as u8;
        Tiled {
            function,
            grid: self.grid,
            shape: self.shape.clone(),
            places: self.places.words.clone(),
            outside: i64::from(u32::from_le_bytes([zero; 4])),
            numbers: plain::numbers(of),
            constants,
        }
    }
}

/// The kernel, in the `number`th tile.
pub fn prepared(of: &Quantized, c: &Convolution, number: usize) -> Option<Result<Prepared>> {
    let plan = Plan::new(of, c, number)?;
    let function = plan.entry(of);
    let make = || {
        let launcher = OnPixels {
            tiled: plan.launch(of, function.clone(), of.constants.on(&of.gpu.device)?),
            spare: plain::spare(of, c)?,
        };
        Ok(compiled([function], Instance::new(plan.tile.describe(), launcher)))
    };
    Some(make())
}

/// The kernel in the `number`th tile, behind one that lays out what each place of the result sees.
pub fn prepared_from_patches(of: &Quantized, c: &Convolution, number: usize) -> Option<Result<Prepared>> {
    let pixels = c.y.pixels();
    let pitch = of.constants.pitch as i64;
    let product = Convolution {
        x: Tensor::dense(vec![1, pitch, 1, pixels]),
        w: Tensor::dense(vec![c.y.sizes[1], pitch, 1, 1]),
        y: Tensor {
            sizes: vec![1, c.y.sizes[1], 1, pixels],
            strides: vec![pixels * c.y.step(), 1, pixels * c.y.step(), c.y.step()],
            alignment: PACK[0],
        },
        strides: vec![1; 2],
        dilations: vec![1; 2],
        begin: vec![0; 2],
        end: vec![0; 2],
        ..c.clone()
    };
    let plan = Plan::new(of, &product, number)?;
    let functions = [plain::patches_entry(of), plan.entry(of)];
    let make = || {
        let items = (pixels * pitch / 16) as usize;
        let launcher = OnPatches {
            lay: functions[0].clone(),
            grid: Grid::over(items, plain::THREADS)?,
            window: Window::of(of, c)?,
            items: items as i64,
            tiled: plan.launch(of, functions[1].clone(), of.constants.on(&of.gpu.device)?),
        };
        let how = format!("patches, {}", plan.tile.describe());
        let instance = Instance::new(how, launcher).with_workspace((pixels * pitch) as usize);
        Ok(compiled(functions.clone(), instance))
    };
    Some(make())
}

struct Tiled {
    function: EntryPoint,
    grid: Grid,
    shape: Vec<i32>,
    places: Vec<i32>,
    outside: i64,
    numbers: Vec<i32>,
    constants: OnDevice,
}

impl Tiled {
    /// Puts it into the stream of a call, on pixels that lie somewhere.
    fn run(&self, pixels: *const u8, call: &Call) -> Result<()> {
        let mut arguments = Arguments::default();
        arguments.address(call.outputs[0]).address(pixels);
        arguments
            .address(self.constants.weights())
            .address(self.constants.lists());
        plain::pass(&mut arguments, &call.inputs[1..], &call.outputs[1..], &self.numbers);
        arguments.fields(&self.shape).fields(&self.places);
        arguments.number(self.constants.listed()).number(self.outside);
        // SAFETY: these are the parameters that the source declares, for operands that the planner vouches for.
        unsafe { self.function.launch(self.grid, &arguments, call.stream) }
    }
}

struct OnPixels {
    tiled: Tiled,
    spare: Spare,
}

impl Launcher for OnPixels {
    fn launch(&mut self, call: &Call) -> Result<()> {
        // A slice may begin anywhere, and where is not known any sooner.
        if !call.inputs[0].addr().is_multiple_of(PACK[0]) {
            return self.spare.launch(call);
        }
        self.tiled.run(call.inputs[0], call)
    }
}

struct OnPatches {
    lay: EntryPoint,
    grid: Grid,
    window: Window,
    items: i64,
    tiled: Tiled,
}

impl Launcher for OnPatches {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let mut arguments = Arguments::default();
        arguments.address(call.workspace).address(call.inputs[0]);
        arguments.fields(&self.window.0).number(self.items);
        // SAFETY: these are the parameters that the source declares; the workspace has room for all patches.
        unsafe { self.lay.launch(self.grid, &arguments, call.stream)? };
        self.tiled.run(call.workspace, call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::dtype::DType;

    #[test]
    fn pairs_are_half_as_many_and_lie_half_as_far() {
        let mut c = super::super::rows::matrices(
            &crate::plan::layout::Operand::dense(DType::Int8, vec![6, 64], crate::plan::layout::Layout::Plain),
            &crate::plan::layout::Operand::dense(DType::Int8, vec![6, 24], crate::plan::layout::Layout::Plain),
        );
        let pairs = in_pairs(&c).unwrap();
        assert_eq!(
            (&pairs.x.sizes[..], &pairs.x.strides[..]),
            (&[1, 32, 1, 6][..], &[192, 1, 192, 32][..])
        );
        assert_eq!(pairs.w.sizes, [24, 32, 1, 1]);
        assert_eq!(pairs.y.sizes, [1, 24, 1, 6]);
        c.x = Tensor::dense(vec![1, 63, 1, 6]);
        assert!(in_pairs(&c).is_none());
    }
}
