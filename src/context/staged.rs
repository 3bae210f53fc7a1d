//! A call of an engine with stages: what depends on data is learned between them.

use crate::context::{ExecutionContext, LayerTime};
use crate::engine::Engine;
use crate::engine::stages::{End, Stage};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::network::Layer;
use crate::network::array::Array;
use crate::network::body;
use crate::network::op::Runner;
use crate::network::reference::State;
use crate::runtime::context_memory::ContextMemory;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Instant;

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

impl Runner for Bodies {
    fn run(&self, attr: &str, inputs: &[Array]) -> Result<Vec<Array>> {
        let context = self.0.get(attr).and_then(|context| context.try_borrow_mut().ok());
        let mut context = context.ok_or_else(|| Error::internal(format!("the network {attr:?} has no engine")))?;
        context.evaluate(inputs)
    }
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
    pub fn run(
        &mut self,
        engine: &Engine,
        inputs: &[Array],
        mut times: Option<&mut Vec<LayerTime>>,
    ) -> Result<Vec<Array>> {
        let mut state = State::new(&engine.network, inputs)?;
        for (stage, contexts) in engine.stages.iter().zip(&mut self.stages) {
            interrupt::poll()?;
            if let Some(context) = &mut contexts.own {
                let feeds = stage.feeds.iter().map(|&t| state.value_of(t));
                let feeds = feeds.chain([sizes(stage, &state)]).collect::<Result<Vec<_>>>()?;
                let outputs = context.call(&feeds, times.as_deref_mut())?;
                state.values.extend(stage.gives.iter().copied().zip(outputs));
            }
            for (end, bodies) in stage.ends.iter().zip(&contexts.ends) {
                let start = Instant::now();
                if end.runs {
                    state.evaluate(end.layer, Some(bodies))?;
                } else {
                    state.measure(end.layer)?;
                }
                if let Some(times) = times.as_deref_mut() {
                    times.push(time_of(&engine.network[end.layer], end, start));
                }
            }
        }
        let outputs = engine.network.outputs().iter();
        outputs.map(|output| state.value_of(output.tensor)).collect()
    }
}

fn time_of(layer: &Layer, end: &End, start: Instant) -> LayerTime {
    let what = if end.runs { "between stages" } else { "its sizes" };
    LayerTime {
        layers: format!("{} ({})", layer.name, layer.op.name),
        implementation: what.into(),
        nanoseconds: start.elapsed().as_nanos() as u64,
    }
}

/// The array that tells a stage the sizes that it knows.
fn sizes(stage: &Stage, state: &State) -> Result<Array> {
    let size = |symbol| state.binding.get(symbol).copied().unwrap_or_default();
    body::sizes(&stage.symbols.iter().map(size).collect::<Vec<_>>())
}
