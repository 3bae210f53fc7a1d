//! Ops whose result is boxes of their input: Slice, Pad, Tile and CenterCropPad, where the shapes determine the boxes.

mod axis;

use super::launch::{Launches, fields};
use super::parts::ordered;
use super::words::{bits, divisor, pack};
use super::{Answer, Gpu};
use crate::error::Result;
use crate::network::attr::Read;
use crate::network::dim::{Binding, Dim};
use crate::network::ops::pad;
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Alias, Form, Kernel, Prepared, Request, Tactic};
use crate::providers::common::Why;
use crate::providers::common::operand_strides::axes;
use crate::providers::common::scope::Scope;
use crate::providers::common::slices::{self, Places};
use crate::providers::cuda::device::Grid;
use axis::{Axis, Border, joined};
use std::sync::Arc;

const SOURCE: &str = include_str!("../../../../../kernels/boxes.cu");
/// Threads of a block.
const THREADS: u32 = 256;

/// Slice, Pad, Tile and CenterCropPad in both layouts.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    let mut filler = false;
    let mut alias = Alias::None;
    let rule = match scope.op() {
        "Slice" => {
            let places = slices::places(scope)?;
            alias = slices::alias(scope, &places);
            Rule::Slice(places)
        }
        "Pad" => {
            let border = border(scope)?;
            filler = border == Border::Filled && scope.input(2).is_some();
            Rule::Pad(amounts(scope)?, border)
        }
        "Tile" => Rule::Tile,
        "CenterCropPad" => Rule::Middle,
        _ => return Ok(vec![]),
    };
    let rank = scope.output_type(0).rank();
    let layouts = [Layout::Plain, Layout::ChannelsLast].into_iter();
    let kernel = Boxes {
        name: scope.op(),
        identity: format!("{} {rule:?} {filler}", scope.op()),
        layouts: layouts.filter(|layout| layout.fits(rank)).collect(),
        rule,
        alias,
        filler,
        gpu: gpu.clone(),
    };
    Ok(vec![scope.alone(kernel, if filler { &[0, 2] } else { &[0] })])
}

/// Where the boxes lie.
#[derive(Debug)]
enum Rule {
    Slice(Places),
    /// Elements before each axis, and what stands outside.
    Pad(Vec<Dim>, Border),
    Tile,
    /// The middle of one lies on the middle of the other.
    Middle,
}

fn amounts(scope: &Scope) -> std::result::Result<Vec<Dim>, Why> {
    let (pads, ty) = (scope.known(1)?, scope.output_type(0));
    let axes = scope.numbers(3)?.unwrap_or_else(|| (0..ty.rank() as i64).collect());
    let mut before = vec![Dim::default(); ty.rank()];
    for (&axis, count) in axes.iter().zip(pads) {
        before[ty.axis(axis).map_err(|e| Why::new(e.message()))?] = count;
    }
    Ok(before)
}

fn border(scope: &Scope) -> std::result::Result<Border, Why> {
    Ok(match scope.layer().attrs.text("mode") {
        "constant" => Border::Filled,
        "edge" => Border::Edge,
        "reflect" => Border::Reflected,
        "wrap" => Border::Wrapped,
        other => return Err(Why::new(format!("padding with mode {other} is unknown"))),
    })
}

struct Boxes {
    name: &'static str,
    identity: String,
    layouts: Vec<Layout>,
    rule: Rule,
    /// How the result may lie in the input.
    alias: Alias,
    /// Whether an input says what the rest is filled with.
    filler: bool,
    gpu: Arc<Gpu>,
}

impl Kernel for Boxes {
    fn name(&self) -> String {
        self.name.into()
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn forms(&self) -> Vec<Form> {
        let form = |&layout: &Layout| Form {
            tactic: Tactic::ONLY,
            inputs: [vec![layout], vec![Layout::Plain; self.filler.into()]].concat(),
            outputs: vec![layout],
        };
        self.layouts.iter().map(form).collect()
    }

    fn alias(&self, _form: &Form) -> Alias {
        self.alias.clone()
    }

    fn takes_slices(&self, _form: &Form) -> (bool, bool) {
        (true, true)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let (from, to) = (&request.inputs[0], &request.outputs[0]);
        fields([from.elements() as i64, to.elements() as i64])?;
        let axes = joined(self.axes(from, to, request.binding)?);
        Ok(self.launch(&axes, to)?.into())
    }
}

impl Boxes {
    /// The axes in the order of memory.
    fn axes(&self, from: &Operand, to: &Operand, binding: &Binding) -> Result<Vec<Axis>> {
        let (read, written) = (axes(from).strides, axes(to).strides);
        let along = |axis: usize| {
            let (extent, size) = (from.shape[axis], to.shape[axis]);
            let whole = Axis::whole(extent, size, written[axis], read[axis]);
            Ok(match &self.rule {
                Rule::Slice(places) => {
                    let (start, step) = &places[axis];
                    let start = start.as_ref().map(|start| start.eval(binding)).transpose()?;
                    whole.sliced(start.unwrap_or(0), *step)
                }
                Rule::Pad(before, border) => whole.padded(before[axis].eval(binding)?, *border),
                Rule::Tile => whole.repeated(),
                Rule::Middle => {
                    let kept = extent.min(size);
                    let [cut, added] = [extent, size].map(|all| ((all - kept) / 2) as i64);
                    whole.padded(added - cut, Border::Filled)
                }
            })
        };
        if let Rule::Pad(_, Border::Edge | Border::Reflected | Border::Wrapped) = self.rule {
            pad::check_repeats(&from.shape, &to.shape)?;
        }
        let order = ordered(&(0..to.shape.len()).collect::<Vec<_>>(), to.layout);
        order.into_iter().map(along).collect()
    }

    fn launch(&self, axes: &[Axis], to: &Operand) -> Result<Launches> {
        let (ty, count) = (bits(to.dtype), axes.len());
        let last = &axes[count - 1];
        let evenly = axes[..count - 1].iter().map(|axis| axis.to);
        let taken = pack(to.dtype.size(), evenly.chain([last.size]));
        let items = to.elements() / taken;
        let mut words = vec![items as i64];
        for (i, axis) in axes.iter().enumerate() {
            let packs = if i + 1 == count { axis.size / taken } else { axis.size };
            words.extend(divisor(packs));
            words.extend(axis.words());
        }
        let (parameter, fill) = if self.filler {
            (format!("const {ty}* fill, "), "*fill")
        } else {
            (String::new(), "0")
        };
        let source = format!(
            "{SOURCE}\nextern \"C\" __global__ void __launch_bounds__({THREADS}) moving({ty}* y, const {ty}* x, {parameter}\
             const __grid_constant__ Boxes<{count}> shape) {{\n    boxes<{ty}, {taken}, {count}>(y, x, {fill}, shape);\n}}\n"
        );
        let function = self.gpu.compiler.entry(&source, "moving", 0);
        let how = format!("a box along {count} axes, {taken} at a time");
        Ok(Launches::one(
            function,
            Grid::over(items, THREADS)?,
            fields(words)?,
            &how,
        ))
    }
}
