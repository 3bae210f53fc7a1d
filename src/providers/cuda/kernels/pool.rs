//! MaxPool, AveragePool and their global forms.

use super::launch::{Launch, Sourced, fields};
use super::pointwise::code::element;
use super::{Answer, Gpu};
use crate::error::Result;
use crate::network::attr::{Attrs, Read};
use crate::network::ops::pool;
use crate::plan::Request;
use crate::plan::layout::{Layout, Operand};
use crate::providers::common::Why;
use crate::providers::common::scope::{Scope, uniform_forms};
use crate::providers::common::view::axes;
use crate::providers::cuda::device::Grid;
use std::sync::Arc;

const SOURCE: &str = include_str!("../../../../kernels/pool.cu");
/// Spatial axes that `pool.cu` walks; one or two are the last of these.
const AXES: usize = 3;
/// Threads of a block.
const THREADS: u32 = 128;

/// Pooling in both layouts.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    let (average, global) = match scope.op() {
        "MaxPool" => (false, false),
        "AveragePool" => (true, false),
        "GlobalMaxPool" => (false, true),
        "GlobalAveragePool" => (true, true),
        _ => return Ok(vec![]),
    };
    let ty = scope.output_type(0);
    if !ty.dtype.is_float() || ty.rank() > AXES + 2 || scope.layer().outputs.len() != 1 {
        return Err(Why::new(format!("there is no pooling of {}", ty.describe())));
    }
    let attrs = scope.layer().attrs.clone();
    let name = scope.op();
    let layouts = [Layout::ChannelsLast, Layout::Plain].into_iter();
    let layouts: Vec<_> = layouts.filter(|layout| layout.fits(ty.rank())).collect();
    let identity = format!("{attrs:?}");
    let pool = Pool { attrs, average, global };
    let make = move |gpu: &Gpu, request: &Request| pool.launch(gpu, request);
    let kernel = Sourced::new(name, identity, uniform_forms(&layouts, 1, 1), gpu, make);
    Ok(vec![scope.alone(kernel, &[0])])
}

struct Pool {
    attrs: Attrs,
    average: bool,
    global: bool,
}

/// What `Window` of `pool.cu` says of the spatial axes.
struct Spatial {
    kernel: Vec<i64>,
    stride: Vec<i64>,
    dilation: Vec<i64>,
    begin: Vec<i64>,
    end: Vec<i64>,
}

impl Pool {
    fn spatial(&self, x: &Operand, y: &Operand) -> Result<Spatial> {
        let extents: Vec<i64> = x.shape[2..].iter().map(|&d| d as i64).collect();
        let count = extents.len();
        if self.global {
            let (ones, zeros) = (vec![1; count], vec![0; count]);
            return Ok(Spatial {
                kernel: extents.clone(),
                stride: ones.clone(),
                dilation: ones,
                begin: zeros,
                end: extents,
            });
        }
        let window = pool::window(&self.attrs)?;
        let padding = (0..count).map(|a| window.padding(a, extents[a], y.shape[a + 2] as i64));
        let (begin, behind): (Vec<i64>, Vec<i64>) = padding.unzip();
        let end = extents
            .iter()
            .zip(behind)
            .map(|(extent, behind)| extent + behind)
            .collect();
        Ok(Spatial {
            kernel: window.kernel,
            stride: window.strides,
            dilation: window.dilations,
            begin,
            end,
        })
    }

    /// `Window` of `pool.cu`.
    fn window(&self, x: &Operand, y: &Operand) -> Result<Vec<i32>> {
        let spatial = self.spatial(x, y)?;
        let rank = y.shape.len();
        let missing = AXES + 2 - rank;
        // An axis of the result among batch, channels and three spatial ones.
        let full = |axis: usize| if axis < 2 { axis } else { axis + missing };
        let mut order: Vec<usize> = (0..rank).collect();
        if y.layout == Layout::ChannelsLast {
            let channels = order.remove(1);
            order.push(channels);
        }
        let mut sizes = vec![1; missing];
        // Axes that are not there: anything but those that are.
        let mut which: Vec<usize> = (2..2 + missing).collect();
        sizes.extend(order.iter().map(|&axis| y.shape[axis]));
        which.extend(order.iter().map(|&axis| full(axis)));
        let mut strides = [0; AXES + 2];
        axes(x)
            .strides
            .iter()
            .enumerate()
            .for_each(|(axis, &stride)| strides[full(axis)] = stride);
        let mut words: Vec<i64> = vec![y.elements() as i64];
        words.extend(sizes.iter().chain(&which).chain(&strides).map(|&n| n as i64));
        let extents: Vec<i64> = x.shape[2..].iter().map(|&d| d as i64).collect();
        let lists = [
            (&extents, 1),
            (&spatial.kernel, 1),
            (&spatial.stride, 1),
            (&spatial.dilation, 1),
            (&spatial.begin, 0),
        ];
        for (list, filler) in lists.into_iter().chain([(&spatial.end, 1)]) {
            words.extend(std::iter::repeat_n(filler, missing));
            words.extend(list);
        }
        fields(words)
    }

    fn launch(&self, gpu: &Gpu, request: &Request) -> Result<Launch> {
        let (x, y) = (&request.inputs[0], &request.outputs[0]);
        let ty = element(y.dtype).unwrap_or("float");
        let counts = self.attrs.contains_key("count_include_pad") && self.attrs.flag("count_include_pad");
        let source = format!(
            "{SOURCE}\nextern \"C\" __global__ void pooling({ty}* y, const {ty}* x, const Window window) {{\n    \
             pool<{ty}, {}, {counts}>(y, x, window);\n}}\n",
            self.average
        );
        let function = gpu.compiler.function(&source, "pooling", 0)?;
        let grid = Grid::over(y.elements(), THREADS)?;
        Ok(Launch::new(function, grid, self.window(x, y)?, "one result a thread"))
    }
}
