//! The plan of a region: known to this process, kept in the user's cache, or built now.

use super::convert::Selection;
use super::handle::{Built, dtype_name};
use super::library::Library;
use super::plan::{Config, Input, inputs, spec};
use super::region::Region;
use super::runtime::Engine;
use super::sink::Sink;
use super::targets;
use crate::error::{Error, Result};
use crate::network::dim::{Symbols, UNBOUNDED};
use crate::network::ops::tf32;
use crate::network::{LayerId, Network, Source, TensorId};
use crate::plan::Settings;
use crate::providers::common::kept::{Kept, Key};
use crate::providers::cuda::Cuda;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Where plans are kept.
const PLANS: Kept = Kept {
    folder: "plans",
    limit: 8 << 30,
};

/// Where TensorRT's timing caches are kept, one for each library and GPU.
const TIMINGS: Kept = Kept {
    folder: "tensorrt-timings",
    limit: 256 << 20,
};

/// Stands in each key; raised when the same layers are written in another way.
const WRITER: u32 = 1;

/// Makes regions for one GPU with one library.
pub struct Compiler {
    /// The library.
    pub library: Arc<Library>,
    /// The GPU.
    pub gpu: Arc<Cuda>,
    /// What plans depend on besides the network: library and GPU.
    pub signature: String,
    known: Mutex<HashMap<String, Weak<Region>>>,
}

/// A region that runs.
pub struct Compiled {
    /// The kernel.
    pub region: Arc<Region>,
    /// What the user should know: why a plan of the cache was not taken.
    pub notes: Vec<String>,
    /// Whether it was built now.
    pub fresh: bool,
}

/// The names of a region's inputs and outputs.
pub type Names = (Vec<String>, Vec<String>);

impl Compiler {
    /// One for a GPU.
    pub fn new(library: Arc<Library>, gpu: Arc<Cuda>, signature: String) -> Self {
        Self {
            library,
            gpu,
            signature,
            known: Mutex::default(),
        }
    }

    /// A region of so many layers.
    ///
    /// # Errors
    /// If it has sizes without a limit, the builder fails, or what it made can't be opened.
    pub fn region(&self, selection: &Selection, names: Names, layers: usize, settings: &Settings) -> Result<Compiled> {
        let network = selection.network;
        let own = [network.symbols.clone()];
        let profiles = match settings.profiles.as_slice() {
            [] => &own[..],
            profiles => profiles,
        };
        let feeds = selection.feeds();
        require_limits(network, &feeds, profiles)?;
        let inputs = inputs(network, &feeds, profiles)?;
        let mut config = Config {
            optimization_level: settings.optimization_level,
            workspace: settings.workspace,
            targets: targets(self.library.is_rtx(), self.gpu.device().capability),
            tf32: selection.inside.iter().any(|&id| tf32::is_allowed(&network[id])),
            ..Config::default()
        };
        let key = self.key(selection, &inputs, &config)?;
        if let Some(region) = self.known(&key) {
            return Ok(Compiled {
                region,
                notes: vec![],
                fresh: false,
            });
        }
        let sink = || Sink::watched(&settings.watch);
        let open = |plan: &[u8]| -> Result<Arc<Region>> {
            let engine = Engine::open(&self.library, plan, sink())?;
            let region = Region::new(engine, self.gpu.clone(), key.clone(), names.clone(), layers)?;
            Ok(Arc::new(region))
        };
        let mut notes = vec![];
        match PLANS.read(&key) {
            Ok(Some(plan)) => match open(&plan) {
                Ok(region) => return Ok(self.remember(key, region, notes, false)),
                Err(error) => notes.push(format!("{}; a plan of the cache is built anew", error.message())),
            },
            Ok(None) => {}
            Err(reason) => notes.push(format!("{reason}: the plan is not run, and built anew")),
        }
        let timings = Key::default().add(&self.signature).text();
        // Times that can't be read are measured again.
        config.timing_cache = TIMINGS.read(&timings).ok().flatten().unwrap_or_default();
        let (session, _) = selection.write(&self.library, sink())?;
        let spec = spec(&config, &session, &inputs, profiles.len())?;
        let Built { plan, timing_cache } = session.build(&spec)?;
        if !timing_cache.is_empty() {
            TIMINGS.remove(&timings);
            // As above.
            let _ = TIMINGS.write(&timings, &timing_cache);
        }
        let region = open(&plan)?;
        PLANS.remove(&key);
        if let Err(error) = PLANS.write(&key, &plan) {
            notes.push(format!("TensorRT's plan was not kept: {error}"));
        }
        Ok(self.remember(key, region, notes, true))
    }

    fn known(&self, key: &str) -> Option<Arc<Region>> {
        // A panic elsewhere leaves the map whole: each change is one insertion.
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).and_then(Weak::upgrade)
    }

    fn remember(&self, key: String, region: Arc<Region>, notes: Vec<String>, fresh: bool) -> Compiled {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, region| region.strong_count() > 0);
        known.insert(key, Arc::downgrade(&region));
        Compiled { region, notes, fresh }
    }

    /// The digest of all that a plan depends on: layers, weights, profiles, options, library, GPU.
    fn key(&self, selection: &Selection, inputs: &[Input], config: &Config) -> Result<String> {
        let network = selection.network;
        let mut key = Key::default();
        key.add(env!("CARGO_PKG_VERSION"))
            .add(WRITER.to_le_bytes())
            .add(&self.signature);
        for Input { description, shapes } in inputs {
            key.add(format!("{description:?} {shapes:?}"));
        }
        key.add(format!("{config:?}"));
        let mut given: HashMap<TensorId, usize> = HashMap::new();
        for id in network.order()?.into_iter().filter(|id| selection.inside.contains(id)) {
            add_layer(&mut key, network, id, &mut given)?;
        }
        for (tensor, name) in selection.results() {
            key.add(format!("{name} {:?}", given.get(&tensor)));
        }
        Ok(key.text())
    }
}

fn add_layer(key: &mut Key, network: &Network, id: LayerId, given: &mut HashMap<TensorId, usize>) -> Result<()> {
    let layer = &network[id];
    let attrs = serde_json::to_string(&layer.attrs).map_err(|e| Error::internal(e.to_string()).layer(&layer.name))?;
    key.add(&layer.name).add(layer.op.name).add(attrs);
    for input in &layer.inputs {
        let Some(input) = input else {
            key.add("none");
            continue;
        };
        let tensor = &network[*input];
        key.add(format!("{:?} {}", tensor.ty.value, tensor.ty.describe()));
        match &tensor.source {
            Source::Constant(constant) => key.add(constant.array.bytes()),
            Source::Symbolic => key.add("symbolic"),
            Source::Input | Source::Layer(..) => key.add(match given.get(input) {
                Some(number) => format!("tensor {number}"),
                None => format!("input {}", tensor.name),
            }),
        };
    }
    for &output in &layer.outputs {
        given.insert(output, given.len());
        key.add(network[output].ty.describe());
    }
    Ok(())
}

/// TensorRT wants to know the greatest shape of all that comes in.
fn require_limits(network: &Network, feeds: &[TensorId], profiles: &[Symbols]) -> Result<()> {
    for (&id, profile) in feeds
        .iter()
        .flat_map(|id| profiles.iter().map(move |profile| (id, profile)))
    {
        let tensor = &network[id];
        dtype_name(tensor.ty.dtype).map_err(|e| e.tensor(&tensor.name))?;
        for symbol in tensor.ty.shape.iter().flat_map(|dim| dim.symbols()) {
            let range = profile.get(&symbol).or_else(|| network.symbols.get(&symbol));
            if range.is_none_or(|range| range.max >= UNBOUNDED) {
                return Err(Error::unsupported(format!("nobody says how large {symbol} may be"))
                    .tensor(&tensor.name)
                    .hint("give input_shapes: Shape(min=..., opt=..., max=...) for what changes"));
            }
        }
    }
    Ok(())
}
