//! Networks with sizes that depend on data, cut where such a size becomes known.
//!
//! A stage is a network of its own, planned like any other: the sizes that the stages before it computed are symbols of
//! its inputs. Between two stages stand the layers that tell the next sizes. Those whose sizes the elements of their
//! inputs tell (a Reshape to a computed shape) are only asked for them, and run in the next stage; those that count
//! (NonZero) run there and then, and so do those that hold networks (If, Loop), which have engines of their own.

use crate::engine::{Engine, default_dims};
use crate::error::Result;
use crate::interrupt;
use crate::network::array::Array;
use crate::network::body;
use crate::network::dim::{Dim, Symbols};
use crate::network::op::{Runner, is_counted};
use crate::network::part::Part;
use crate::network::reference::State;
use crate::network::{LayerId, Network, Source, TensorId};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One stage of an engine.
#[derive(Clone)]
pub struct Stage {
    /// What runs it: its inputs are the feeds and, last, the sizes (see [`Network::part`]); none where there is
    /// nothing to run.
    pub engine: Option<Arc<Engine>>,
    /// What it reads, as tensors of the whole network.
    pub feeds: Vec<TensorId>,
    /// What it gives.
    pub gives: Vec<TensorId>,
    /// The symbols that are known when it starts, in the order of the sizes.
    pub symbols: Vec<Arc<str>>,
    /// The layers behind it.
    pub ends: Vec<End>,
}

impl Stage {
    /// The engines that run it and the networks of the layers behind it.
    pub fn engines(&self) -> impl Iterator<Item = &Engine> {
        let bodies = self.ends.iter().flat_map(|end| end.bodies.values());
        self.engine.iter().chain(bodies).map(|engine| &**engine)
    }
}

/// A layer between two stages.
#[derive(Clone)]
pub struct End {
    /// The layer.
    pub layer: LayerId,
    /// Whether it runs; else it only tells the sizes of its outputs.
    pub runs: bool,
    /// What runs the networks that it holds, by attribute.
    pub bodies: BTreeMap<String, Arc<Engine>>,
}

/// How a call goes through stages.
pub trait Walk {
    /// Runs the network of a stage.
    ///
    /// # Errors
    /// Those of running it.
    fn run(&mut self, stage: usize, engine: &Engine, feeds: &[Array]) -> Result<Vec<Array>>;

    /// What runs the networks of a layer behind a stage.
    fn bodies<'a>(&'a self, stage: usize, end: usize) -> Box<dyn Runner + 'a>;

    /// What a layer behind a stage gives, where that is known already.
    fn known(&self, _stage: usize, _end: usize) -> Option<Vec<Array>> {
        None
    }

    /// Told that a layer behind a stage is done, and what that took.
    fn ended(&mut self, _stage: usize, _end: usize, _state: &State, _took: Duration) {}
}

/// Runs stages one after another; gives the values of the whole network, those of its outputs among them.
///
/// # Errors
/// If a stage does, or a size does not fit; names the layer.
pub fn walk<'n>(network: &'n Network, stages: &[Stage], inputs: &[Array], walk: &mut dyn Walk) -> Result<State<'n>> {
    let mut state = State::new(network, inputs)?;
    for (at, stage) in stages.iter().enumerate() {
        interrupt::poll()?;
        if let Some(engine) = &stage.engine {
            let feeds = stage.feeds.iter().map(|&t| state.value_of(t));
            let feeds = feeds.chain([sizes(stage, &state)]).collect::<Result<Vec<_>>>()?;
            let outputs = walk.run(at, engine, &feeds)?;
            state.values.extend(stage.gives.iter().copied().zip(outputs));
        }
        for (number, end) in stage.ends.iter().enumerate() {
            let start = Instant::now();
            match (end.runs, walk.known(at, number)) {
                (true, Some(outputs)) => state.take(end.layer, outputs),
                (true, None) => state.evaluate(end.layer, Some(&*walk.bodies(at, number)))?,
                (false, _) => state.measure(end.layer)?,
            }
            walk.ended(at, number, &state, start.elapsed());
        }
    }
    Ok(state)
}

/// The array that tells a stage the sizes that it knows.
fn sizes(stage: &Stage, state: &State) -> Result<Array> {
    let size = |symbol| state.binding.get(symbol).copied().unwrap_or_default();
    body::sizes(&stage.symbols.iter().map(size).collect::<Vec<_>>())
}

/// A stage that is not planned yet.
#[derive(Clone)]
pub struct Cut {
    /// Its network; none where there is nothing to run.
    pub network: Option<Network>,
    /// Whether it has sizes that depend on data. Their default dims need not fit each other, so nothing is timed.
    pub guessed: bool,
    /// As the stage will be.
    pub stage: Stage,
}

/// Cuts a network; `None` if all its sizes follow from those of its inputs.
///
/// # Errors
/// If the layers form a cycle.
pub fn cut(network: &Network) -> Result<Option<Vec<Cut>>> {
    let plan = Levels::of(network)?;
    if plan.ends.is_empty() {
        return Ok(None);
    }
    (0..plan.count())
        .map(|level| plan.cut(network, level))
        .collect::<Result<Vec<_>>>()
        .map(Some)
}

/// Which stage runs what.
#[derive(Default)]
struct Levels {
    /// The first stage that may read a tensor; 0 where it is not listed.
    tensors: HashMap<TensorId, usize>,
    /// The first stage that knows a symbol that depends on data.
    symbols: HashMap<Arc<str>, usize>,
    layers: Vec<(LayerId, usize)>,
    ends: Vec<(LayerId, usize, bool)>,
}

impl Levels {
    fn of(network: &Network) -> Result<Self> {
        let mut this = Self::default();
        for id in network.order()? {
            let layer = &network[id];
            let inputs = layer.inputs.iter().flatten().map(|&t| this.of_tensor(network, t));
            let dims = layer.outputs.iter().flat_map(|&t| &network[t].ty.shape);
            let sizes = dims.map(|dim| this.of_dim(dim));
            let level = inputs.chain(sizes).max().unwrap_or(0);
            let new = network.new_sizes(id);
            let new: Vec<_> = new.into_iter().filter(|s| !network.symbols.contains_key(s)).collect();
            let counts = layer.bodies().next().is_some() || new.iter().any(|symbol| is_counted(symbol));
            let ends = counts || !new.is_empty();
            let ready = level + ends as usize;
            if ends {
                this.ends.push((id, level, counts));
            }
            if !counts {
                this.layers.push((id, ready));
            }
            this.symbols.extend(new.into_iter().map(|symbol| (symbol, ready)));
            this.tensors.extend(layer.outputs.iter().map(|&t| (t, ready)));
        }
        Ok(this)
    }

    fn of_dim(&self, dim: &Dim) -> usize {
        let levels = dim.symbols().into_iter().filter_map(|s| self.symbols.get(&s).copied());
        levels.max().unwrap_or(0)
    }

    fn of_tensor(&self, network: &Network, tensor: TensorId) -> usize {
        let value = network[tensor].ty.value.iter().flatten();
        let symbolic = matches!(network[tensor].source, Source::Symbolic);
        let value = value.filter(|_| symbolic).map(|dim| self.of_dim(dim)).max();
        self.tensors.get(&tensor).copied().or(value).unwrap_or(0)
    }

    fn count(&self) -> usize {
        let layers = self.layers.iter().map(|&(_, level)| level);
        let ends = self.ends.iter().map(|&(_, level, _)| level);
        layers.chain(ends).max().map_or(0, |last| last + 1)
    }

    fn cut(&self, network: &Network, level: usize) -> Result<Cut> {
        let at = |&&(_, l): &&(LayerId, usize)| l == level;
        let layers: HashSet<LayerId> = self.layers.iter().filter(at).map(|&(id, _)| id).collect();
        let outside = |t: &TensorId| match network[*t].source {
            Source::Input => true,
            Source::Layer(id, _) => !layers.contains(&id),
            Source::Constant(_) | Source::Symbolic => false,
        };
        let read = |ids: &mut dyn Iterator<Item = LayerId>| -> BTreeSet<TensorId> {
            ids.flat_map(|id| network[id].inputs.iter().flatten().copied())
                .collect()
        };
        let feeds = read(&mut layers.iter().copied())
            .into_iter()
            .filter(outside)
            .collect::<Vec<_>>();
        let mut later = self.layers.iter().filter(|(_, l)| *l > level).map(|&(id, _)| id);
        let mut asked = self.ends.iter().filter(|(_, l, _)| *l >= level).map(|&(id, ..)| id);
        let mut wanted = read(&mut later);
        wanted.extend(read(&mut asked));
        wanted.extend(network.outputs().iter().map(|o| o.tensor));
        let own = |t: &TensorId| matches!(network[*t].source, Source::Layer(id, _) if layers.contains(&id));
        let gives: Vec<TensorId> = wanted.into_iter().filter(own).collect();
        let mut symbols: Symbols = network.symbols.clone();
        let known = self.symbols.iter().filter(|(_, l)| **l <= level);
        symbols.extend(known.map(|(name, _)| (name.clone(), default_dims::counted())));
        let late = symbols.len() - network.symbols.len();
        let names = symbols.keys().cloned().collect();
        let part = Part {
            layers: &layers,
            feeds: &feeds,
            gives: &gives,
            symbols,
        };
        let part = (!gives.is_empty()).then(|| network.part(part)).transpose()?;
        let ends = self.ends.iter().filter(|(_, l, _)| *l == level);
        let end = |&(layer, _, runs): &(LayerId, usize, bool)| End {
            layer,
            runs,
            bodies: BTreeMap::new(),
        };
        Ok(Cut {
            guessed: late > 0,
            network: part,
            stage: Stage {
                engine: None,
                feeds,
                gives,
                symbols: names,
                ends: ends.map(end).collect(),
            },
        })
    }
}
