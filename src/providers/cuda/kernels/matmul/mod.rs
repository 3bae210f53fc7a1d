//! Matrix products with what follows them: on cuBLASLt, on tensor cores, as graphs of cuDNN, and on plain arithmetic where
//! none of them goes.

mod bare;
pub mod behind;
pub mod follow;
mod fused;
pub mod library;
mod own;
pub mod problem;
pub mod rows;
#[cfg(test)]
mod tests;
pub mod together;
pub mod warpgroup;

pub use bare::Bare;

use super::{Answer, Gpu};
use crate::error::{Error, Result};
use crate::network::TensorId;
use crate::network::attr::Read;
use crate::network::dtype::DType;
use crate::plan::layout::Layout;
use crate::plan::tactic::tactics;
use crate::plan::{Candidate, Form, Kernel, Prepared, Request, Tier};
use crate::providers::common::Why;
use crate::providers::common::epilogue::{Broadcast, Epilogue, Operand, name};
use crate::providers::common::scope::Scope;
use crate::providers::cuda::kernels::singles::Single;
use crate::providers::cuda::kernels::spare::Spare;
use crate::providers::cuda::library::cublaslt::{self, CHOICES};
use behind::Behind;
use fused::{Fused, Product};
use library::{Calls, Multiplying, Slots, Steps, Wanted};
use own::Written;
use problem::Problem;
use std::sync::Arc;
use warpgroup::Grouped;

/// MatMul with as much of what follows as can be done with it, longest first.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    if scope.op() != "MatMul" {
        return Ok(vec![]);
    }
    let [Some(left), Some(right)] = [0, 1].map(|i| scope.input(i)) else {
        return Err(Why::new("an operand is missing"));
    };
    let mut found: Vec<Candidate> = together::offer(scope, gpu).into_iter().collect();
    let alone = |epilogue: Epilogue| single(scope, [left, right], &epilogue, gpu).candidate();
    found.extend(follow::epilogues(scope).into_iter().map(alone));
    Ok(found)
}

fn single(scope: &Scope, operands: [TensorId; 2], epilogue: &Epilogue, gpu: &Arc<Gpu>) -> Single<MatMul> {
    let network = scope.network;
    let behind = Behind::new(network, epilogue);
    let steps = Steps::new(network, epilogue);
    let attrs = &scope.layer().attrs;
    let transposed = [attrs.flag("transA"), attrs.flag("transB")];
    let dtype = scope.output_type(0).dtype;
    let alone = epilogue.others().is_empty();
    let fused = fused::Steps::new(network, epilogue).filter(|_| alone && own::has_tensor_cores(&gpu.device, dtype));
    let fused = fused.and_then(|steps| Some((steps.of(network, operands, transposed)?, steps.operands)));
    let read: Vec<TensorId> = fused
        .iter()
        .flat_map(|(_, operands)| operands.iter().map(|operand| operand.tensor))
        .collect();
    let listed = Inputs::new(operands, &behind, &steps, &read);
    let bytes = network[epilogue.result()].ty.dtype.size();
    let lent = |&at: &usize| {
        let Operand { tensor, broadcast, .. } = behind.operands[at];
        broadcast == Broadcast::Full && network[tensor].ty.dtype.size() == bytes
    };
    let fused = fused.map(|(product, operands)| {
        let slots = operands.iter().filter_map(|operand| listed.slot(Some(operand.tensor)));
        (product, [0, 1].into_iter().chain(slots).collect())
    });
    let layers = epilogue.layers_behind(scope.layer);
    let kernel = MatMul {
        name: name(network, &layers),
        transposed,
        dtype,
        tf32: gpu.rounds_to_tf32(scope),
        lent: (0..behind.operands.len()).filter(lent).map(|at| at + 2).collect(),
        slots: listed.slots,
        passed: listed.passed,
        inputs: listed.all.len(),
        unused: listed.unused,
        read: behind.operands.len(),
        others: behind.outputs.len() - 1,
        text: behind.text,
        steps,
        fused,
        held: network[operands[1]].constant().is_some(),
        grouped: problem::opt(scope).is_some_and(|problem| warpgroup::fits(&gpu.device, dtype, &problem)),
        gpu: gpu.clone(),
    };
    Single {
        kernel,
        layers,
        inputs: listed.all,
        outputs: behind.outputs,
    }
}

/// What a kernel for a product with what follows it is given.
#[derive(Clone)]
pub struct Inputs {
    /// Both matrices, what the code reads, and what it does not.
    pub all: Vec<TensorId>,
    /// How many the latter are: the code has numbers that are all the same in itself; libraries read them.
    pub unused: usize,
    /// Where the operands of cuBLASLt's epilogue stand among them.
    pub slots: Slots,
    /// Those of the pass behind it.
    pub passed: Vec<Option<usize>>,
}

impl Inputs {
    /// For code and for cuBLASLt; `read` are others that a library reads.
    pub fn new(operands: [TensorId; 2], behind: &Behind, steps: &Steps, read: &[TensorId]) -> Self {
        let mut all = operands.to_vec();
        all.extend(behind.operands.iter().map(|operand| operand.tensor));
        let known = all.len();
        for &tensor in steps.bias.iter().chain(&steps.residual).chain(read) {
            if !all[2..].contains(&tensor) {
                all.push(tensor);
            }
        }
        let unused = all.len() - known;
        let mut made = Self {
            all,
            unused,
            slots: Slots {
                bias: None,
                residual: None,
            },
            passed: vec![],
        };
        made.slots = Slots {
            bias: made.slot(steps.bias),
            residual: made.slot(steps.residual),
        };
        made.passed = steps
            .pass
            .iter()
            .flat_map(|pass| pass.inputs.iter().map(|&tensor| made.slot(tensor)))
            .collect();
        made
    }

    /// Where an operand stands.
    fn slot(&self, tensor: Option<TensorId>) -> Option<usize> {
        self.all[2..]
            .iter()
            .position(|&input| Some(input) == tensor)
            .map(|at| at + 2)
    }
}

struct MatMul {
    name: String,
    transposed: [bool; 2],
    /// The element type of the operands.
    dtype: DType,
    /// Whether those of float32 may be rounded to tf32.
    tf32: bool,
    inputs: usize,
    /// Inputs behind both matrices that the code reads, and those behind them that it does not.
    read: usize,
    unused: usize,
    /// Results beside the first.
    others: usize,
    /// Inputs whose memory the result may take.
    lent: Vec<usize>,
    /// `Tail`.
    text: String,
    /// The same for cuBLASLt, where its operands stand among the inputs, and what the pass behind it reads.
    steps: Steps,
    slots: Slots,
    passed: Vec<Option<usize>>,
    /// The same for cuDNN, and which inputs that reads.
    fused: Option<(Product, Vec<usize>)>,
    /// Whether the right matrix is a constant.
    held: bool,
    /// Whether warpgroups do it at the shapes to optimise for.
    grouped: bool,
    gpu: Arc<Gpu>,
}

tactics! {
    /// A way to multiply.
    enum Way {
        /// In one of cuBLASLt's algorithms.
        Library(number: usize) = "cublasLt",
        /// In one of our tiles.
        Tile(number: u32) = "tile",
        /// In one of cuDNN's engines.
        Engine(number: usize) = "cudnn",
        /// By warpgroups, in one of their shapes.
        Group(number: u32) = "warpgroup",
        /// On plain arithmetic.
        Plain = "plain",
    }
}

impl MatMul {
    fn on_library(&self, problem: &Problem, request: &Request, number: usize) -> Result<Prepared> {
        let Steps {
            scale,
            bias,
            residual,
            activation,
            ref pass,
        } = self.steps;
        let wanted = Wanted {
            dtype: self.dtype,
            tf32: self.tf32,
            result: self.dtype,
            scale,
            epilogue: cublaslt::Epilogue {
                bias: bias.is_some(),
                activation,
            },
            adds: residual.is_some(),
        };
        let calls = Calls::new(&self.gpu, problem, wanted, number)?;
        let pass = pass.as_ref().map(|pass| (pass, self.passed.clone()));
        Multiplying::new(&self.gpu, request, calls, self.slots, pass).map(Multiplying::prepared)
    }

    fn problem(&self, request: &Request) -> Problem {
        let shape = |input: usize| request.inputs[input].shape.as_slice();
        Problem::new(self.transposed, shape(0), shape(1))
    }

    fn written(&self) -> Written {
        Written {
            text: self.text.clone(),
            operands: self.read,
            others: self.others,
            unused: self.unused,
            products: 1,
            held: self.held,
        }
    }

    fn on_engine(&self, problem: &Problem, number: usize) -> Result<Prepared> {
        let fused = self.fused.clone();
        let (product, inputs) = fused.ok_or_else(|| Error::internal("no engine of cuDNN runs this product"))?;
        let (gpu, problem, written) = (self.gpu.clone(), problem.clone(), self.written());
        let spare = Spare::new(move || own::any(&gpu, &problem, &written, 0).map(Prepared::from));
        Ok(Fused::prepared(&self.gpu, product, number, inputs, spare))
    }
}

impl Kernel for MatMul {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn identity(&self) -> String {
        let Self {
            name,
            tf32,
            transposed,
            steps,
            text,
            held,
            ..
        } = self;
        let (scale, activation) = (steps.scale, steps.activation);
        format!("{name} held {held} tf32 {tf32} {transposed:?} {scale} {activation:?} {text}")
    }

    /// cuBLASLt's algorithms, tiles on tensor cores, and cuDNN's engines; for what none of them multiplies, plain arithmetic.
    fn forms(&self) -> Vec<Form> {
        let form = |way: Way| Form {
            tactic: way.tactic(),
            inputs: vec![Layout::Plain; self.inputs],
            outputs: vec![Layout::Plain; 1 + self.others],
        };
        let library = if self.dtype.is_float() && self.others == 0 {
            CHOICES
        } else {
            0
        };
        let tensor = own::has_tensor_cores(&self.gpu.device, self.dtype);
        let tiles = if tensor { own::TILES } else { 0 };
        let engines = self.fused.as_ref().map_or(0, |_| fused::ENGINES);
        let ways = (0..library).map(Way::Library).chain((0..tiles).map(Way::Tile));
        let groups = if self.grouped { warpgroup::SHAPES } else { 0 };
        let ways = ways
            .chain((0..engines).map(Way::Engine))
            .chain((0..groups).map(Way::Group))
            .chain([Way::Plain]);
        ways.map(form).collect()
    }

    /// What is read just where the result is written may lend its memory.
    fn in_place(&self) -> Vec<(usize, usize)> {
        self.lent.iter().map(|&input| (input, 0)).collect()
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let (problem, written) = (self.problem(request), self.written());
        let plain = || own::plain(&self.gpu, &problem, &written).map(Prepared::from);
        // No tactic has anything to multiply.
        if problem.k == 0 {
            return plain();
        }
        match Way::of(&request.form.tactic)? {
            // For shapes that no other tactic serves.
            Way::Plain if self.dtype.is_float() => Ok(plain()?.with_tier(Tier::Reference)),
            Way::Plain => plain(),
            Way::Library(number) => self.on_library(&problem, request, number),
            Way::Tile(tile) => own::tensor(&self.gpu, &problem, &written, tile).map(Prepared::from),
            Way::Engine(number) => self.on_engine(&problem, number),
            Way::Group(shape) => Grouped::new(&self.gpu, self.dtype, &problem, &written, shape).map(Grouped::prepared),
        }
    }
}
