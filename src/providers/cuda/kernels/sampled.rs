//! GridSample, RoiAlign and MaxRoiPool: images read at places that data tells.

use super::launch::{DeviceCheck, Launches, fields, sourced};
use super::pointwise::code::element;
use super::words::{divisor, pack};
use super::{Answer, Gpu};
use crate::error::{Error, Result};
use crate::network::attr::{Attrs, Read};
use crate::network::dtype::DType;
use crate::network::ops::grid_sample::Sampler;
use crate::network::ops::indexing;
use crate::network::ops::roi_align::Align;
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Form, Request, Tactic};
use crate::providers::common::Why;
use crate::providers::common::operand_strides::axes;
use crate::providers::common::scope::Scope;
use crate::providers::cuda::device::Grid;
use std::sync::Arc;

const SOURCE: &str = include_str!("../../../../kernels/sampled.cu");
/// Threads of a block.
const THREADS: u32 = 128;
/// Channels of a place that a thread works on where they lie apart.
const APART: usize = 4;
/// Spatial axes that `Spots` of `sampled.cu` has room for.
const AXES: usize = 3;

/// GridSample, RoiAlign and MaxRoiPool in both layouts.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    let attrs = &scope.layer().attrs;
    let rule = match scope.op() {
        "GridSample" => Sampler::read(attrs).map(|_| Rule::Grid),
        "RoiAlign" => Align::read(attrs).map(|_| Rule::Align),
        "MaxRoiPool" => Ok(Rule::Pool),
        _ => return Ok(vec![]),
    };
    let rule = rule.map_err(|e| Why::new(e.message()))?;
    let dtype = scope.output_type(0).dtype;
    if !dtype.is_float() {
        return Err(Why::new(format!("{dtype} is not interpolated")));
    }
    let count = scope.layer().inputs.len();
    let form = |layout: Layout| Form {
        tactic: Tactic::ONLY,
        inputs: [vec![layout], vec![Layout::Plain; count - 1]].concat(),
        outputs: vec![layout],
    };
    let forms = [Layout::ChannelsLast, Layout::Plain].map(form).to_vec();
    let identity = format!("{attrs:?}");
    let attrs = attrs.clone();
    let make = move |gpu: &Gpu, request: &Request| rule.launch(&attrs, gpu, request);
    let kernel = sourced(scope.op(), identity, forms, gpu, make);
    Ok(vec![scope.alone(kernel, &(0..count).collect::<Vec<_>>())])
}

/// What says where to read.
#[derive(Debug, Clone, Copy)]
enum Rule {
    Grid,
    Align,
    Pool,
}

/// How channels are shared out: `K` and `LAST` of `sampled.cu`.
struct Channels {
    each: usize,
    last: bool,
}

impl Channels {
    fn of(x: &Operand) -> Self {
        let (count, last) = (x.shape[1], x.layout == Layout::ChannelsLast);
        let each = if last {
            pack(x.dtype.size(), [count])
        } else {
            APART.min(count.next_power_of_two())
        };
        Self { each, last }
    }
}

/// `Spots` of `sampled.cu`.
fn spots(x: &Operand, y: &Operand, channels: &Channels) -> Vec<i64> {
    let (read, written) = (axes(x).strides, axes(y).strides);
    let places: usize = y.shape[2..].iter().product();
    let groups = x.shape[1].div_ceil(channels.each);
    let mut axis = [0; AXES];
    axis[..read.len() - 2].copy_from_slice(&read[2..]);
    let mut size = [1; AXES];
    size[..read.len() - 2].copy_from_slice(&x.shape[2..]);
    let mut words = vec![(y.shape[0] * places * groups) as i64];
    words.extend(divisor(places));
    words.extend(divisor(groups));
    // From place to place of the result: along the last axis.
    let rest = [&[x.shape[1], read[0], read[1]], &axis[..], &written[..2]].concat();
    words.extend(rest.iter().map(|&word| word as i64));
    words.extend([written[written.len() - 1] as i64, x.shape[0] as i64]);
    words.extend(size.iter().map(|&word| word as i64));
    words
}

/// The two words of a double.
fn double(number: f64) -> [i64; 2] {
    let bits = number.to_bits();
    [bits, bits >> 32].map(|half| i64::from(half as u32 as i32))
}

impl Rule {
    fn launch(self, attrs: &Attrs, gpu: &Gpu, request: &Request) -> Result<Launches> {
        let (x, y) = (&request.inputs[0], &request.outputs[0]);
        if x.is_empty() {
            return Err(Error::shape("there is nothing to read in an image without elements").got(x.describe()));
        }
        let channels = Channels::of(x);
        let spots = spots(x, y, &channels);
        let items = spots[0] as usize;
        let mut words = self.words(attrs);
        words.extend(spots);
        let source = self.source(attrs, request.inputs, &channels);
        let function = gpu.compiler.entry(&source, "sampling", 0);
        let how = format!("{} channels of a place a thread", channels.each);
        let mut launch = Launches::one(function, Grid::over(items, THREADS)?, fields(words)?, &how);
        if !matches!(self, Rule::Grid) {
            let images = x.shape[0];
            launch.device_check = Some(DeviceCheck {
                flag: gpu.device.flag()?,
                meaning: Box::new(move |found| {
                    let refused = indexing::index(found, images).err();
                    refused.unwrap_or_else(|| Error::internal("a kernel refused an image that is there"))
                }),
            });
        }
        Ok(launch)
    }

    /// What comes before `Spots`: `Sampler` or `Regions` of `sampled.cu`.
    fn words(self, attrs: &Attrs) -> Vec<i64> {
        let (bins, ratio, half_pixel) = match self {
            Rule::Grid => {
                let cubic = matches!(attrs.text("mode"), "cubic" | "bicubic");
                let padding = match attrs.text("padding_mode") {
                    "border" if cubic && attrs.flag("clamp_taps") => 3,
                    "border" => 1,
                    "reflection" => 2,
                    _ => 0,
                };
                return vec![padding, attrs.flag("align_corners").into()];
            }
            Rule::Align => (
                [attrs.int("output_height"), attrs.int("output_width")],
                attrs.int("sampling_ratio"),
                attrs.text("coordinate_transformation_mode") == "half_pixel",
            ),
            Rule::Pool => {
                let bins = attrs.ints("pooled_shape");
                ([bins[0], bins[1]], 0, false)
            }
        };
        let scale = double(attrs.float("spatial_scale"));
        [&scale[..], &bins, &[ratio, half_pixel.into()]].concat()
    }

    fn source(self, attrs: &Attrs, inputs: &[Operand], channels: &Channels) -> String {
        let name = |dtype: DType| element(dtype).unwrap_or("float");
        let (ty, second) = (name(inputs[0].dtype), name(inputs[1].dtype));
        let Channels { each, last } = channels;
        let (parameters, call) = match self {
            Rule::Grid => {
                let (taps, rounds) = match attrs.text("mode") {
                    "nearest" => (1, true),
                    "cubic" | "bicubic" => (4, false),
                    _ => (2, false),
                };
                // What is rounded to a place must not be rounded before.
                let wide = rounds || inputs[..2].iter().any(|input| input.dtype == DType::Float64);
                let place = if wide { "double" } else { "float" };
                let axes = inputs[0].shape.len() - 2;
                (
                    format!("const {second}* grid, const __grid_constant__ Sampler shape"),
                    format!("grid_sample<{ty}, {second}, {place}, {each}, {last}, {axes}, {taps}>(y, x, grid, shape)"),
                )
            }
            Rule::Align => {
                let (index, most) = (name(inputs[2].dtype), attrs.text("mode") == "max");
                (
                    format!(
                        "const {ty}* rois, const {index}* images, const __grid_constant__ Regions shape, int64* flag"
                    ),
                    format!("roi_align<{ty}, {index}, {each}, {last}, {most}>(y, x, rois, images, shape, flag)"),
                )
            }
            Rule::Pool => (
                format!("const {ty}* rois, const __grid_constant__ Regions shape, int64* flag"),
                format!("max_roi_pool<{ty}, {each}, {last}>(y, x, rois, shape, flag)"),
            ),
        };
        format!(
            "{SOURCE}\nextern \"C\" __global__ void __launch_bounds__({THREADS}) sampling({ty}* y, const {ty}* x, \
             {parameters}) {{\n    {call};\n}}\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_follow_the_layout() {
        let operand = |shape: &[usize], layout| Operand::dense(DType::Float16, shape.to_vec(), layout);
        let (x, y) = ([2, 24, 5, 7], [2, 24, 3, 4]);
        let words = |layout| {
            let x = operand(&x, layout);
            let channels = Channels::of(&x);
            let words = spots(&x, &operand(&y, layout), &channels);
            (channels.each, words[0], words[7..].to_vec())
        };
        let plain = vec![24, 840, 35, 7, 1, 0, 288, 12, 1, 2, 5, 7, 1];
        assert_eq!(words(Layout::Plain), (4, 2 * 12 * 6, plain));
        let last = vec![24, 840, 1, 168, 24, 0, 288, 1, 24, 2, 5, 7, 1];
        assert_eq!(words(Layout::ChannelsLast), (8, 2 * 12 * 3, last));
    }
}
