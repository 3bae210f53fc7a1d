//! A call of an engine with stages: what depends on data is learned between them.

use crate::context::{ExecutionContext, LayerTime};
use crate::engine::Engine;
use crate::engine::stages::{End, Stage, Walk, walk};
use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::op::Runner;
use crate::network::reference::State;
use crate::runtime::context_memory::ContextMemory;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

/// The contexts of all stages.
pub struct StagedContext {
    stages: Vec<StageContext>,
}

/// The contexts of a stage, and of the networks in the layers behind it.
struct StageContext {
    own: Option<ExecutionContext>,
    ends: Vec<Bodies>,
}

/// The contexts of the networks that a layer holds, by attribute.
struct Bodies(BTreeMap<String, RefCell<ExecutionContext>>);

impl Runner for &Bodies {
    fn run(&self, attr: &str, inputs: &[Array]) -> Result<Vec<Array>> {
        let context = self.0.get(attr).and_then(|context| context.try_borrow_mut().ok());
        let mut context = context.ok_or_else(|| no_engine(attr))?;
        context.evaluate(inputs)
    }
}

fn no_engine(attr: &str) -> Error {
    Error::internal(format!("the network {attr:?} has no engine"))
}

impl StagedContext {
    /// Contexts without any shape yet. They share the memory: a stage is over before what comes behind it runs.
    pub fn new(memory: &ContextMemory, engine: &Engine) -> Self {
        let context = |engine| ExecutionContext::on(memory.clone(), engine);
        let bodies = |end: &End| {
            let context = |engine| RefCell::new(context(engine));
            let bodies = end.bodies.iter();
            Bodies(bodies.map(|(attr, e)| (attr.clone(), context(e.clone()))).collect())
        };
        let stage = |stage: &Stage| StageContext {
            own: stage.engine.clone().map(context),
            ends: stage.ends.iter().map(bodies).collect(),
        };
        Self {
            stages: engine.stages.iter().map(stage).collect(),
        }
    }

    /// Runs the stages one after another; gives the outputs, and adds what took how long to `times`.
    ///
    /// # Errors
    /// If a stage does, or a size does not fit; names the layer.
    pub fn run(&mut self, engine: &Engine, inputs: &[Array], times: Option<&mut Vec<LayerTime>>) -> Result<Vec<Array>> {
        let mut call = Call {
            engine,
            stages: &mut self.stages,
            times,
        };
        walk(&engine.network, &engine.stages, inputs, &mut call)?.outputs()
    }
}

struct Call<'c> {
    engine: &'c Engine,
    stages: &'c mut [StageContext],
    times: Option<&'c mut Vec<LayerTime>>,
}

impl Walk for Call<'_> {
    fn run(&mut self, stage: usize, _: &Engine, feeds: &[Array]) -> Result<Vec<Array>> {
        let context = self.stages[stage].own.as_mut().ok_or_else(|| no_engine("of a stage"))?;
        context.call(feeds, self.times.as_deref_mut())
    }

    fn bodies<'a>(&'a self, stage: usize, end: usize) -> Box<dyn Runner + 'a> {
        Box::new(&self.stages[stage].ends[end])
    }

    fn ended(&mut self, stage: usize, end: usize, _: &State, took: Duration) {
        let Some(times) = self.times.as_deref_mut() else {
            return;
        };
        let end = &self.engine.stages[stage].ends[end];
        let layer = &self.engine.network[end.layer];
        times.push(LayerTime {
            layers: format!("{} ({})", layer.name, layer.op.name),
            implementation: if end.runs { "between stages" } else { "its sizes" }.into(),
            nanoseconds: took.as_nanos() as u64,
        });
    }
}
