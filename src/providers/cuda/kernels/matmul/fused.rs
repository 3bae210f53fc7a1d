//! Products with all that follows as one graph of cuDNN, whose engines are compiled for it.

use super::problem::Problem;
use crate::error::Result;
use crate::network::attr::Read;
use crate::network::dtype::DType;
use crate::network::{Layer, Network, TensorId};
use crate::plan::{BuildJob, Call, Instance, Launcher, Prepared, Tier};
use crate::providers::common::epilogue::{Broadcast, Epilogue, Operand, Step, Value};
use crate::providers::cuda::kernels::Gpu;
use crate::providers::cuda::kernels::spare::{Spare, get_or_try_init};
pub use crate::providers::cuda::library::cudnn::product::Product;
use crate::providers::cuda::library::cudnn::product::{self, ALIGNMENT, Function, Matrix, PointwiseOp};
use crate::providers::cuda::library::cudnn::{Plan, supported};
use std::sync::{Arc, OnceLock};

/// So many of cuDNN's engines are timed: each takes about a second to compile.
pub const ENGINES: usize = 3;
/// What rows of operands are multiples of, in elements.
const EVEN: usize = 8;
/// A product of fewer multiplications is not worth that.
const FEWEST_MULTIPLICATIONS: usize = 1 << 24;

/// The layers behind a product as the steps of a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Steps {
    /// The steps.
    pub steps: Vec<PointwiseOp>,
    /// What they read besides.
    pub operands: Vec<Operand>,
}

impl Steps {
    /// An epilogue as steps; none if it has none, or one that is not there, or if a number has another type than the product.
    pub fn new(network: &Network, epilogue: &Epilogue) -> Option<Self> {
        let steps = epilogue
            .steps
            .iter()
            .map(|step| op(&network[step.layer], step, epilogue));
        let steps = steps.collect::<Option<Vec<_>>>().filter(|steps| !steps.is_empty())?;
        let given = epilogue.layers().map(|layer| network[layer].outputs[0]);
        let read = epilogue.operands.iter().map(|operand| operand.tensor);
        let dtype = network[epilogue.product].ty.dtype;
        given.chain(read).all(|t| network[t].ty.dtype == dtype).then(|| Self {
            steps,
            operands: epilogue.operands.clone(),
        })
    }

    /// The product of these operands with the steps, if there are engines for such a one; none where shapes differ from
    /// call to call: an engine is compiled for one shape, and that takes longer than a call may.
    pub fn of(&self, network: &Network, operands: [TensorId; 2], transposed: [bool; 2]) -> Option<Product> {
        let extents = |t: TensorId| {
            network[t]
                .ty
                .shape
                .iter()
                .map(|extent| usize::try_from(extent.as_const()?).ok())
        };
        let [left, right] = operands.map(|t| extents(t).collect::<Option<Vec<usize>>>());
        self.product(
            &Problem::new(transposed, &left?, &right?),
            network[operands[0]].ty.dtype,
        )
    }

    fn product(&self, problem: &Problem, dtype: DType) -> Option<Product> {
        let Problem { m, n, k, ref batch, .. } = *problem;
        let batches = match batch[..] {
            [] => 1,
            [batches] => batches,
            _ => return None,
        };
        if batches * m * n * k < FEWEST_MULTIPLICATIONS {
            return None;
        }
        let even = [n, k, if problem.transposed[0] { m } else { EVEN }];
        let steps = [0, 1].map(|side| problem.steps[side].first().copied().unwrap_or(0));
        if even.iter().chain(&steps).any(|extent| extent % EVEN != 0) {
            return None;
        }
        let strides = problem.strides();
        let side = |side: usize, rows: usize, columns: usize| {
            let [row, column] = strides[side];
            let one = steps[side] == 0;
            Matrix {
                sizes: [if one { 1 } else { batches }, rows, columns],
                strides: [if one { rows * columns } else { steps[side] }, row, column],
            }
        };
        let sizes = |operand: &Operand| match operand.broadcast {
            Broadcast::Full => [batches, m, n],
            Broadcast::Column => [1, 1, n],
            Broadcast::Row => [batches, m, 1],
            Broadcast::Scalar => [1, 1, 1],
        };
        let sides = [side(0, m, k), side(1, k, n)];
        // Two matrices give one result, however many there should be of it.
        if batches > 1 && sides.iter().all(|side| side.sizes[0] == 1) {
            return None;
        }
        Some(Product {
            dtype,
            sides,
            operands: self
                .operands
                .iter()
                .map(|operand| Matrix::dense(sizes(operand)))
                .collect(),
            steps: self.steps.clone(),
        })
    }
}

/// The operation that a step is.
fn op(layer: &Layer, step: &Step, epilogue: &Epilogue) -> Option<PointwiseOp> {
    let inside = |value: Value| match value {
        Value::Product => Some(0),
        Value::Step(number) => Some(number + 1),
        Value::Operand(_) => None,
    };
    match *step.inputs.as_slice() {
        [Some(x)] => Some(PointwiseOp {
            function: unary(layer)?,
            x: inside(x)?,
            other: None,
        }),
        [Some(a), Some(b)] => {
            let function = binary(layer)?;
            let turns = matches!(function, Function::Add | Function::Mul);
            let (x, other) = if inside(a).is_none() && turns { (b, a) } else { (a, b) };
            Some(PointwiseOp {
                function,
                x: inside(x)?,
                other: Some(match other {
                    // One tensor of a graph is one step's.
                    Value::Operand(number) if epilogue.uses(other) == 1 => product::Value::Operand(number),
                    _ => product::Value::Given(inside(other)?),
                }),
            })
        }
        _ => None,
    }
}

fn unary(layer: &Layer) -> Option<Function> {
    Some(match layer.op.name {
        "Relu" => Function::Relu,
        "Tanh" => Function::Tanh,
        "Sigmoid" => Function::Sigmoid,
        "Silu" => Function::Silu,
        "Gelu" if layer.attrs.text("approximate") == "tanh" => Function::GeluTanh,
        "Gelu" => Function::Gelu,
        _ => return None,
    })
}

fn binary(layer: &Layer) -> Option<Function> {
    Some(match layer.op.name {
        "Add" => Function::Add,
        "Sub" => Function::Sub,
        "Mul" => Function::Mul,
        "Div" => Function::Div,
        _ => return None,
    })
}

/// The build of a plan.
struct PlanBuild {
    gpu: Arc<Gpu>,
    product: Product,
    number: usize,
    /// None where there is no such engine.
    plan: OnceLock<Option<Arc<Plan>>>,
}

impl PlanBuild {
    fn new(gpu: &Arc<Gpu>, product: Product, number: usize) -> Arc<Self> {
        Arc::new(Self {
            gpu: gpu.clone(),
            product,
            number,
            plan: OnceLock::new(),
        })
    }

    fn plan(&self) -> Result<Option<&Arc<Plan>>> {
        let make = || {
            let _entered = self.gpu.device.enter()?;
            let dnn = self.gpu.dnn()?;
            supported(dnn.plan(&dnn.problem(&self.product), self.number))
        };
        get_or_try_init(&self.plan, make).map(Option::as_ref)
    }

    /// Whether there is an engine of this number, as far as that can be told.
    fn is_there(&self) -> bool {
        let engines = || {
            let _entered = self.gpu.device.enter()?;
            let dnn = self.gpu.dnn()?;
            dnn.engines(&dnn.problem(&self.product)).map(<[_]>::len)
        };
        engines().is_ok_and(|engines| self.number < engines)
    }
}

/// A product in one of cuDNN's engines.
pub struct Fused {
    gpu: Arc<Gpu>,
    plan: Arc<Plan>,
    /// Of the inputs, those that the plan takes, in its order.
    inputs: Vec<usize>,
    spare: Spare,
}

impl Fused {
    /// The product in the `number`th engine; `spare` runs it where there is no such engine, and where addresses are not what
    /// engines want.
    pub fn prepared(gpu: &Arc<Gpu>, product: Product, number: usize, inputs: Vec<usize>, spare: Spare) -> Prepared {
        let key = format!("{product:?} {number}");
        let build = PlanBuild::new(gpu, product, number);
        // What stands in for an engine that is not there is the same kernel as another form, so it is not timed.
        let tier = match build.is_there() {
            true => Tier::Specialised,
            false => Tier::Reference,
        };
        let early = build.clone();
        // Whoever needs the plan finds the failure again.
        let job = BuildJob::plan(key, move || _ = early.plan());
        let finish = move || {
            let Some(plan) = build.plan()?.cloned() else {
                return spare.instance();
            };
            let (gpu, workspace) = (build.gpu.clone(), plan.workspace());
            let launcher = Fused {
                gpu,
                plan,
                inputs,
                spare,
            };
            // As with convolutions: what is multiplied is waited for, and what the steps read besides may not be.
            Ok(Instance::new("cuDNN", launcher)
                .with_workspace(workspace)
                .with_wait_inputs(2))
        };
        Prepared::deferred(vec![job], finish).with_tier(tier)
    }
}

impl Launcher for Fused {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let inputs = self.inputs.iter().map(|&input| call.inputs[input].cast_mut());
        let addresses: Vec<*mut u8> = inputs.chain([call.outputs[0]]).collect();
        // A slice may begin anywhere, and where is not known any sooner.
        let even = addresses.iter().all(|address| address.addr().is_multiple_of(ALIGNMENT));
        if !even {
            return self.spare.launch(call);
        }
        // SAFETY: the planner gives addresses that hold the operands of the request, in the order of the plan's tensors.
        unsafe { self.gpu.dnn()?.run(&self.plan, &addresses, call.workspace, call.stream) }
    }
}
