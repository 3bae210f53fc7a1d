//! Products of 16-bit floats whose rows are brought together before they are stored: with a normalization, a reduction of each row, or
//! a scale for each token, and pointwise layers around it.

use super::behind::Behind;
use super::follow::is_step;
use super::own::{self, Size, Tile};
use super::problem::Problem;
use crate::error::{Error, Result};
use crate::network::attr::Read;
use crate::network::{Network, TensorId};
use crate::plan::layout::Layout;
use crate::plan::{Candidate, Form, Prepared, Request, Tactic};
use crate::providers::common::epilogue::name;
use crate::providers::common::row_epilogue::{RowEpilogue, RowStep, behind_rows};
use crate::providers::common::scope::Scope;
use crate::providers::cuda::device::{Device, Grid, HOPPER};
use crate::providers::cuda::kernels::Gpu;
use crate::providers::cuda::kernels::launch::{Launches, sourced};
use crate::providers::cuda::kernels::pointwise::code::element;
use crate::providers::cuda::kernels::rows::per_token::TOKENS;
use std::sync::Arc;

const SOURCE: &str = include_str!("../../../../../kernels/gemm_rows.cu");
/// So many tiles are tried for one product.
const TILES: u32 = 4;
/// Blocks of a cluster on every GPU that has them.
const CLUSTER: usize = 8;

const SIZES: [Size; 7] = [
    ([128, 128, 32], [2, 4]),
    ([64, 256, 32], [2, 4]),
    ([64, 128, 64], [2, 4]),
    ([32, 256, 64], [1, 8]),
    ([32, 128, 64], [1, 4]),
    ([16, 128, 64], [1, 4]),
    ([32, 64, 64], [2, 4]),
];

/// The scope's product with what brings its rows together. No plan takes it: on an H200, with a bias, a residual and a LayerNormalization,
/// it took 0.92 to 3.6 times as long as the best product and a kernel for the rows behind it (22 shapes of 1 to 25,088 rows, 32 to 3,072
/// terms and 32 to 768 columns, 20 of them slower): a cluster that holds whole rows leaves neither warpgroups nor shares of sums.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Vec<Candidate> {
    if scope.op() != "MatMul" {
        return vec![];
    }
    let ty = scope.output_type(0);
    let matrices = [0, 1]
        .iter()
        .all(|&input| scope.input_type(input).is_some_and(|ty| ty.rank() > 1));
    let columns = ty
        .shape
        .last()
        .and_then(|columns| usize::try_from(columns.as_const()?).ok());
    let Some(columns) = columns.filter(|_| matrices && own::has_tensor_cores(&gpu.device, ty.dtype)) else {
        return vec![];
    };
    if tiles(&gpu.device, columns).is_empty() {
        return vec![];
    }
    let found = behind_rows(scope, scope.layer().outputs[0], &|id| is_step(scope, id));
    found
        .iter()
        .filter_map(|epilogue| candidate(scope, gpu, epilogue))
        .collect()
}

/// Those whose clusters have all columns.
fn tiles(device: &Device, columns: usize) -> Vec<Tile> {
    let most = if device.capability >= HOPPER { CLUSTER } else { 1 };
    let fits = |tile: &Tile| {
        let across = columns.div_ceil(tile.size[1]);
        across <= most && shared_bytes(tile, across) <= device.shared_bytes
    };
    Tile::of(&SIZES).filter(fits).collect()
}

/// Bytes of shared memory: what was found of each row by each block of a cluster lies behind all else.
fn shared_bytes(tile: &Tile, across: usize) -> usize {
    tile.shared_bytes() + across * tile.size[0] * 2 * size_of::<f32>()
}

fn candidate(scope: &Scope, gpu: &Arc<Gpu>, epilogue: &RowEpilogue) -> Option<Candidate> {
    let network = scope.network;
    let (left, right) = (scope.input(0)?, scope.input(1)?);
    let rows = Rows::new(network, epilogue, [left, right])?;
    let layers = epilogue.layers_behind(scope.layer);
    let attrs = &scope.layer().attrs;
    let transposed = [attrs.flag("transA"), attrs.flag("transB")];
    let (inputs, outputs) = (rows.inputs.clone(), rows.outputs.clone());
    let form = |tile: u32| Form {
        tactic: Tactic::new("rows", tile),
        inputs: vec![Layout::Plain; inputs.len()],
        outputs: vec![Layout::Plain; outputs.len()],
    };
    let forms = (0..TILES).map(form).collect();
    let identity = format!("{transposed:?} {}", rows.source);
    let make = move |gpu: &Gpu, request: &Request| {
        let number = request.form.tactic.number() as usize;
        rows.instance(gpu, number, transposed, request)
    };
    Some(Candidate {
        kernel: Arc::new(sourced(&name(network, &layers), identity, forms, gpu, make)),
        layers,
        inputs,
        outputs,
    })
}

/// A kernel, but for its tile.
struct Rows {
    /// `gemm_rows`, and the namespaces `before` and `after` with a `Tail` each.
    source: String,
    /// The parameters of the entry point.
    parameters: String,
    /// The arguments of `gemm_rows`.
    arguments: String,
    inputs: Vec<TensorId>,
    outputs: Vec<TensorId>,
    epsilon: f32,
    /// Whether the right matrix is a constant.
    held: bool,
}

/// A tensor as a parameter.
struct Parameter {
    tensor: TensorId,
    ty: String,
    name: String,
}

impl Parameter {
    /// Those of a namespace: its operands, or what its tail stores besides.
    fn all(tensors: impl IntoIterator<Item = TensorId>, space: &str, letter: char) -> Vec<Self> {
        let one = |(number, tensor)| Self {
            tensor,
            ty: format!("{space}::{}{number}", letter.to_ascii_uppercase()),
            name: format!("{space}_{letter}{number}"),
        };
        (1..).zip(tensors).map(one).collect()
    }

    fn named(network: &Network, tensor: TensorId, name: &str) -> Self {
        Self {
            tensor,
            ty: element(network[tensor].ty.dtype).unwrap_or("float").into(),
            name: name.into(),
        }
    }
}

fn names(parameters: &[Parameter]) -> Vec<&str> {
    parameters.iter().map(|parameter| parameter.name.as_str()).collect()
}

/// A tail in a namespace: what it reads, and what it stores beside its result.
struct Space {
    text: String,
    operands: Vec<Parameter>,
    others: Vec<Parameter>,
    tail: String,
}

impl Space {
    fn new(behind: &Behind, space: &str) -> Self {
        let operands = Parameter::all(behind.operands.iter().map(|operand| operand.tensor), space, 'x');
        let others = Parameter::all(behind.outputs[1..].iter().copied(), space, 'z');
        let fields: Vec<&str> = names(&operands).into_iter().chain(names(&others)).collect();
        Self {
            text: format!("namespace {space} {{\n{}}}\n", behind.text),
            tail: format!("{space}::Tail{{{}}}", fields.join(", ")),
            operands,
            others,
        }
    }
}

impl Rows {
    fn new(network: &Network, epilogue: &RowEpilogue, matrices: [TensorId; 2]) -> Option<Self> {
        let before = Space::new(&Behind::unrounded(network, &epilogue.before), "before");
        let behind = epilogue.after.as_ref().map(|after| Behind::new(network, after));
        let after = behind.as_ref().map(|behind| Space::new(behind, "after"));
        let results = &network[epilogue.layer].outputs;
        let y = behind.as_ref().map_or(results[0], |behind| behind.outputs[0]);
        let mut outputs = vec![Parameter::named(network, y, "y")];
        if epilogue.step == RowStep::PerToken {
            outputs.push(Parameter::named(network, *results.get(1)?, "scales"));
        }
        let sides: Vec<Parameter> = match epilogue.step {
            RowStep::Normalize { scale, shift, .. } => {
                let scale = scale.map(|t| Parameter::named(network, t, "scale"));
                scale
                    .into_iter()
                    .chain(shift.map(|t| Parameter::named(network, t, "shift")))
                    .collect()
            }
            _ => vec![],
        };
        let step = step(network, epilogue)?;
        let (after_text, after_tail) = match &after {
            Some(after) => (after.text.as_str(), after.tail.as_str()),
            None => ("", "NoTail{}"),
        };
        let source = format!("{TOKENS}{SOURCE}{}{after_text}", before.text);
        let kept = epilogue
            .kept
            .then(|| Parameter::named(network, epilogue.before.result(), "kept"));
        let none = format!("({}*)nullptr", element(network[matrices[0]].ty.dtype)?);
        let arguments = format!(
            "{}, {}, a, b, {}, {step}, {after_tail}, s",
            if after.is_some() { "y" } else { &none },
            if kept.is_some() { "kept" } else { &none },
            before.tail,
        );
        let (after_operands, after_others) = after.map(|after| (after.operands, after.others)).unwrap_or_default();
        outputs.extend(after_others);
        outputs.extend(before.others);
        outputs.extend(kept);
        let [a, b] = [(0, "a"), (1, "b")].map(|(at, name)| Parameter::named(network, matrices[at], name));
        let mut inputs = vec![a, b];
        inputs.extend(before.operands);
        inputs.extend(sides);
        inputs.extend(after_operands);
        let written = outputs.iter().map(|Parameter { ty, name, .. }| format!("{ty}* {name}"));
        let read = inputs
            .iter()
            .map(|Parameter { ty, name, .. }| format!("const {ty}* {name}"));
        let parameters: Vec<String> = written.chain(read).chain(["const RowProduct s".into()]).collect();
        let tensors = |parameters: &[Parameter]| parameters.iter().map(|parameter| parameter.tensor).collect();
        Some(Self {
            source,
            parameters: parameters.join(", "),
            arguments,
            inputs: tensors(&inputs),
            outputs: tensors(&outputs),
            epsilon: match epilogue.step {
                RowStep::Normalize { epsilon, .. } => epsilon as f32,
                _ => 0.0,
            },
            held: network[matrices[1]].constant().is_some(),
        })
    }

    fn instance(&self, gpu: &Gpu, number: usize, transposed: [bool; 2], request: &Request) -> Result<Prepared> {
        let shape = |input: usize| request.inputs[input].shape.as_slice();
        let problem = Problem::new(transposed, shape(0), shape(1));
        let processors = gpu.device.multiprocessors as usize;
        let tiles = own::ranked(tiles(&gpu.device, problem.n), &problem, 1, processors);
        let tile = tiles.get(number).or(tiles.last());
        let tile = tile.ok_or_else(|| Error::unsupported("no cluster of blocks has all columns of the product"))?;
        let ([m, n, k], [down, right], stages) = (tile.size, tile.warps, tile.stages);
        let (blocks, threads) = (problem.n.div_ceil(n), tile.threads());
        let cluster = match blocks {
            1 => String::new(),
            _ => format!("__cluster_dims__(1, 1, {blocks}) "),
        };
        let [ta, tb] = problem.transposed;
        let source = own::on_tensor_cores(&format!(
            "{}extern \"C\" __global__ void {cluster}__launch_bounds__({threads}) product({}) {{\n    \
             gemm_rows<Tile<{m}, {n}, {k}, {down}, {right}, {stages}, 1, {ta}, {tb}>, {blocks}, {}>({});\n}}\n",
            self.source, self.parameters, self.held, self.arguments
        ));
        let function = gpu.compiler.entry(&source, "product", shared_bytes(tile, blocks));
        let rows = problem.batches() * problem.m.div_ceil(m);
        let mut grid = Grid::over(rows * threads, threads as u32)?;
        grid.blocks[2] = blocks as u32;
        let mut words = own::numbers(&problem)?;
        words.push(self.epsilon.to_bits() as i32);
        let how = format!("tensor cores, tiles of {m} x {n}, rows of {blocks}");
        Ok(Launches::one(function, grid, words, how).into())
    }
}

/// The functor of `gemm_rows.cu` for what brings rows together.
fn step(network: &Network, epilogue: &RowEpilogue) -> Option<String> {
    let ty = |t: TensorId| element(network[t].ty.dtype);
    Some(match epilogue.step {
        RowStep::Normalize {
            centred, scale, shift, ..
        } => {
            let side = scale.or(shift).map_or(Some("float"), ty)?;
            let name = |side: Option<TensorId>, name: &'static str| if side.is_some() { name } else { "nullptr" };
            let (scaled, shifted) = (scale.is_some(), shift.is_some());
            let fields = [name(scale, "scale"), name(shift, "shift")].join(", ");
            format!("NormalizeRow<{centred}, {side}, {scaled}, {shifted}>{{{fields}}}")
        }
        RowStep::Reduce(op) => {
            let rule = match op {
                "ReduceMax" => "Most, false",
                "ReduceMin" => "Least, false",
                "ReduceMean" => "Plus, true",
                _ => "Plus, false",
            };
            format!("ReduceRow<{rule}, {}>{{y}}", ty(network[epilogue.layer].outputs[0])?)
        }
        RowStep::PerToken => "TokenRow{scales}".into(),
    })
}
