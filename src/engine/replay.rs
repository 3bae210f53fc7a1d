//! Runs of networks in stages without contexts: those that keep what flows, and those that follow another one.

use crate::engine::Engine;
use crate::engine::flow::{Recorded, Unit, UnitRun};
use crate::engine::stages::{self, Stage, Walk};
use crate::engine::verify;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::network::Network;
use crate::network::array::Array;
use crate::network::op::Runner;
use crate::network::reference::{State, bind};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A run that keeps what flows.
pub(super) struct Recording<'e> {
    /// What runs.
    pub engine: &'e Engine,
    /// What flowed so far.
    pub recorded: RefCell<Recorded>,
}

impl Walk for Recording<'_> {
    fn run(&mut self, stage: usize, engine: &Engine, feeds: &[Array]) -> Result<Vec<Array>> {
        let recorded = self.recorded.get_mut();
        if counts_something(&self.engine.network, &self.engine.stages[stage], feeds) {
            recorded.feed(Unit::Stage(stage), feeds);
        }
        let outputs = run(engine, feeds)?;
        recorded.gave.insert(stage, outputs.clone());
        Ok(outputs)
    }

    fn bodies<'a>(&'a self, stage: usize, end: usize) -> Box<dyn Runner + 'a> {
        Box::new(Bodies {
            engines: &self.engine.stages[stage].ends[end].bodies,
            run: move |attr: &str, engine: &Engine, inputs: &[Array]| {
                let mut recorded = self.recorded.borrow_mut();
                recorded.feed(Unit::Body(stage, end, attr.into()), inputs);
                recorded.iterations += 1;
                drop(recorded);
                run(engine, inputs)
            },
        })
    }

    fn ended(&mut self, stage: usize, end: usize, state: &State, _: Duration) {
        let ended = &self.engine.stages[stage].ends[end];
        let layer = &self.engine.network[ended.layer];
        let outputs = layer.outputs.iter().map(|tensor| state.values.get(tensor).cloned());
        let outputs: Option<Vec<_>> = outputs.collect();
        let integers = |array: &Array| !array.dtype().is_float();
        if let Some(outputs) = outputs.filter(|outputs| ended.runs && outputs.iter().all(integers)) {
            self.recorded.get_mut().decided.insert((stage, end), outputs);
        }
    }
}

/// A run of stages on the inputs of another one. What layers between them decided there is decided here: whether a number is
/// just above zero or just below is nothing that a precision can promise.
pub(super) struct Replay<'r> {
    stages: &'r [Stage],
    recorded: &'r Recorded,
    unit: Option<(&'r Unit, UnitRun<'r>)>,
    iterations: Cell<usize>,
}

impl<'r> Replay<'r> {
    /// The outputs of a network, by these stages and with this run in the place of a unit.
    ///
    /// # Errors
    /// Those of running it.
    pub fn run(
        network: &Network,
        stages: &'r [Stage],
        recorded: &'r Recorded,
        unit: Option<(&'r Unit, UnitRun<'r>)>,
    ) -> Result<Vec<Array>> {
        let mut replay = Self {
            stages,
            recorded,
            unit,
            iterations: Cell::new(0),
        };
        stages::walk(network, stages, &recorded.inputs, &mut replay)?.outputs()
    }

    fn run_unit(&self, unit: &Unit, engine: &Engine, feeds: &[Array]) -> Result<Vec<Array>> {
        if let Some((_, run)) = self.unit.filter(|(replaced, _)| *replaced == unit) {
            let sizes = bind(&engine.network, &|at| feeds[at].shape().to_vec())?;
            if let Some(outputs) = run(feeds, &sizes) {
                return outputs;
            }
        }
        run(engine, feeds)
    }
}

impl Walk for Replay<'_> {
    fn run(&mut self, stage: usize, engine: &Engine, feeds: &[Array]) -> Result<Vec<Array>> {
        // What stands before the unit is as it was.
        let first = match self.unit {
            Some((Unit::Stage(at) | Unit::Body(at, ..), _)) => *at,
            None => 0,
        };
        let before = stage < first
            || self
                .unit
                .is_some_and(|(unit, _)| matches!(unit, Unit::Body(at, ..) if *at == stage));
        match self.recorded.gave.get(&stage).filter(|_| before) {
            Some(gave) => Ok(gave.clone()),
            None => self.run_unit(&Unit::Stage(stage), engine, feeds),
        }
    }

    fn bodies<'a>(&'a self, stage: usize, end: usize) -> Box<dyn Runner + 'a> {
        Box::new(Bodies {
            engines: &self.stages[stage].ends[end].bodies,
            run: move |attr: &str, engine: &Engine, inputs: &[Array]| {
                self.iterations.set(self.iterations.get() + 1);
                if self.iterations.get() > 2 * self.recorded.iterations + 8 {
                    return Err(Error::invalid(
                        "a loop takes more than twice the iterations that it takes in float32",
                    ));
                }
                self.run_unit(&Unit::Body(stage, end, attr.into()), engine, inputs)
            },
        })
    }

    fn known(&self, stage: usize, end: usize) -> Option<Vec<Array>> {
        self.recorded.decided.get(&(stage, end)).cloned()
    }
}

/// Runs the networks of a layer.
struct Bodies<'e, F> {
    engines: &'e BTreeMap<String, Arc<Engine>>,
    run: F,
}

impl<F: Fn(&str, &Engine, &[Array]) -> Result<Vec<Array>>> Runner for Bodies<'_, F> {
    fn run(&self, attr: &str, inputs: &[Array]) -> Result<Vec<Array>> {
        let missing = || Error::internal(format!("the network {attr:?} has no engine"));
        (self.run)(attr, self.engines.get(attr).ok_or_else(missing)?, inputs)
    }
}

/// A run of an engine without contexts.
struct Plain<'e>(&'e Engine);

impl Walk for Plain<'_> {
    fn run(&mut self, _: usize, engine: &Engine, feeds: &[Array]) -> Result<Vec<Array>> {
        run(engine, feeds)
    }

    fn bodies<'a>(&'a self, stage: usize, end: usize) -> Box<dyn Runner + 'a> {
        Box::new(Bodies {
            engines: &self.0.stages[stage].ends[end].bodies,
            run: |_: &str, engine: &Engine, inputs: &[Array]| run(engine, inputs),
        })
    }
}

fn run(engine: &Engine, inputs: &[Array]) -> Result<Vec<Array>> {
    interrupt::poll()?;
    if !engine.stages.is_empty() {
        return stages::walk(&engine.network, &engine.stages, inputs, &mut Plain(engine))?.outputs();
    }
    let binding = bind(&engine.network, &|at| inputs[at].shape().to_vec())?;
    engine.network.check_guards(&binding)?;
    verify::run_once(engine.program(engine.plan_for(&binding)), inputs, &binding)
}

/// Whether no size that depends on data is 0: else there is nothing to compare.
fn counts_something(network: &Network, stage: &Stage, feeds: &[Array]) -> bool {
    let sizes = feeds.last().map(|sizes| &sizes.shape()[1..]).unwrap_or_default();
    let mut late = stage.symbols.iter().zip(sizes);
    late.all(|(symbol, &size)| size > 0 || network.symbols.contains_key(symbol))
}
