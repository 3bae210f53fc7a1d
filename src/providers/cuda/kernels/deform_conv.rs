//! DeformConv.

use super::launch::{Launches, fields, sourced};
use super::pointwise::code::element;
use super::words::divisor;
use super::{Answer, Gpu};
use crate::error::Result;
use crate::network::attr::{Attr, Read};
use crate::network::ops::conv;
use crate::network::ops::spatial::Window;
use crate::plan::Request;
use crate::plan::layout::{Layout, Operand};
use crate::providers::common::Why;
use crate::providers::common::scope::{Scope, uniform_forms};
use crate::providers::cuda::device::Grid;
use std::sync::Arc;

const SOURCE: &str = include_str!("../../../../kernels/deform_conv.cu");
/// Threads of a block.
const THREADS: u32 = 128;
/// `OUTPUTS` of `deform_conv.cu`.
const OUTPUTS: usize = 8;

/// DeformConv with and without bias and mask.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    if scope.op() != "DeformConv" {
        return Ok(vec![]);
    }
    let mut attrs = scope.layer().attrs.clone();
    attrs.insert("auto_pad".into(), Attr::Text("NOTSET".into()));
    let weights = scope.input_type(1).map(|w| w.shape.as_slice()).unwrap_or_default();
    let kernel = Deformed {
        window: conv::window(&attrs, weights).map_err(|e| Why::new(e.message()))?,
        group: attrs.int("group") as usize,
        offsets: attrs.int("offset_group") as usize,
        biased: scope.input(3).is_some(),
        masked: scope.input(4).is_some(),
    };
    let count = 3 + usize::from(kernel.biased) + usize::from(kernel.masked);
    let forms = uniform_forms(&[Layout::Plain], count, 1);
    let identity = format!("{kernel:?}");
    let make = move |gpu: &Gpu, request: &Request| kernel.launch(gpu, request);
    let kernel = sourced("DeformConv", identity, forms, gpu, make);
    Ok(vec![scope.alone(kernel, &[0, 1, 2, 3, 4])])
}

#[derive(Debug)]
struct Deformed {
    window: Window,
    group: usize,
    offsets: usize,
    biased: bool,
    masked: bool,
}

impl Deformed {
    fn launch(&self, gpu: &Gpu, request: &Request) -> Result<Launches> {
        let y = &request.outputs[0];
        let ty = element(y.dtype).unwrap_or("float");
        let or_null = |there: bool, name: &'static str| if there { name } else { "0" };
        let parameter = |there: bool, name: &str| {
            if there {
                format!("const {ty}* {name}, ")
            } else {
                String::new()
            }
        };
        let source = format!(
            "{SOURCE}\nextern \"C\" __global__ void __launch_bounds__({THREADS}) deformed({ty}* y, const {ty}* x, \
             const {ty}* w, const {ty}* offset, {}{}const __grid_constant__ Deformed shape) {{\n    \
             deform_conv<{ty}, {}, {}>(y, x, w, offset, {}, {}, shape);\n}}\n",
            parameter(self.biased, "bias"),
            parameter(self.masked, "mask"),
            self.biased,
            self.masked,
            or_null(self.biased, "bias"),
            or_null(self.masked, "mask"),
        );
        let function = gpu.compiler.entry(&source, "deformed", 0);
        let (items, words) = self.words(&request.inputs[0], y);
        let how = format!("{OUTPUTS} channels of a place a thread");
        Ok(Launches::one(
            function,
            Grid::over(items, THREADS)?,
            fields(words)?,
            &how,
        ))
    }

    /// How many threads there are, and `Deformed` of `deform_conv.cu`.
    fn words(&self, x: &Operand, y: &Operand) -> (usize, Vec<i64>) {
        let places = y.shape[2] * y.shape[3];
        let (channels, outputs) = (x.shape[1] / self.group, y.shape[1] / self.group);
        let chunks = outputs.div_ceil(OUTPUTS);
        let items = y.shape[0] * self.group * chunks * places;
        let mut words = vec![items as i64];
        words.extend([places, y.shape[3], chunks, self.group].into_iter().flat_map(divisor));
        let shared = [
            channels,
            outputs,
            x.shape[1] / self.offsets,
            self.offsets,
            x.shape[2],
            x.shape[3],
        ];
        words.extend(shared.iter().map(|&word| word as i64));
        let window = &self.window;
        let lists = [&window.kernel, &window.strides, &window.dilations, &window.begin];
        words.extend(lists.into_iter().flatten());
        (items, words)
    }
}
