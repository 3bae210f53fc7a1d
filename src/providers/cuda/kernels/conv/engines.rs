//! Convolutions in cuDNN's engines, whole or with a kernel of ours behind them.

use super::super::Gpu;
use super::super::spare::{Spare, get_or_try_init};
use super::choice::{Part, alike, numbered};
use super::direct::{Direct, Finish, sides};
use crate::error::Result;
use crate::plan::{BuildJob, Call, Instance, Launcher, Prepared, Tier};
use crate::providers::cuda::library::cudnn::{After, Convolution, Dnn, Engine, Plan, Tensor, supported};
use std::sync::{Arc, OnceLock};

/// What lies in the workspace begins at multiples of this.
const ALIGNMENT: usize = 256;

/// A convolution in one of the engines: first those that do all of it count, then those that leave what follows the
/// convolution to a kernel of ours.
pub struct InEngine {
    build: Arc<PlanBuild>,
    spare: Spare,
}

/// The build of a plan.
struct PlanBuild {
    gpu: Arc<Gpu>,
    convolution: Convolution,
    /// What the engine is the `number`th for: the convolution at the shapes to optimise for.
    tuned: Convolution,
    number: usize,
    /// None where no engine does it.
    made: OnceLock<Option<Made>>,
}

/// What does a convolution.
struct Made {
    plan: Arc<Plan>,
    part: Part,
    /// What is done behind it.
    finish: Option<Box<Finish>>,
    /// Bytes of the plan's own result, if it does not go to the result's place.
    aside: Option<usize>,
}

impl Part {
    fn of(self, c: &Convolution) -> Convolution {
        match self {
            Part::Whole => c.clone(),
            Part::Bare => bare(c),
        }
    }
}

/// The convolution without what follows, with a result of its own where that may not go to the result's place at once.
fn bare(c: &Convolution) -> Convolution {
    let y = match c.residual {
        // The residual may lie where the result will.
        Some(_) => Tensor::dense(c.y.sizes.clone()),
        None => c.y.clone(),
    };
    Convolution { y, ..alone(c) }
}

/// Whether every engine adds the residual that is meant. Those that use no tensor cores take it to lie as the result does, and
/// add another place of it where one of them is a slice (seen on an H200 with cuDNN 9.19, in float32 and float16).
fn residual_lies_as_result(c: &Convolution) -> bool {
    c.residual
        .as_ref()
        .is_none_or(|residual| residual.strides == c.y.strides)
}

/// The convolution without what follows.
fn alone(c: &Convolution) -> Convolution {
    Convolution {
        bias: false,
        residual: None,
        activation: None,
        after: After::default(),
        ..c.clone()
    }
}

impl InEngine {
    /// The convolution in the engine that is the `number`th for another one: itself at the shapes to optimise for.
    pub fn prepared(gpu: &Arc<Gpu>, convolution: Convolution, tuned: Convolution, number: usize) -> Prepared {
        let key = format!("{convolution:?} {tuned:?} {number}");
        let build = Arc::new(PlanBuild {
            gpu: gpu.clone(),
            convolution,
            tuned,
            number,
            made: OnceLock::new(),
        });
        // What stands in for an engine that is not there is the same kernel as another form, so it is not timed.
        let tier = match number > 0 && !build.is_there() {
            true => Tier::Reference,
            false => Tier::Specialised,
        };
        let early = build.clone();
        let job = move || {
            // Whoever needs the plan finds the failure again.
            if early.is_there() {
                _ = early.made();
            }
        };
        Prepared::deferred(vec![BuildJob::plan(key, job)], move || build.instance()).with_tier(tier)
    }
}

impl PlanBuild {
    fn instance(self: Arc<Self>) -> Result<Instance> {
        let spare = Direct::spare(&self.gpu, &self.convolution, self.convolution.dtype);
        let Some(made) = self.made()? else {
            return spare.instance();
        };
        let behind = match (&made.finish, made.part) {
            (None, _) => "",
            (_, Part::Whole) => ", then copied into the slice",
            (_, Part::Bare) => ", then one pack a thread",
        };
        let how = format!("{}{behind}", made.plan.name());
        let workspace = made.plan.workspace();
        let workspace = made.aside.map_or(workspace, |bytes| place_aside(&made.plan) + bytes);
        // cuDNN's kernels start ahead of their turn, and wait before they read `x`. A residual they read sooner: what a kernel
        // before them still wrote was missed (seen on an H200 with cuDNN 9.19).
        let wait_inputs = if made.part == Part::Whole { 1 } else { usize::MAX };
        let instance = Instance::new(how, InEngine { build: self, spare });
        Ok(instance.with_workspace(workspace).with_wait_inputs(wait_inputs))
    }

    fn made(&self) -> Result<Option<&Made>> {
        get_or_try_init(&self.made, || self.make()).map(Option::as_ref)
    }

    /// How much of the convolution the engine does, and what it is known by, if there is one of this number.
    fn engine(&self, dnn: &Dnn) -> Result<Option<(Part, Engine)>> {
        let whole = dnn.problem(&self.tuned);
        let whole = dnn.engines(&whole)?;
        let bare = (!self.tuned.is_bare()).then(|| dnn.problem(&bare(&self.tuned)));
        let bare = bare.as_ref().map_or(Ok(Default::default()), |bare| dnn.engines(bare))?;
        let found = numbered(whole, bare).get(self.number).copied();
        Ok(found.map(|(part, at)| match part {
            Part::Whole => (part, whole[at].clone()),
            Part::Bare => (part, bare[at].clone()),
        }))
    }

    /// Whether there is an engine of this number, as far as that can be told.
    fn is_there(&self) -> bool {
        let find = || self.engine(self.gpu.dnn()?);
        let _entered = self.gpu.device.enter();
        !matches!(find(), Ok(None))
    }

    /// The engine; where it is not there or can't do it at these shapes, the first one that can: what was chosen at some shapes
    /// has to run at others.
    fn make(&self) -> Result<Option<Made>> {
        let _entered = self.gpu.device.enter()?;
        let dnn = self.gpu.dnn()?;
        if let Some((part, engine)) = self.engine(dnn)?
            && let Some(made) = self.in_engine(dnn, part, &engine)?
        {
            return Ok(Some(made));
        }
        for part in [Part::Whole, Part::Bare] {
            let convolution = part.of(&self.convolution);
            if residual_lies_as_result(&convolution)
                && let Some(plan) = dnn.first(&dnn.problem(&convolution))?
                && let Some(made) = self.around(part, plan, &convolution)?
            {
                return Ok(Some(made));
            }
        }
        Ok(None)
    }

    /// The convolution in just this engine: in the slice that the result is, or else beside it and copied there, which
    /// takes less than an engine that is slower by far.
    fn in_engine(&self, dnn: &Dnn, part: Part, engine: &Engine) -> Result<Option<Made>> {
        let strided = part.of(&self.convolution);
        let dense = Convolution {
            y: Tensor::dense(strided.y.sizes.clone()),
            ..strided.clone()
        };
        let both = if dense.y == strided.y {
            vec![strided]
        } else {
            vec![strided, dense]
        };
        for convolution in both {
            if !engine.on_tensor_cores && !residual_lies_as_result(&convolution) {
                continue;
            }
            let problem = dnn.problem(&convolution);
            for at in alike(dnn.engines(&problem)?, engine) {
                if let Some(plan) = supported(dnn.plan(&problem, at))? {
                    return self.around(part, plan, &convolution);
                }
            }
        }
        Ok(None)
    }

    /// A plan that does a part of the convolution, with what is to be done behind it.
    fn around(&self, part: Part, plan: Arc<Plan>, planned: &Convolution) -> Result<Option<Made>> {
        let c = &self.convolution;
        let aside = planned.y != c.y || (part == Part::Bare && c.residual.is_some());
        let follows = match part {
            Part::Whole => aside.then(|| alone(c)),
            Part::Bare => Some(c.clone()),
        };
        let finish = follows.map(|c| supported(Finish::new(&self.gpu, &c, planned.y.step())));
        let finish = match finish.transpose()? {
            Some(None) => return Ok(None),
            finish => finish.flatten().map(Box::new),
        };
        let bytes = planned.y.sizes.iter().product::<i64>() as usize * c.dtype.size();
        Ok(Some(Made {
            plan,
            part,
            finish,
            aside: aside.then_some(bytes),
        }))
    }
}

/// Where a result of its own lies in the workspace of a plan.
fn place_aside(plan: &Plan) -> usize {
    plan.workspace().next_multiple_of(ALIGNMENT)
}

impl Launcher for InEngine {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let inputs = call.inputs.iter().map(|input| input.cast_mut());
        let addresses: Vec<*mut u8> = inputs.chain([call.outputs[0]]).collect();
        let alignments = self.build.convolution.alignments();
        let aligned = addresses
            .iter()
            .zip(&alignments)
            .all(|(a, &by)| a.addr().is_multiple_of(by));
        // A slice may begin anywhere, and where is not known any sooner.
        let Made {
            plan,
            part,
            finish,
            aside,
        } = match self.build.made()? {
            Some(made) if aligned => made,
            _ => return self.spare.launch(call),
        };
        let result = match aside {
            Some(_) => call.workspace.wrapping_add(place_aside(plan)),
            None => call.outputs[0],
        };
        let operands = match part {
            Part::Whole => &addresses[..addresses.len() - 1],
            Part::Bare => &addresses[..2],
        };
        let all = [operands, &[result]].concat();
        // SAFETY: the planner gives addresses that hold the operands of the request, in the order of the plan's tensors; the
        // workspace has room for a result of its own.
        unsafe { self.build.gpu.dnn()?.run(plan, &all, call.workspace, call.stream)? };
        let Some(finish) = finish else { return Ok(()) };
        let sides = match part {
            Part::Whole => [std::ptr::null(); 4],
            Part::Bare => sides(&self.build.convolution, call),
        };
        finish.run(result, sides, call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::dtype::DType;

    fn sample(y: Tensor) -> Convolution {
        Convolution::pointwise(DType::Float32, y.clone(), y)
    }

    #[test]
    fn a_residual_that_lies_otherwise_than_the_result_is_told_apart() {
        let dense = Tensor::dense(vec![1, 4, 2, 2]);
        let slice = Tensor {
            strides: vec![48, 1, 24, 12],
            ..dense.clone()
        };
        let with = |y: &Tensor, residual: Option<&Tensor>| Convolution {
            y: y.clone(),
            residual: residual.cloned(),
            ..sample(dense.clone())
        };
        assert!(residual_lies_as_result(&with(&slice, None)) && residual_lies_as_result(&with(&slice, Some(&slice))));
        assert!(!residual_lies_as_result(&with(&slice, Some(&dense))));
        assert!(!residual_lies_as_result(&with(&dense, Some(&slice))));
    }

    #[test]
    fn a_result_goes_aside_where_a_residual_may_lie_in_its_place() {
        let y = Tensor {
            strides: vec![48, 1, 24, 12],
            ..Tensor::dense(vec![1, 4, 2, 2])
        };
        let mut c = sample(y);
        assert_eq!((bare(&c).is_bare(), bare(&c).y.step()), (true, 12));
        c.residual = Some(c.y.clone());
        assert_eq!((bare(&c).is_bare(), bare(&c).y.step()), (true, 4));
    }
}
