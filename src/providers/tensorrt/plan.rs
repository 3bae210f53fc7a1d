//! Plans: what TensorRT's builder makes of a network.

use super::bridge::ffi::{BuildSpec, ProfileSpec, ShapeRange};
use super::convert::convert;
use super::handle::{Description, Session, dtype_name};
use super::library::Library;
use super::sink::Sink;
use crate::error::{Error, Result};
use crate::network::dim::{Binding, Dim, Range, Symbols};
use crate::network::{Network, TensorId};
use crate::plan::Refusal;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a size that depends on data, and is told by a layer that TensorRT does not run, is taken to be.
const COUNTED: Range = Range {
    min: 0,
    opt: 64,
    max: 4096,
};

/// On which GPUs a plan runs besides the one that it is built on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compatibility {
    /// On none.
    #[default]
    None,
    /// On those of compute capability 8.0 and above.
    Ampere,
    /// On those of its own compute capability.
    SameCapability,
}

impl Compatibility {
    /// TensorRT's name.
    fn name(self) -> &'static str {
        match self {
            Self::None => "NONE",
            Self::Ampere => "AMPERE_PLUS",
            Self::SameCapability => "SAME_COMPUTE_CAPABILITY",
        }
    }
}

/// How a plan is built.
#[derive(Debug, Clone)]
pub struct Config {
    /// 0 to 5.
    pub optimization_level: u8,
    /// Bytes that TensorRT may use besides; `None` is what it takes by itself.
    pub workspace: Option<usize>,
    /// Whether products of float32 may round what they multiply to tf32.
    pub tf32: bool,
    /// Whether weights may be replaced later.
    pub refittable: bool,
    /// Whether the plan is without the weights, which are put in before it runs.
    pub strip_weights: bool,
    /// Whether newer libraries run it too.
    pub version_compatible: bool,
    /// Whether weights may stay in the processor's memory.
    pub weight_streaming: bool,
    /// The compute capabilities to build for ("8.6"), with TensorRT-RTX; none leaves the choice to the library.
    pub targets: Vec<String>,
    /// On which other GPUs the plan is to run.
    pub compatibility: Compatibility,
    /// What an earlier build measured; empty for nothing.
    pub timing_cache: Vec<u8>,
    /// The ranges of symbols, one map for each profile; none is one profile of the network's own ranges.
    pub profiles: Vec<BTreeMap<Arc<str>, Range>>,
    /// Names of layers or ops to leave out.
    pub exclude: Vec<String>,
    /// Whether layers that TensorRT does not take are cut out; else they are an error.
    pub partial: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            optimization_level: 3,
            workspace: None,
            tf32: false,
            refittable: false,
            strip_weights: false,
            version_compatible: false,
            weight_streaming: false,
            targets: vec![],
            compatibility: Compatibility::default(),
            timing_cache: vec![],
            profiles: vec![],
            exclude: vec![],
            partial: false,
        }
    }
}

/// An input of a plan and, for each profile, its least, expected and greatest shape.
#[derive(Debug, Clone)]
pub struct Input {
    /// What TensorRT says of it.
    pub description: Description,
    /// One triple for each profile.
    pub shapes: Vec<[Vec<i64>; 3]>,
}

/// What TensorRT's builder made. Its bytes are code: whoever runs it trusts whoever built it.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The plan, as TensorRT reads it again.
    pub bytes: Vec<u8>,
    /// What the build measured, for the next one; empty where this version keeps nothing.
    pub timing_cache: Vec<u8>,
    /// The inputs.
    pub inputs: Vec<Input>,
    /// The outputs.
    pub outputs: Vec<Description>,
    /// The layers that are not in it.
    pub refusals: Vec<Refusal>,
    /// The number of layers of the network that are.
    pub taken: usize,
    /// The number of TensorRT's layers that were written for them.
    pub written: usize,
}

/// Builds a plan of a network that the passes have simplified.
///
/// # Errors
/// If a layer is refused (unless those are to be cut out), an option is not one of this version, or TensorRT fails; with what
/// it said.
pub fn build(network: &Network, library: &Arc<Library>, config: &Config, sink: Sink) -> Result<Plan> {
    if library.is_rtx() && config.compatibility != Compatibility::None {
        // It would say so in a message alone, and build without.
        return Err(Error::unsupported("TensorRT-RTX has no hardware compatibility")
            .hint("name the GPUs by their compute capabilities as targets"));
    }
    let converted = convert(network, library, sink, &config.exclude)?;
    if let Some(first) = converted.refusals.first().filter(|_| !config.partial) {
        let lines: Vec<_> = converted
            .refusals
            .iter()
            .map(|r| format!("{}: {}", r.layer, r.reason))
            .collect();
        return Err(
            Error::unsupported(format!("TensorRT does not take {} of the layers", lines.len()))
                .layer(&first.layer)
                .got(lines.join("\n       ")),
        );
    }
    let own = [BTreeMap::new()];
    let profiles = if config.profiles.is_empty() {
        &own[..]
    } else {
        &config.profiles
    };
    let inputs = inputs(network, &converted.inputs, profiles)?;
    let spec = spec(config, &converted.session, &inputs, profiles.len())?;
    let written = converted.session.layers();
    let results = converted.results.into_iter().zip(converted.outputs);
    let outputs = results.map(|(description, (_, name))| Description { name, ..description });
    let built = converted.session.build(&spec);
    let built = built.map_err(|e| match config.refittable || config.strip_weights {
        // Its words name a status of CUDA, and not what asks for it (RTX 1.7.1).
        true => e.hint("TensorRT-RTX needs a GPU at hand to build plans whose weights are replaced or put in later"),
        false => e,
    })?;
    Ok(Plan {
        bytes: built.plan,
        timing_cache: built.timing_cache,
        inputs,
        outputs: outputs.collect(),
        refusals: converted.refusals,
        taken: converted.taken,
        written,
    })
}

/// The inputs of a plan.
///
/// # Errors
/// If TensorRT has no such dtype, or a shape can't be told.
pub(super) fn inputs(
    network: &Network,
    ids: &[TensorId],
    profiles: &[BTreeMap<Arc<str>, Range>],
) -> Result<Vec<Input>> {
    let input = |&id: &TensorId| {
        let shapes = profiles.iter().map(|profile| shapes(network, id, profile));
        let ty = &network[id].ty;
        let description = Description {
            name: network[id].name.clone(),
            dtype: dtype_name(ty.dtype)?.into(),
            shape: ty.shape.iter().map(|dim| dim.as_const().unwrap_or(-1)).collect(),
        };
        Ok(Input {
            description,
            shapes: shapes.collect::<Result<_>>()?,
        })
    };
    ids.iter().map(input).collect()
}

/// What the builder is told.
///
/// # Errors
/// If an option is not one of this version.
pub(super) fn spec(config: &Config, session: &Session, inputs: &[Input], profiles: usize) -> Result<BuildSpec> {
    let wanted = [
        ("TF32", config.tf32),
        ("REFIT", config.refittable),
        ("STRIP_PLAN", config.strip_weights),
        ("VERSION_COMPATIBLE", config.version_compatible),
        ("WEIGHT_STREAMING", config.weight_streaming),
    ];
    let (set, cleared): (Vec<_>, Vec<_>) = wanted.into_iter().partition(|(_, wanted)| *wanted);
    if let Some((name, _)) = set.iter().find(|(name, _)| !session.has_flag(name)) {
        return Err(Error::unsupported(format!(
            "this version of TensorRT has no flag {name}"
        )));
    }
    let names = |flags: Vec<(&str, bool)>| {
        let known = flags.into_iter().filter(|(name, _)| session.has_flag(name));
        known.map(|(name, _)| name.to_string()).collect()
    };
    let profile = |at: usize| {
        // A profile says nothing of what never changes.
        let dynamic = inputs.iter().filter(|input| input.description.shape.contains(&-1));
        let range = |input: &Input| {
            let [min, opt, max] = input.shapes[at].clone();
            ShapeRange {
                name: input.description.name.clone(),
                min,
                opt,
                max,
            }
        };
        ProfileSpec {
            shapes: dynamic.map(range).collect(),
        }
    };
    let dynamic = inputs.iter().any(|input| input.description.shape.contains(&-1));
    Ok(BuildSpec {
        workspace: config.workspace.unwrap_or(0),
        optimization_level: i32::from(config.optimization_level),
        flags: names(set),
        cleared: names(cleared),
        capabilities: config.targets.clone(),
        profiles: if dynamic {
            (0..profiles).map(profile).collect()
        } else {
            vec![]
        },
        compatibility: config.compatibility.name().into(),
        timing_cache: config.timing_cache.clone(),
    })
}

/// The ranges of a network's symbols, and one for those of these dimensions that depend on data.
pub(super) fn with_counted<'d>(known: &Symbols, dims: impl IntoIterator<Item = &'d Dim>) -> Symbols {
    let named = dims.into_iter().flat_map(Dim::symbols);
    let mut symbols: Symbols = named.map(|name| (name, COUNTED)).collect();
    symbols.extend(known.clone());
    symbols
}

/// The least, expected and greatest shape of a tensor in a profile.
fn shapes(network: &Network, id: TensorId, profile: &BTreeMap<Arc<str>, Range>) -> Result<[Vec<i64>; 3]> {
    let dims = &network[id].ty.shape;
    let mut symbols = with_counted(&network.symbols, dims);
    symbols.extend(profile.iter().map(|(name, range)| (name.clone(), *range)));
    let binding: Binding = symbols.iter().map(|(name, range)| (name.clone(), range.opt)).collect();
    let bounds: Vec<(i64, i64)> = dims.iter().map(|dim| dim.bounds(&symbols)).collect();
    let opt = dims.iter().map(|dim: &Dim| dim.eval(&binding)).collect::<Result<_>>();
    let (min, max) = bounds.into_iter().unzip();
    Ok([min, opt.map_err(|e| e.tensor(&network[id].name))?, max])
}
