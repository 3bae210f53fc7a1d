//! What flows between the stages of a network, and into the networks that its layers hold, when it runs in float32. That is what
//! each of them is verified on, and what it gives there is judged by what the whole network makes of it.

use crate::device::Space;
use crate::engine::config::{BuilderConfig, Precision};
use crate::engine::judge::{Judge, Limits};
use crate::engine::replay::{Recording, Replay};
use crate::engine::samples;
use crate::engine::stages::{self, Cut, Stage};
use crate::engine::trial::{layered, on_the_processor, work};
use crate::engine::verify::Departure;
use crate::engine::{Engine, Profile, builder, staging};
use crate::error::{ErrorKind, Result};
use crate::network::array::Array;
use crate::network::dim::Binding;
use crate::network::dtype::DType;
use crate::network::{Network, TensorId};
use crate::plan::Provider;
use crate::plan::timing::TimingCache;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

/// Arrays for the inputs of a network, batch by batch.
pub(super) type Batches = Vec<Vec<Array>>;

/// What has an engine of its own in a network in stages.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Unit {
    /// The network of a stage.
    Stage(usize),
    /// That of a layer behind a stage: which stage, which layer, which attribute.
    Body(usize, usize, String),
}

/// Whether anything is verified: where a precision is lowered, and what runs elsewhere or comes from other compilers.
pub(super) fn is_verified(config: &BuilderConfig, precision: Precision, providers: &[Arc<dyn Provider>]) -> bool {
    let elsewhere = providers.iter().any(|provider| provider.space() != Space::Host);
    let others = layered(providers).len() < providers.len();
    config.verify && (precision != Precision::FLOAT32 || elsewhere || others)
}

/// Runs of a network in float32.
pub(super) struct Flow {
    engine: Engine,
    runs: Vec<Recorded>,
    /// Whether somebody gave the arrays that it runs on.
    pub given: bool,
}

/// One run.
#[derive(Default)]
pub(super) struct Recorded {
    /// What came in.
    pub inputs: Vec<Array>,
    /// What it gave.
    pub outputs: Vec<Array>,
    /// All symbols.
    pub sizes: Binding,
    /// What came into each unit.
    pub fed: HashMap<Unit, Batches>,
    /// What stages gave.
    pub gave: HashMap<usize, Vec<Array>>,
    /// The integers that layers between stages gave: what was chosen, and how many.
    pub decided: HashMap<(usize, usize), Vec<Array>>,
    /// How often networks of layers ran.
    pub iterations: usize,
}

impl Flow {
    /// Runs on the arrays in `config`, or else on those that stand for the inputs.
    ///
    /// # Errors
    /// If a stage can't be built or run so.
    pub fn of(
        network: &Network,
        cuts: &[Cut],
        config: &BuilderConfig,
        providers: &[Arc<dyn Provider>],
    ) -> Result<Self> {
        let exact = BuilderConfig {
            compute: DType::Float32,
            tf32: false,
            verify: false,
            strict: false,
            samples: vec![],
            ..config.untimed()
        };
        let parts = cuts.iter().filter_map(|cut| cut.network.as_ref());
        let operations = parts.map(|part| work(part, &builder::opt(part, &Profile::new()))).sum();
        let family = on_the_processor(providers, operations, config.threads);
        let engine = staging::staged(network.clone(), cuts.to_vec(), exact, &family, &TimingCache::default())?;
        let samples = config.samples.iter().map(|batch| Recorded::of(&engine, batch));
        let mut runs = samples.collect::<Result<Vec<_>>>()?;
        let given = !runs.is_empty();
        if !given {
            runs = generated(&engine, config, operations)?;
        }
        Ok(Self { engine, runs, given })
    }

    /// What came into a unit.
    pub fn fed_to(&self, unit: &Unit) -> Batches {
        let fed = self.runs.iter().filter_map(|run| run.fed.get(unit));
        fed.flatten().cloned().collect()
    }

    /// How far those outputs of the whole network depart that a unit does not give itself, where `run` stands for it; where that
    /// gives nothing, the unit is as it was.
    ///
    /// # Errors
    /// If the work is to end.
    pub fn departure(&self, unit: &Unit, limits: Limits, run: UnitRun<'_>) -> Result<Departure> {
        let (network, stages) = (&self.engine.network, &self.engine.stages);
        let own = |tensor: &TensorId| matches!(unit, Unit::Stage(at) if stages[*at].gives.contains(tensor));
        self.worst(limits, &|recorded| {
            let mut got = Replay::run(network, stages, recorded, Some((unit, run)))?;
            for ((output, got), want) in network.outputs().iter().zip(&mut got).zip(&recorded.outputs) {
                if own(&output.tensor) {
                    *got = want.clone();
                }
            }
            Ok(got)
        })
    }

    /// How far the outputs of other engines for the stages depart.
    ///
    /// # Errors
    /// If the work is to end.
    pub fn departure_of(&self, stages: &[Stage], limits: Limits) -> Result<Departure> {
        let network = &self.engine.network;
        self.worst(limits, &|recorded| Replay::run(network, stages, recorded, None))
    }

    fn worst(&self, limits: Limits, run: &dyn Fn(&Recorded) -> Result<Vec<Array>>) -> Result<Departure> {
        // Slices are judged where a unit gives them.
        let mut judge = Judge::new(&self.engine.network, limits, None, self.given);
        for (number, recorded) in self.runs.iter().enumerate() {
            match run(recorded) {
                Ok(got) if got.iter().zip(&recorded.outputs).any(|(g, w)| g.shape() != w.shape()) => continue,
                Ok(got) => judge.batch(number, &recorded.sizes, &recorded.outputs, &got)?,
                Err(e) if e.kind() == ErrorKind::Interrupted => return Err(e),
                Err(e) => {
                    return Ok(Departure {
                        excess: f64::INFINITY,
                        whole: f64::INFINITY,
                        message: format!("the network does not run in {}: {}", limits.precision, e.message()),
                    });
                }
            }
        }
        judge.worst()
    }
}

/// Runs a unit on what comes into it, at these sizes; `None` where it is for other sizes.
pub(super) type UnitRun<'r> = &'r dyn Fn(&[Array], &Binding) -> Option<Result<Vec<Array>>>;

/// Runs on arrays that stand for the inputs, as far as anybody knows.
fn generated(engine: &Engine, config: &BuilderConfig, operations: f64) -> Result<Vec<Recorded>> {
    let opt = builder::opt(&engine.network, config.profiles.first().unwrap_or(&Profile::new()));
    samples::several(
        &engine.network,
        &opt,
        samples::affordable(operations, config.threads),
        |inputs| Recorded::of(engine, &inputs),
        |recorded| &recorded.outputs,
    )
}

impl Recorded {
    fn of(engine: &Engine, inputs: &[Array]) -> Result<Self> {
        let mut recording = Recording {
            engine,
            recorded: RefCell::default(),
        };
        let state = stages::walk(&engine.network, &engine.stages, inputs, &mut recording)?;
        Ok(Self {
            inputs: inputs.to_vec(),
            outputs: state.outputs()?,
            sizes: state.binding,
            ..recording.recorded.into_inner()
        })
    }

    /// Keeps what comes into a unit.
    pub fn feed(&mut self, unit: Unit, arrays: &[Array]) {
        /// The first few are kept, and the last: what a loop carries may be far from where it began.
        const MOST: usize = 4;
        let kept = self.fed.entry(unit).or_default();
        kept.truncate(MOST - 1);
        kept.push(arrays.to_vec());
    }
}

/// What a unit is judged in.
#[derive(Clone)]
pub(super) struct Around {
    /// The runs.
    pub flow: Arc<Flow>,
    /// Which of their units it is.
    pub unit: Unit,
}
