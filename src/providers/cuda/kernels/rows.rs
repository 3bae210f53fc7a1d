//! Rows of numbers that a block of threads works on together: softmax, normalizations, reductions.

use super::pointwise::code::element;
use super::{Answer, Gpu};
use crate::error::{Error, Result};
use crate::network::attr::Read;
use crate::network::dtype::DType;
use crate::network::ops::reduce;
use crate::network::{LayerId, TensorId};
use crate::plan::layout::Layout;
use crate::plan::{Call, Candidate, Form, Instance, Kernel, Request};
use crate::providers::common::Why;
use crate::providers::common::scope::{Scope, uniform_forms};
use crate::providers::cuda::device::{Arguments, Function, Grid};
use std::sync::Arc;

const SOURCE: &str = include_str!("../../../../kernels/rows.cu");

/// Softmax, LogSoftmax, LayerNormalization, RMSNormalization and reductions.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    let ty = scope.output_type(0);
    let kind = match scope.op() {
        "Softmax" | "LogSoftmax" => Kind::Softmax,
        "LayerNormalization" | "RMSNormalization" if scope.layer().outputs.len() == 1 => Kind::Norm,
        op if REDUCTIONS.contains(&op) => Kind::Reduce,
        _ => return Ok(vec![]),
    };
    if !ty.dtype.is_float() || ty.dtype == DType::Float64 {
        return Err(Why::new(format!("rows of {} are not computed", ty.dtype)));
    }
    let rows = match kind {
        Kind::Norm => return Ok(norms(scope, gpu)),
        Kind::Softmax => softmax(scope, gpu),
        Kind::Reduce => reduction(scope, gpu),
    };
    rows.map(|rows| vec![scope.alone(rows, &[0])])
        .map_err(|e| Why::new(e.message()))
}

enum Kind {
    Softmax,
    Norm,
    Reduce,
}

/// Those that `rows.cu` has a rule for.
const REDUCTIONS: [&str; 9] = [
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSum",
];

fn softmax(scope: &Scope, gpu: &Arc<Gpu>) -> Result<Rows> {
    let axis = scope.output_type(0).axis(scope.layer().attrs.int("axis"))?;
    let ty = element(scope.output_type(0).dtype).unwrap_or("float");
    let logarithm = scope.op() == "LogSoftmax";
    let body = format!("softmax<{ty}, {logarithm}>(y, x, length, inner);");
    Ok(Rows {
        name: scope.op().into(),
        source: kernel(&format!("{ty}* y, const {ty}* x, uint32 length, uint32 inner"), &body),
        axes: axis..axis + 1,
        inputs: 1,
        outputs: 1,
        epsilon: None,
        gpu: gpu.clone(),
    })
}

fn reduction(scope: &Scope, gpu: &Arc<Gpu>) -> Result<Rows> {
    let x = scope
        .input_type(0)
        .ok_or_else(|| Error::unsupported("the input is missing"))?;
    let axes = reduce::axes(&scope.layer().attrs, x)?;
    let (Some(&first), Some(&last)) = (axes.first(), axes.last()) else {
        return Err(Error::unsupported("no axis is reduced"));
    };
    if last - first + 1 != axes.len() {
        return Err(Error::unsupported("the reduced axes do not lie next to each other"));
    }
    let ty = element(x.dtype).unwrap_or("float");
    let body = format!("reduce<{ty}, {}>(y, x, length, inner);", scope.op());
    Ok(Rows {
        name: scope.op().into(),
        source: kernel(&format!("{ty}* y, const {ty}* x, uint32 length, uint32 inner"), &body),
        axes: first..last + 1,
        inputs: 1,
        outputs: 1,
        epsilon: None,
        gpu: gpu.clone(),
    })
}

/// The normalization with the Add before it, and alone.
fn norms(scope: &Scope, gpu: &Arc<Gpu>) -> Vec<Candidate> {
    let layer = scope.layer();
    let ty = scope.output_type(0);
    let Ok(axis) = ty.axis(layer.attrs.int("axis")) else {
        return vec![];
    };
    let row = &ty.shape[axis..];
    let sides: Vec<Option<TensorId>> = [1, 2].map(|i| scope.input(i)).to_vec();
    // What is smaller than a row runs as smaller ops.
    if sides.iter().flatten().any(|&t| scope.network[t].ty.shape != row) {
        return vec![];
    }
    let make = |added: Option<(LayerId, [TensorId; 2], Option<TensorId>)>| {
        let kept = added.and_then(|(_, _, sum)| sum);
        let mut inputs = added.map_or(scope.input(0).into_iter().collect(), |(_, inputs, _)| inputs.to_vec());
        inputs.extend(sides.iter().flatten());
        let mut outputs = layer.outputs.clone();
        outputs.extend(kept);
        let kernel = Rows {
            name: format!("{}{}", if added.is_some() { "Add+" } else { "" }, layer.op.name),
            source: norm_source(scope, added.is_some(), kept.is_some(), &sides),
            axes: axis..ty.rank(),
            inputs: inputs.len(),
            outputs: outputs.len(),
            epsilon: Some(layer.attrs.float("epsilon") as f32),
            gpu: gpu.clone(),
        };
        let layers = added.map(|(add, ..)| add).into_iter().chain([scope.layer]).collect();
        Candidate {
            kernel: Arc::new(kernel),
            layers,
            inputs,
            outputs,
        }
    };
    scope
        .residual()
        .into_iter()
        .map(|added| make(Some(added)))
        .chain([make(None)])
        .collect()
}

fn norm_source(scope: &Scope, added: bool, kept: bool, sides: &[Option<TensorId>]) -> String {
    let ty = element(scope.output_type(0).dtype).unwrap_or("float");
    let side = sides
        .iter()
        .flatten()
        .next()
        .map_or(ty, |&t| element(scope.network[t].ty.dtype).unwrap_or(ty));
    let centred = scope.op() == "LayerNormalization";
    let (scaled, shifted) = (sides[0].is_some(), sides[1].is_some());
    let all = [
        (true, format!("{ty}* y")),
        (kept, format!("{ty}* kept")),
        (true, format!("const {ty}* a")),
        (added, format!("const {ty}* b")),
        (scaled, format!("const {side}* scale")),
        (shifted, format!("const {side}* shift")),
        (true, "uint32 length, uint32 inner, float epsilon".into()),
    ];
    let parameters: Vec<String> = all
        .into_iter()
        .filter(|(there, _)| *there)
        .map(|(_, text)| text)
        .collect();
    let or_null = |there: bool, name: &str, ty: &str| if there { name.into() } else { format!("({ty}*)0") };
    let body = format!(
        "normalize<{ty}, {side}, {centred}, {added}, {kept}, {scaled}, {shifted}>(y, {}, a, {}, {}, {}, length, epsilon);",
        or_null(kept, "kept", ty),
        or_null(added, "b", ty),
        or_null(scaled, "scale", side),
        or_null(shifted, "shift", side)
    );
    kernel(&parameters.join(", "), &body)
}

fn kernel(parameters: &str, body: &str) -> String {
    format!("{SOURCE}\nextern \"C\" __global__ void rows({parameters}) {{\n    {body}\n}}\n")
}

struct Rows {
    name: String,
    source: String,
    /// The axes of the input that make up a row.
    axes: std::ops::Range<usize>,
    inputs: usize,
    outputs: usize,
    /// Of a normalization, which keeps a row in shared memory.
    epsilon: Option<f32>,
    gpu: Arc<Gpu>,
}

impl Kernel for Rows {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn identity(&self) -> String {
        format!("{} {:?}", self.name, self.axes)
    }

    fn forms(&self) -> Vec<Form> {
        uniform_forms(&[Layout::Plain], self.inputs, self.outputs)
    }

    fn instantiate(&self, request: &Request) -> Result<Box<dyn Instance>> {
        let shape = &request.inputs[0].shape;
        let length: usize = shape[self.axes.clone()].iter().product();
        let inner: usize = shape[self.axes.end..].iter().product();
        let rows = shape[..self.axes.start].iter().product::<usize>() * inner;
        let shared = if self.epsilon.is_some() {
            length * size_of::<f32>()
        } else {
            0
        };
        if rows > i32::MAX as usize || length > u32::MAX as usize || shared > self.gpu.device.shared_bytes {
            return Err(Error::unsupported("rows of this length do not fit")
                .expected(format!(
                    "1 to {} numbers",
                    self.gpu.device.shared_bytes / size_of::<f32>()
                ))
                .got(format!("{rows} rows of {length}")));
        }
        Ok(Box::new(Joining {
            function: self.gpu.compiler.function(&self.source, "rows", shared)?,
            grid: Grid {
                blocks: [rows as u32, 1, 1],
                threads: threads(length),
            },
            length,
            inner,
            epsilon: self.epsilon,
        }))
    }
}

/// Threads of the block for a row: a few numbers each.
fn threads(length: usize) -> u32 {
    (length.div_ceil(4) as u32).next_power_of_two().clamp(32, 512)
}

struct Joining {
    function: Function,
    grid: Grid,
    length: usize,
    inner: usize,
    epsilon: Option<f32>,
}

impl Instance for Joining {
    fn implementation(&self) -> String {
        format!("a block of {} threads a row", self.grid.threads)
    }

    fn run(&mut self, call: &Call) -> Result<()> {
        let mut arguments = Arguments::of(call);
        arguments.number(self.length as i64).number(self.inner as i64);
        if let Some(epsilon) = self.epsilon {
            arguments.float(epsilon);
        }
        // SAFETY: these are the parameters that the source declares, for operands that the planner vouches for.
        unsafe { self.function.launch(self.grid, &arguments, call.queue) }
    }
}
