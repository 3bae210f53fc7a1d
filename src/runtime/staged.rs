//! A call of an engine with stages: what depends on data is learned between them.

use crate::engine::Engine;
use crate::engine::stages::Stage;
use crate::error::{Error, Result};
use crate::network::array::{Array, Buffer};
use crate::network::dtype::DType;
use crate::network::reference::State;
use crate::runtime::ExecutionContext;
use std::sync::Arc;

/// The contexts of all stages.
pub struct StagedContext {
    contexts: Vec<Option<ExecutionContext>>,
}

impl StagedContext {
    /// Contexts without any shape yet.
    pub fn new(engine: &Engine) -> Self {
        let context = |stage: &Stage| stage.engine.clone().map(ExecutionContext::new);
        Self {
            contexts: engine.stages.iter().map(context).collect(),
        }
    }

    /// Runs the stages one after another; gives the outputs.
    ///
    /// # Errors
    /// If a stage does, or a size does not fit; names the layer.
    pub fn run(&mut self, engine: &Engine, inputs: &[Array]) -> Result<Vec<Array>> {
        let mut state = State::new(&engine.network, inputs)?;
        for (stage, context) in engine.stages.iter().zip(&mut self.contexts) {
            if let Some(context) = context {
                let mut feeds = stage
                    .feeds
                    .iter()
                    .map(|&t| state.value_of(t))
                    .collect::<Result<Vec<_>>>()?;
                feeds.push(sizes(stage, &state)?);
                let outputs = context.evaluate(&feeds)?;
                state.values.extend(stage.gives.iter().copied().zip(outputs));
            }
            for &(layer, runs) in &stage.ends {
                if runs {
                    state.evaluate(layer)?;
                } else {
                    state.measure(layer)?;
                }
            }
        }
        let outputs = engine.network.outputs().iter();
        outputs.map(|output| state.value_of(output.tensor)).collect()
    }

    /// Bytes of activations and workspaces at the shapes of the last call.
    pub fn arena_bytes(&self) -> usize {
        self.contexts.iter().flatten().map(ExecutionContext::arena_bytes).sum()
    }
}

/// The empty array whose extents are the sizes that a stage knows.
fn sizes(stage: &Stage, state: &State) -> Result<Array> {
    let size = |symbol: &Arc<str>| {
        let value = state.binding.get(symbol).copied().unwrap_or_default();
        usize::try_from(value).map_err(|_| Error::shape(format!("dimension {symbol:?} would be {value}")))
    };
    let shape = stage.symbols.iter().map(size).chain([Ok(0)]).collect::<Result<_>>()?;
    Array::new(DType::Bool, shape, Arc::new(Buffer::zeroed(0)), 0)
}
