//! Convolutions in cuDNN's engines, whole or with a kernel of ours behind them.

use super::super::Gpu;
use super::super::wishes::{self, fulfil, on_threads};
use super::direct::{Direct, Finish};
use crate::error::Result;
use crate::plan::{Call, Instance};
use crate::providers::cuda::library::cudnn::{Convolution, Dnn, Plan, Problem, Tensor};
use std::sync::{Arc, OnceLock};

/// So many of cuDNN's engines are timed.
pub const ENGINES: u32 = 14;
/// What lies in the workspace begins at multiples of this.
const ALIGNMENT: usize = 256;

/// A convolution in one of the engines: first those that do all of it count, then those that leave what follows the
/// convolution to a kernel of ours. The plan is built when it is needed and no sooner.
pub struct InEngine(Arc<Wish>);

/// A plan that is wanted.
struct Wish {
    gpu: Arc<Gpu>,
    convolution: Convolution,
    number: usize,
    made: OnceLock<Result<Made>>,
    direct: OnceLock<Result<Direct>>,
}

enum Made {
    Whole(Arc<Plan>),
    Parts(Arc<Plan>, Box<Finish>),
    /// The kernel of ours.
    Direct,
}

/// The convolution without what follows, with a result of its own where that may not go to the result's place at once.
fn bare(c: &Convolution) -> Convolution {
    let y = match c.residual {
        // The residual may lie where the result will.
        Some(_) => Tensor::dense(c.y.sizes.clone()),
        None => c.y.clone(),
    };
    Convolution {
        y,
        bias: false,
        residual: None,
        activation: None,
        ..c.clone()
    }
}

/// What the library knows of a convolution, whole and bare.
struct Engines<'a> {
    dnn: &'a Dnn,
    whole: Arc<Problem>,
    bare: Option<Arc<Problem>>,
}

impl<'a> Engines<'a> {
    fn of(dnn: &'a Dnn, c: &Convolution) -> Self {
        Self {
            dnn,
            whole: dnn.problem(c),
            bare: (!c.is_bare()).then(|| dnn.problem(&bare(c))),
        }
    }

    /// The problem that a number belongs to, and the number there.
    fn find(&self, number: usize) -> Option<(&Arc<Problem>, usize)> {
        let whole = self.dnn.engines(&self.whole);
        if number < whole {
            return Some((&self.whole, number));
        }
        let bare = self.bare.as_ref()?;
        (number - whole < self.dnn.engines(bare)).then_some((bare, number - whole))
    }
}

impl InEngine {
    /// The convolution in the `number`th engine.
    pub fn new(gpu: &Arc<Gpu>, convolution: Convolution, number: usize) -> Self {
        let wish = Arc::new(Wish {
            gpu: gpu.clone(),
            convolution,
            number,
            made: OnceLock::new(),
            direct: OnceLock::new(),
        });
        wishes::wish(&wish);
        Self(wish)
    }
}

impl wishes::Wish for Wish {
    fn is_open(&self) -> bool {
        self.made.get().is_none()
    }

    fn build(&self) {
        _ = self.made();
    }
}

impl Wish {
    fn made(&self) -> Result<&Made> {
        self.made.get_or_init(|| self.make()).as_ref().map_err(Clone::clone)
    }

    /// The engine; where it is not there or can't do it at these shapes, the first one that can, and in the end the
    /// kernel of ours: what was chosen at some shapes has to run at others.
    fn make(&self) -> Result<Made> {
        let _entered = self.gpu.device.enter()?;
        if let Ok(dnn) = self.gpu.dnn() {
            let engines = Engines::of(dnn, &self.convolution);
            let whole = dnn.engines(&engines.whole);
            for number in [self.number, 0, whole] {
                if let Some(made) = self.plan(&engines, number) {
                    return Ok(made);
                }
            }
        }
        self.direct()?;
        Ok(Made::Direct)
    }

    fn plan(&self, engines: &Engines, number: usize) -> Option<Made> {
        let (problem, number) = engines.find(number)?;
        if number > 0 && problem.has(0) && !problem.has(number) {
            self.build_together(engines.dnn, problem);
        }
        let plan = engines.dnn.plan(problem, number).ok()?;
        if Arc::ptr_eq(problem, &engines.whole) {
            return Some(Made::Whole(plan));
        }
        let finish = Finish::new(&self.gpu, &self.convolution, bare(&self.convolution).y.step()).ok()?;
        Some(Made::Parts(plan, Box::new(finish)))
    }

    /// Builds the plans of all engines that are timed: who asks for a second one of the same problem is timing them. The
    /// library may build on several threads at once, each with a handle of its own.
    fn build_together(&self, dnn: &Dnn, problem: &Problem) {
        let others = dnn.engines(problem).min(ENGINES as usize).saturating_sub(1);
        on_threads(others, |at| {
            let Ok(_entered) = self.gpu.device.enter() else { return };
            // An engine that can't do it is found so again by who asks for it.
            _ = dnn.plan(problem, at + 1);
        });
    }

    fn direct(&self) -> Result<&Direct> {
        let make = || Direct::new(&self.gpu, &self.convolution);
        self.direct.get_or_init(make).as_ref().map_err(Clone::clone)
    }

    /// Where the bare convolution's own result lies in the workspace, if it does not go to the result's place.
    fn aside(&self, plan: &Plan) -> Option<usize> {
        let aside = self.convolution.residual.is_some();
        aside.then(|| plan.workspace().next_multiple_of(ALIGNMENT))
    }
}

impl Instance for InEngine {
    fn workspace(&self) -> usize {
        fulfil();
        // What went wrong is told by the run.
        match self.0.made() {
            Ok(Made::Whole(plan)) => plan.workspace(),
            Ok(Made::Parts(plan, _)) => {
                let result =
                    self.0.convolution.y.sizes.iter().product::<i64>() as usize * self.0.convolution.dtype.size();
                self.0.aside(plan).map_or(plan.workspace(), |start| start + result)
            }
            Ok(Made::Direct) | Err(_) => 0,
        }
    }

    fn implementation(&self) -> String {
        match self.0.made() {
            Ok(Made::Whole(_)) => "cuDNN".into(),
            Ok(Made::Parts(..)) => "cuDNN, then one pack a thread".into(),
            Ok(Made::Direct) | Err(_) => "one result a thread".into(),
        }
    }

    /// What stands in for an engine that is not there is not worth timing: another form is just that.
    fn naive(&self) -> bool {
        let Ok(dnn) = self.0.gpu.dnn() else {
            return self.0.number > 0;
        };
        self.0.number > 0 && Engines::of(dnn, &self.0.convolution).find(self.0.number).is_none()
    }

    fn run(&mut self, call: &Call) -> Result<()> {
        let inputs = call.inputs.iter().map(|input| input.cast_mut());
        let addresses: Vec<*mut u8> = inputs.chain([call.outputs[0]]).collect();
        let alignments = self.0.convolution.alignments();
        let aligned = addresses
            .iter()
            .zip(&alignments)
            .all(|(a, &by)| a.addr().is_multiple_of(by));
        // A slice may begin anywhere, and where is not known any sooner.
        if !aligned {
            return self.0.direct()?.run(call);
        }
        match self.0.made()? {
            // SAFETY: the planner gives addresses that hold the operands of the request, in the order of the plan's tensors.
            Made::Whole(plan) => unsafe { self.0.gpu.dnn()?.run(plan, &addresses, call.workspace, call.queue) },
            Made::Parts(plan, finish) => {
                let aside = self.0.aside(plan).map(|start| call.workspace.wrapping_add(start));
                let result = aside.unwrap_or(call.outputs[0]);
                let own = [addresses[0], addresses[1], result];
                // SAFETY: as above; the workspace has room for a result of its own.
                unsafe { self.0.gpu.dnn()?.run(plan, &own, call.workspace, call.queue)? };
                finish.run(result, call)
            }
            Made::Direct => self.0.direct()?.run(call),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::dtype::DType;

    #[test]
    fn a_result_goes_aside_where_a_residual_may_lie_in_its_place() {
        let y = Tensor {
            strides: vec![48, 1, 24, 12],
            ..Tensor::dense(vec![1, 4, 2, 2])
        };
        let mut c = Convolution {
            dtype: DType::Float32,
            transposed: false,
            x: y.clone(),
            w: Tensor::dense(vec![4, 4, 1, 1]),
            y,
            strides: vec![1, 1],
            dilations: vec![1, 1],
            begin: vec![0, 0],
            end: vec![0, 0],
            bias: true,
            residual: None,
            activation: None,
        };
        assert_eq!((bare(&c).is_bare(), bare(&c).y.step()), (true, 12));
        c.residual = Some(c.y.clone());
        assert_eq!((bare(&c).is_bare(), bare(&c).y.step()), (true, 4));
    }
}
