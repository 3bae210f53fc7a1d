//! Convolutions and products of 8 bits whose results have 8 bits, by warpgroups of Hopper as implicit GEMM: the kernel of
//! `implicit_gemm.cu`.

use super::blocks::Places;
use super::borders::Borders;
use super::constants::OnDevice;
use super::linear::{Linear, SOURCE as LINEAR};
use super::rows::{self, PAIRS};
use super::shapes::{ROWS, Shape, Size};
use super::tiled::in_pairs;
use super::{Quantized, plain};
use crate::device::Memory;
use crate::error::Result;
use crate::network::dtype::DType;
use crate::plan::{Call, Instance, Launcher, Prepared};
use crate::providers::cuda::compile::{EntryPoint, compiled};
use crate::providers::cuda::device::memory::DeviceMemory;
use crate::providers::cuda::device::{Arguments, Boxes, Grid, HOPPER};
use crate::providers::cuda::kernels::conv::left_operand::{self, LeftOperand};
use crate::providers::cuda::kernels::conv::problem::Problem;
use crate::providers::cuda::kernels::conv::tiled::problem;
use crate::providers::cuda::kernels::launch::fields;
use crate::providers::cuda::kernels::matmul::warpgroup;
use crate::providers::cuda::kernels::spare::Spare;
use crate::providers::cuda::library::cudnn::Convolution;
use std::sync::Arc;

const SOURCE: &str = include_str!("../../../../../kernels/implicit_gemm.cu");
/// So many shapes of tiles are tried.
pub const SHAPES: u32 = 4;
/// Channels that a lane writes at once.
const TOGETHER: usize = 16;

/// Whether the kernel computes such results, at the shapes that it takes.
pub fn fits(of: &Quantized) -> bool {
    // What is added to results is brought as rows.
    let even =
        of.constants.results.is_multiple_of(TOGETHER) && !(of.gives_blocks() && of.behind.elements().any(|each| each));
    of.behind.is_bytes && even && of.groups() == 1 && of.reads_pixels() && of.gpu.device.capability == HOPPER
}

/// What is multiplied, if the copy engine brings it: the matrices, the left one's pixels, and the bytes of a row at once.
fn described(c: &Convolution) -> Option<(Size, Problem, usize)> {
    let found = problem(&in_pairs(c)?)?;
    let size = Size {
        rows: found.pixels(),
        columns: found.results,
        terms: found.taps() * found.channels,
    };
    let (line, even) = (
        left_operand::line(&found)?,
        (c.y.step() as usize).is_multiple_of(TOGETHER),
    );
    (even && left_of(&found, c, line).is_some()).then_some((size, found, line))
}

/// The left operand: any type of 16 bits is a pair.
fn left_of(found: &Problem, c: &Convolution, line: usize) -> Option<LeftOperand> {
    LeftOperand::new(found, DType::Float16, c.x.step() as usize / 2, [ROWS, line])
}

/// Weights as `Spread` of `implicit_gemm.cu` has them: of so many channels a fourth for each lane of a row, two of each in turn.
fn spread(of: &Quantized, size: &Size, shape: &Shape) -> Boxes {
    let (pitch, width) = (of.constants.pitch, shape.columns.min(64));
    let [own, eights] = [width / 4, width / 8];
    Boxes {
        dtype: DType::Float16,
        extents: vec![size.terms, 2, 4, eights, size.columns.div_ceil(width)],
        strides: [1, own, 2, width].map(|rows| rows * pitch).to_vec(),
        size: vec![shape.line / 2, 2, 4, eights, shape.columns / width],
    }
}

/// What the kernel does with sums: its type, what it is made of, its parameters, and numbers.
struct Epilogue {
    ty: String,
    made: String,
    parameters: String,
    numbers: Vec<i32>,
    /// What the lists of the product are multiplied by, where it is linear.
    times: Option<f64>,
}

impl Epilogue {
    fn new(of: &Quantized) -> Self {
        // A residual of one number is no tile.
        let residuals = of.behind.elements().filter(|&element| element).count();
        let usable = |linear: &&Linear| {
            let wanted = usize::from(linear.residual.is_some());
            of.behind.operands.len() == wanted
                && residuals == wanted
                && of.constants.has_unit(linear.inverse)
                && linear.numbers().iter().all(|number| number.is_finite())
        };
        let Some(linear) = of.linear.as_ref().filter(usable) else {
            return Self {
                ty: "Each".into(),
                made: format!("Each{{{}}}", plain::tail(of, "")),
                parameters: plain::declared(of, ""),
                numbers: plain::numbers(of),
                times: None,
            };
        };
        let parameters = match linear.residual {
            Some(_) => ", const X1* x1, const Factor n",
            None => "",
        };
        let [ty, made] = linear.text();
        let numbers: Vec<i32> = linear.numbers().iter().map(|number| number.to_bits() as i32).collect();
        Self {
            ty,
            made,
            parameters: parameters.into(),
            numbers,
            times: Some(linear.inverse),
        }
    }
}

/// The borders of images that are padded with another number than 0, which is what the copy engine puts there.
fn borders(of: &Quantized, found: &Problem) -> Option<Borders> {
    (of.scheme.zero != 0 && found.sees_outside()).then(|| Borders::new(found))
}

fn source(
    of: &Quantized,
    shape: &Shape,
    left: &LeftOperand,
    epilogue: &Epilogue,
    borders: bool,
    places: &Places,
) -> String {
    let pair = plain::pair(of);
    let (starts, fused) = (of.scheme.zero != 0, epilogue.times.is_some());
    let [parameter, made] = left.text();
    let (edges, edged, bordered) = match borders {
        true => ("Borders", ", const Borders b", "b"),
        false => ("Alike", "", "Alike()"),
    };
    let Epilogue {
        ty,
        made: tail,
        parameters,
        ..
    } = epilogue;
    let shaped = shape.text();
    let (beside, barriers, residuals) = match shape.residual {
        true => (
            ", const __grid_constant__ TensorMap beside",
            format!(
                "    __shared__ __align__(8) uint64 there[2], read[2];\n    \
                 const Residuals<{shaped}> residuals(&beside, shared_address(there), shared_address(read));\n"
            ),
            "residuals".into(),
        ),
        false => ("", String::new(), format!("NoResiduals<{shaped}>()")),
    };
    format!(
        "{}{LINEAR}{PAIRS}{}{}{}{}{SOURCE}\nextern \"C\" __global__ void __launch_bounds__({}, {}) implicit_gemm_of_8_bits(Y0* y, \
         const float* scales{parameters}, const Share s{parameter}{edged}{}, const int64 pitch, const __grid_constant__ TensorMap left, \
         const __grid_constant__ TensorMap right{beside}) {{\n{barriers}    \
         implicit_gemm<{shaped}, {pair}, SumOf<{pair}>::type, Y0, Units<{starts}, {fused}, {edges}>, {ty}>(y, {made}, &right, \
         {residuals}, {tail}, Channels{{scales, (int32)pitch}}, {bordered}, {}, s);\n}}\n",
        plain::QUANTIZED,
        of.behind.text,
        warpgroup::SOURCE,
        left_operand::SOURCE,
        rows::SOURCE,
        shape.threads(),
        shape.blocks,
        places.declared,
        places.made,
    )
}

/// The kernel in the `number`th of the shapes that look best, if it computes so.
pub fn prepared(of: &Quantized, c: &Convolution, number: usize) -> Option<Result<Prepared>> {
    let (size, found, line) = described(c)?;
    let processors = of.gpu.device.multiprocessors as usize;
    let element = of.behind.elements().position(|element| element);
    let mut shapes = Shape::all(line, &size, element.is_some());
    shapes.sort_by(|a, b| a.guess(&size, processors).total_cmp(&b.guess(&size, processors)));
    // Weights are a third of the rows that windows have the copy engine bring, and are the same for all tiles.
    let staying = shapes
        .iter()
        .find_map(|shape| shape.staying(&size))
        .filter(|_| !found.is_rows());
    shapes.extend(staying);
    let (shape, left) = (*shapes.get(number)?, left_of(&found, c, line)?);
    let make = || {
        let epilogue = Epilogue::new(of);
        let borders = borders(of, &found);
        let places = Places::of(of, c)?;
        let function = of.gpu.compiler.entry(
            &source(of, &shape, &left, &epilogue, borders.is_some(), &places),
            "implicit_gemm_of_8_bits",
            shape.shared_bytes(),
        );
        let blocks = shape.tiles(&size).min(processors * shape.blocks);
        let share = [size.rows, size.columns, size.terms, 1, 0, 0, 1].map(|word| word as i64);
        let constants = of.constants.on(&of.gpu.device)?;
        let listed = constants.listed();
        let launcher = OnPixels {
            function: function.clone(),
            grid: Grid::over(blocks * shape.threads() as usize, shape.threads())?,
            share: fields(share.into_iter().chain([c.y.step(), size.columns as i64]))?,
            windows: left.words(&found)?,
            borders: match &borders {
                Some(borders) => fields(borders.words(listed as usize))?,
                None => vec![],
            },
            lists: lists(of, epilogue.times, borders.as_ref())?,
            places: places.words,
            numbers: epilogue.numbers,
            right: spread(of, &size, &shape),
            left,
            added: element.map(|operand| (1 + operand, shape.residuals(&size))),
            constants,
            spare: plain::spare(of, c)?,
        };
        let of_what = launcher.left.describe();
        let bytes = line * shape.lines;
        let stay = if shape.staying > 0 { ", weights stay" } else { "" };
        let how = format!(
            "warpgroups, {ROWS} {of_what} x {} of {bytes} bytes{stay}",
            shape.columns
        );
        Ok(compiled([function], Instance::new(how, launcher)))
    };
    Some(make())
}

/// The lists of a product whose unit is so many times smaller, where they are others than those of the constants.
fn lists(of: &Quantized, times: Option<f64>, borders: Option<&Borders>) -> Result<Option<Arc<DeviceMemory>>> {
    match (borders, times) {
        (Some(borders), _) => {
            let made = of
                .constants
                .lists_with_borders_on(&of.gpu.device, times.unwrap_or(1.0), borders)?;
            Ok(Some(Arc::new(made)))
        }
        (None, Some(times)) => of.lists(times).map(Some),
        (None, None) => Ok(None),
    }
}

struct OnPixels {
    function: EntryPoint,
    grid: Grid,
    share: Vec<i32>,
    windows: Vec<i32>,
    borders: Vec<i32>,
    places: Vec<i32>,
    numbers: Vec<i32>,
    left: LeftOperand,
    right: Boxes,
    /// The operand with a number for each result.
    added: Option<(usize, Boxes)>,
    constants: OnDevice,
    /// The lists of the product, where they are others than those of the constants.
    lists: Option<Arc<DeviceMemory>>,
    spare: Spare,
}

impl OnPixels {
    /// Whether all addresses are what the copy engine and 16 bytes at once take. A slice may begin anywhere, and where is not known any
    /// sooner.
    fn is_even(&self, call: &Call) -> bool {
        let added = self.added.iter().map(|(operand, _)| call.inputs[*operand].addr());
        let mut all = [call.inputs[0].addr(), call.outputs[0].addr()].into_iter().chain(added);
        all.all(|address| address.is_multiple_of(Boxes::EVEN))
    }
}

impl Launcher for OnPixels {
    fn launch(&mut self, call: &Call) -> Result<()> {
        if !self.is_even(call) {
            return self.spare.launch(call);
        }
        let device = self.function.device();
        let lists = self
            .lists
            .as_ref()
            .map_or(self.constants.lists(), |lists| lists.address().cast_const());
        let mut arguments = Arguments::default();
        arguments.address(call.outputs[0]).address(lists);
        plain::pass(&mut arguments, &call.inputs[1..], &call.outputs[1..], &self.numbers);
        for words in [&self.share, &self.windows, &self.borders, &self.places] {
            arguments.fields(words);
        }
        arguments.number(self.constants.listed());
        self.left.pass(&mut arguments, device, call)?;
        arguments.map(&self.right.at(device, self.constants.weights())?);
        if let Some((operand, boxes)) = &self.added {
            arguments.map(&boxes.at(device, call.inputs[*operand])?);
        }
        // SAFETY: these are the parameters that the source declares, for operands that the planner vouches for.
        unsafe { self.function.launch(self.grid, &arguments, call.stream) }
    }
}
