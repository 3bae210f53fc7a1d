//! How an engine is built.

use crate::engine::Profile;
use crate::error::{Error, Result};
use crate::nearest::nearest;
use crate::network::array::Array;
use crate::network::dim::{Dim, Range};
use crate::network::dtype::DType;
use crate::network::{Network, ops};
use crate::plan::regions::Watch;
use crate::plan::timing::TimingCache;
use crate::plan::{ExcludedForm, Settings};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::PathBuf;

/// How an engine is built.
#[derive(Debug, Clone)]
pub struct BuilderConfig {
    /// The dtype that float32 layers may compute in.
    pub compute: DType,
    /// Whether products of float32 layers may round what they multiply to tf32.
    pub tf32: bool,
    /// The dtype that floating-point inputs come in and outputs leave in; `None`: those of the model.
    pub io: Option<DType>,
    /// Threads of a CPU that all calls share; at least 1.
    pub threads: usize,
    /// Whether one call is to be fast, or many beside each other.
    pub hint: Hint,
    /// How thoroughly the engine is tuned:
    /// - 0: nothing is timed; rules choose.
    /// - 1: the first form of each kernel is timed; others are taken to be slower, and chosen where they save reorders.
    /// - 2: one form of each kernel is timed for each set of layouts.
    /// - 3: every form of every kernel is timed.
    /// - 4, 5: so is it, three times and ten times over: the least time counts.
    pub optimization_level: u8,
    /// Ops or layers, by name, that a provider must not run.
    pub exclude: BTreeMap<String, Vec<String>>,
    /// The shapes to optimise for; empty: what the network says of its symbols.
    pub profiles: Vec<Profile>,
    /// The file of measured times; `None`: in memory alone.
    pub timing_cache: Option<PathBuf>,
    /// Bytes of scratch memory that one kernel may use; `None`: what is free.
    pub workspace: Option<usize>,
    /// Callbacks for progress and for messages of compilers.
    pub watch: Watch,
    /// Whether a layer that the first provider refuses is an error.
    pub strict: bool,
    /// Whether an engine in lower precision, or with parts that compilers of others made, is compared with float32 on kernels
    /// of ours once: such parts go to other providers if they depart too far, and if that does not help the engine is built in
    /// float32.
    pub verify: bool,
    /// Whether the engine keeps the network and the weights as they came, so that others can take their place.
    pub refittable: bool,
    /// Whether the same network gives the same kernels, and so the same bits, on each build for the same machine and threads:
    /// nothing is timed, and compilers of others, which time, are left out.
    pub deterministic: bool,
    /// Forms of kernels that must not be chosen.
    pub excluded_forms: Vec<ExcludedForm>,
    /// Layers, by name, that stay in full precision.
    pub lifted: HashSet<String>,
    /// What the build compares precisions on: batches with an array for each input; none: numbers of its own.
    pub samples: Vec<Vec<Array>>,
}

/// What an engine is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hint {
    /// One call uses all threads.
    #[default]
    Latency,
    /// Calls beside each other share the threads: more of them are done in a second, and each takes longer.
    Throughput,
}

impl Default for BuilderConfig {
    fn default() -> Self {
        Self {
            compute: DType::Float32,
            tf32: false,
            io: None,
            threads: 1,
            hint: Hint::default(),
            optimization_level: 3,
            exclude: BTreeMap::new(),
            profiles: vec![],
            timing_cache: None,
            workspace: None,
            watch: Watch::default(),
            strict: false,
            verify: true,
            refittable: false,
            deterministic: false,
            excluded_forms: vec![],
            lifted: HashSet::new(),
            samples: vec![],
        }
    }
}

/// Calls that are always worth it: one is prepared while the other runs.
pub const FEWEST_CALLS: usize = 2;

impl BuilderConfig {
    /// What was asked for.
    pub fn precision(&self) -> Precision {
        Precision {
            dtype: self.compute,
            tf32: self.tf32,
        }
    }

    /// Threads of one call.
    pub fn threads_per_call(&self) -> usize {
        match self.hint {
            Hint::Latency => self.threads.max(1),
            Hint::Throughput => 1,
        }
    }

    /// Calls beside each other that keep the threads busy, with one more at least that waits for its turn.
    pub fn calls(&self) -> usize {
        (self.threads / self.threads_per_call()).max(FEWEST_CALLS)
    }

    /// How thoroughly kernels are timed, whatever was asked for: not at all where builds must repeat.
    pub fn effort(&self) -> u8 {
        if self.deterministic { 0 } else { self.optimization_level }
    }

    /// The same without timing: rules choose.
    pub(crate) fn untimed(&self) -> Self {
        Self {
            optimization_level: 0,
            ..self.clone()
        }
    }

    /// The times that are known in its timing cache; in memory alone where it has none.
    pub(crate) fn times(&self) -> TimingCache {
        self.timing_cache
            .clone()
            .map_or_else(TimingCache::default, TimingCache::open)
    }

    /// What the planner asks of the providers.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            threads: self.threads_per_call(),
            optimization_level: self.effort(),
            deterministic: self.deterministic,
            exclude: self.exclude.clone(),
            excluded_forms: self.excluded_forms.clone(),
            profiles: self.profiles.clone(),
            workspace: self.workspace,
            watch: self.watch.clone(),
        }
    }
}

/// What float32 layers compute in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Precision {
    /// The dtype of lowerable layers.
    pub dtype: DType,
    /// Whether products of those that stay float32 may round what they multiply to tf32.
    pub tf32: bool,
}

impl Precision {
    /// As the layers are.
    pub const FLOAT32: Self = Self {
        dtype: DType::Float32,
        tf32: false,
    };

    /// Half the distance between 1 and the next number.
    pub fn rounding(self) -> f64 {
        match self.dtype {
            // tf32 has the range of float32 and the digits of float16.
            DType::Float32 if self.tf32 => DType::Float16.rounding(),
            dtype => dtype.rounding(),
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.dtype {
            DType::Float32 if self.tf32 => f.write_str("tf32"),
            dtype => write!(f, "{dtype}"),
        }
    }
}

/// The least, expected and greatest shape of one input.
#[derive(Debug, Clone)]
pub struct InputShape {
    /// The name of the input.
    pub name: String,
    /// Least.
    pub min: Vec<i64>,
    /// Expected.
    pub opt: Vec<i64>,
    /// Greatest.
    pub max: Vec<i64>,
}

/// The profile that input shapes describe.
///
/// # Errors
/// If an input is unknown, a rank or a fixed dimension differs, min <= opt <= max does not hold, two dimensions of one
/// symbol contradict each other, or one exceeds what the network states of it.
pub fn profile(network: &Network, shapes: &[InputShape]) -> Result<Profile> {
    let mut profile = Profile::new();
    for shape in shapes {
        let input = network
            .inputs()
            .iter()
            .find(|&&t| network[t].name == shape.name)
            .ok_or_else(|| {
                let names: Vec<_> = network.inputs().iter().map(|&t| network[t].name.as_str()).collect();
                Error::invalid(format!("the network has no input {:?}", shape.name)).expected(names.join(", "))
            })?;
        let dims = &network[*input].ty.shape;
        if [&shape.min, &shape.opt, &shape.max]
            .iter()
            .any(|s| s.len() != dims.len())
        {
            return Err(
                Error::shape("the shape has another number of dimensions than the input")
                    .tensor(&shape.name)
                    .expected(network[*input].ty.describe())
                    .got(format!("min {:?}, opt {:?}, max {:?}", shape.min, shape.opt, shape.max)),
            );
        }
        for (axis, dim) in dims.iter().enumerate() {
            let range = Range {
                min: shape.min[axis],
                opt: shape.opt[axis],
                max: shape.max[axis],
            };
            check_declared(network, dim, &range)
                .and_then(|()| add_range(&mut profile, dim, range))
                .map_err(|e| e.tensor(format!("{} dimension {axis}", shape.name)))?;
        }
    }
    Ok(profile)
}

impl BuilderConfig {
    /// What `exclude` names that is neither an op nor a layer of the network, as notes: it keeps nothing from anybody.
    pub fn misspelt(&self, network: &Network) -> Vec<String> {
        let known = |name: &str| {
            let mut layers = network.layers();
            ops::find(name).is_ok() || layers.any(|(_, layer)| layer.name == name)
        };
        let unknown = self.exclude.values().flatten().filter(|name| !known(name));
        let note = |name: &String| {
            let layers = network.layers().map(|(_, layer)| layer.name.as_str());
            let near = nearest(name, ops::OPS.iter().map(|op| op.name).chain(layers));
            let near = near.map_or(String::new(), |near| format!("; the nearest name is {near:?}"));
            format!("exclude: {name:?} is neither an op nor a layer of this model{near}")
        };
        unknown.map(note).collect()
    }
}

/// Each profile has a plan of its own: more are a mistake.
pub const MOST_PROFILES: usize = 1024;

/// Checks profiles, whoever made them.
///
/// # Errors
/// If there are more than [`MOST_PROFILES`], or a range is not 0 <= min <= opt <= max.
pub fn check_profiles(profiles: &[Profile]) -> Result<()> {
    if profiles.len() > MOST_PROFILES {
        return Err(Error::invalid("there are too many profiles")
            .expected(format!("at most {MOST_PROFILES}"))
            .got(profiles.len().to_string()));
    }
    let mut ranges = profiles.iter().flatten();
    ranges.try_for_each(|(_, range)| check_range(range))
}

fn check_range(range: &Range) -> Result<()> {
    if 0 <= range.min && range.min <= range.opt && range.opt <= range.max {
        return Ok(());
    }
    Err(Error::shape("the range of a dimension is not ordered")
        .expected("0 <= min <= opt <= max")
        .got(describe(range)))
}

fn describe(range: &Range) -> String {
    format!("min {}, opt {}, max {}", range.min, range.opt, range.max)
}

/// Checks a range against the greatest size that the network states for a dimension. A least size binds nobody: what
/// exporters state there is often their own guess.
fn check_declared(network: &Network, dim: &Dim, range: &Range) -> Result<()> {
    let declared = dim.as_symbol().and_then(|symbol| network.symbols.get_key_value(symbol));
    match declared {
        Some((symbol, known)) if range.max > known.max => Err(Error::shape(
            "a dimension is given a greater size than the model states for it",
        )
        .expected(format!("{symbol} at most {}", known.max))
        .got(describe(range))
        .hint("export the model with a wider range")),
        _ => Ok(()),
    }
}

fn add_range(profile: &mut Profile, dim: &Dim, range: Range) -> Result<()> {
    check_range(&range)?;
    let got = describe(&range);
    match (dim.as_const(), dim.as_symbol()) {
        (Some(size), _) if (range.min, range.max) != (size, size) => Err(Error::shape(
            "a dimension that is fixed in the model is given another size",
        )
        .expected(size.to_string())
        .got(got)
        .hint("export the model with this dimension dynamic")),
        (None, Some(symbol)) => match profile.insert(symbol.clone(), range) {
            Some(before) if before != range => Err(Error::shape(format!("dimension {symbol:?} is given two ranges"))
                .expected(describe(&before))
                .got(got)),
            _ => Ok(()),
        },
        // A fixed size that fits, or an expression over symbols that other dimensions bind.
        _ => Ok(()),
    }
}
