//! From a network to an engine: passes, then a plan per profile.

use crate::device::Space;
use crate::engine::built::{Built, why_anew};
use crate::engine::checks::Checks;
use crate::engine::config::{BuilderConfig, Precision, check_profiles};
use crate::engine::format::Header;
use crate::engine::general::{General, assume_equal};
use crate::engine::hints;
use crate::engine::stages;
use crate::engine::staging::staged;
use crate::engine::trial::{Exact, layered};
use crate::engine::{Engine, Plan, Profile, default_dims, samples};
use crate::error::{Error, Result};
use crate::network::dim::{Binding, Range};
use crate::network::dtype::DType;
use crate::network::graph::Graph;
use crate::network::{LayerId, Network, TensorId};
use crate::passes;
use crate::plan::program::Program;
use crate::plan::regions::ExcludedLayers;
use crate::plan::timing::{Times, TimingCache};
use crate::plan::{Provider, Settings};
use crate::runtime::executable::Executable;
use crate::runtime::instance;
use std::sync::Arc;
use std::time::Instant;

/// Told when an engine is opened whose code of other compilers is not there.
const COMPILED_AGAIN: &str = "what another compiler made for this engine is not in this machine's cache, or does not fit its \
                              library or GPU: compiled anew";

/// Passes, then a plan per profile; in float32 where a lower precision departs too far.
pub fn build(network: Network, config: BuilderConfig, providers: &[Arc<dyn Provider>]) -> Result<Engine> {
    network.verify()?;
    build_with(network, config, providers, &Times::new())
}

/// As [`build`], of a network that is verified, with times that are known already.
pub fn build_with(
    mut network: Network,
    config: BuilderConfig,
    providers: &[Arc<dyn Provider>],
    times: &Times,
) -> Result<Engine> {
    let start = Instant::now();
    check_profiles(&config.profiles)?;
    let source = Graph::of(&network, &|_| None);
    if let Some(dtype) = config.io {
        network.cast_ends(dtype)?;
    }
    samples::check(&network, &config.samples)?;
    widen_ranges(&mut network, &config.profiles)?;
    let assumed = default_dims::assign(&mut network)?;
    let cache = config.times();
    cache.put(times);
    let refittable = config.refittable.then(|| network.clone());
    let general = assume_equal(&mut network, &config.profiles)?;
    let original = refittable.map(|own| general.clone().unwrap_or_else(|| Arc::new(own)));
    let misspelt = config.misspelt(&network);
    let mut engine = compile(network, config, providers, &cache)?;
    engine.notes.extend(misspelt);
    engine.notes.extend(assumed);
    engine.source = Some(source);
    engine.original = original;
    engine.general = general.map(General::new);
    engine.config.samples.clear();
    engine.notes.extend(hints::idle_hint(&engine));
    let slow = providers
        .first()
        .and_then(|first| hints::slow_precision(&engine, &**first));
    engine.notes.extend(slow);
    engine.build_seconds = start.elapsed().as_secs_f64();
    Ok(engine)
}

/// An engine for a network that a build prepared, with no sizes taken to be equal, and no times.
pub(super) fn build_as_it_is(
    network: Network,
    config: BuilderConfig,
    providers: &[Arc<dyn Provider>],
) -> Result<Engine> {
    compile(network, config, providers, &TimingCache::default())
}

/// An engine in stages, or one in the precision that was asked for.
fn compile(
    network: Network,
    config: BuilderConfig,
    providers: &[Arc<dyn Provider>],
    cache: &TimingCache,
) -> Result<Engine> {
    if let Some(cuts) = stages::cut(&network)? {
        return staged(network, cuts, config, providers, cache);
    }
    let mut notes = vec![];
    let precision = precision(&config, providers, &mut notes);
    let original = config.verify.then(|| network.clone());
    let mut engine = build_in(network, precision, &config, providers, cache)?;
    if let Some(network) = &original {
        let checks = Checks {
            network,
            precision,
            config: &config,
            providers,
            cache,
            around: None,
        };
        engine = checks.checked(engine)?;
    }
    engine.notes.splice(0..0, notes);
    Ok(engine)
}

pub(super) fn build_in(
    mut network: Network,
    precision: Precision,
    config: &BuilderConfig,
    providers: &[Arc<dyn Provider>],
    cache: &TimingCache,
) -> Result<Engine> {
    let tell = |done| config.watch.progress("Simplifying the network", done, 1);
    tell(0)?;
    let counts = passes::run(&mut network, &pass_settings(precision, config, providers))?;
    let mut engine = lower_and_plan(network, precision, config, providers, cache)?;
    engine.count(counts);
    Ok(engine)
}

/// Brings a network that the passes for all providers are done with into the form that these providers read, and plans it.
fn lower_and_plan(
    mut network: Network,
    precision: Precision,
    config: &BuilderConfig,
    providers: &[Arc<dyn Provider>],
    cache: &TimingCache,
) -> Result<Engine> {
    let portable = network.clone();
    let settings = pass_settings(precision, config, providers);
    let counts = passes::lower(&mut network, &settings, &has_kernel(config, providers))?;
    config.watch.progress("Simplifying the network", 1, 1)?;
    let mut engine = plan(network, config.clone(), providers, cache, &ExcludedLayers::new())?;
    let lowered = counts.values().any(|&count| count > 0);
    engine.portable = lowered.then(|| Arc::new(portable));
    engine.count(counts);
    Ok(engine)
}

/// A network as these providers read it.
///
/// # Errors
/// As the passes.
pub(super) fn simplified(
    mut network: Network,
    precision: Precision,
    config: &BuilderConfig,
    providers: &[Arc<dyn Provider>],
) -> Result<Network> {
    let settings = pass_settings(precision, config, providers);
    passes::simplify(&mut network, &settings, &has_kernel(config, providers))?;
    Ok(network)
}

/// How a trial lowers a network that `passes::run_in_full` left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lowering {
    /// As a build does, but for the rounding of weights, which takes long.
    Rough,
    /// All that is rounded, between layers of float32.
    Emulated,
}

/// Lowers a network that `passes::run_in_full` left, for these providers.
///
/// # Errors
/// As the passes.
pub(super) fn lower_in_full(
    network: &mut Network,
    lowering: Lowering,
    precision: Precision,
    config: &BuilderConfig,
    providers: &[Arc<dyn Provider>],
) -> Result<()> {
    let settings = pass_settings(precision, config, providers);
    let has_kernel = has_kernel(config, providers);
    match lowering {
        Lowering::Rough => passes::lower_roughly(network, &settings, &has_kernel),
        Lowering::Emulated => passes::emulate(network, &settings, &has_kernel),
    }
}

/// What the passes may do for these providers.
pub(super) fn pass_settings(
    precision: Precision,
    config: &BuilderConfig,
    providers: &[Arc<dyn Provider>],
) -> passes::Settings {
    let unsupported = [DType::Float16, DType::BFloat16]
        .into_iter()
        .filter(|&dtype| !computes(providers, dtype));
    let leaves_host = !providers.iter().all(is_on_host);
    passes::Settings {
        compute: precision.dtype,
        tf32: precision.tf32,
        lifted: config.lifted.clone(),
        unsupported: unsupported.collect(),
        quantized: providers
            .iter()
            .all(|provider| is_on_host(provider) || provider.has_int8()),
        eight_bits: providers.first().map_or(vec![], multiplied),
        exact_activations: leaves_host,
        channel_products: leaves_host,
        packed_weights: providers.first().is_some_and(|provider| provider.has_packed_weights()),
        refittable: false,
        ..Default::default()
    }
}

/// The dtypes of 8 bits that a provider multiplies. One that compiles whole regions of the network knows itself what it takes.
fn multiplied(provider: &Arc<dyn Provider>) -> Vec<DType> {
    let compiles = layered(std::slice::from_ref(provider)).is_empty();
    let takes = |dtype: &DType| match dtype {
        DType::Float8E4M3FN => provider.has_fp8(),
        _ => provider.has_int8(),
    };
    let found = passes::EIGHT_BITS.into_iter();
    found.filter(|dtype| compiles || takes(dtype)).collect()
}

fn is_on_host(provider: &Arc<dyn Provider>) -> bool {
    provider.space() == Space::Host
}

/// Whether some provider has a kernel for a layer. In an engine for a device those of the processor for 8 bits don't count: what such
/// layers decompose into runs on the device.
fn has_kernel(config: &BuilderConfig, providers: &[Arc<dyn Provider>]) -> impl Fn(&Network, LayerId) -> bool {
    let settings = config.settings();
    let devices = !providers.iter().all(is_on_host);
    move |network, layer| {
        let in_8_bits = |tensor: &TensorId| matches!(network[*tensor].ty.dtype, DType::Int8 | DType::UInt8);
        let tensors = network[layer].inputs.iter().flatten().chain(&network[layer].outputs);
        let counts = |p: &&Arc<dyn Provider>| !(devices && is_on_host(p) && tensors.clone().any(in_8_bits));
        let runs = |p: &Arc<dyn Provider>| p.candidates(network, layer, &settings).is_ok();
        providers.iter().filter(counts).any(runs)
    }
}

/// An engine without the regions of other compilers that depart from kernels of ours on the same network.
fn held_to_ours(
    engine: Engine,
    precision: Precision,
    providers: &[Arc<dyn Provider>],
    cache: &TimingCache,
) -> Result<Engine> {
    match Exact::of((*engine.network).clone(), &engine, 0, layered(providers), None)? {
        Some(mut exact) => exact.settle(engine, precision, providers, cache),
        None => Ok(engine),
    }
}

/// A plan per profile for a network that an engine file brought, with the times that stand in its header.
pub fn plan_again(
    network: Network,
    config: BuilderConfig,
    providers: &[Arc<dyn Provider>],
    header: &Header,
) -> Result<Engine> {
    let start = Instant::now();
    let cache = config.times();
    cache.put(&header.times);
    let mut engine = match stages::cut(&network)? {
        Some(cuts) => staged(network, cuts, config, providers, &cache)?,
        None => {
            let engine = lower_and_plan(network, config.precision(), &config, providers, &cache)?;
            let compiled: usize = engine.plans.iter().map(|plan| plan.program.compiled).sum();
            match compiled > 0 && engine.config.verify {
                true => {
                    let precision = engine.config.precision();
                    let mut engine = held_to_ours(engine, precision, providers, &cache)?;
                    engine.notes.push(COMPILED_AGAIN.into());
                    engine
                }
                false => engine,
            }
        }
    };
    let timed = engine.times().keys().any(|key| !header.times.contains_key(key));
    let known = header.notes.iter().filter(|note| !engine.notes.contains(note));
    let known: Vec<String> = known.cloned().collect();
    engine.notes.extend(known);
    if timed {
        engine.notes.push(why_anew(header, &engine.built));
    }
    engine.build_seconds = start.elapsed().as_secs_f64();
    Ok(engine)
}

pub(super) fn plan(
    network: Network,
    config: BuilderConfig,
    providers: &[Arc<dyn Provider>],
    cache: &TimingCache,
    excluded: &ExcludedLayers,
) -> Result<Engine> {
    let network = Arc::new(network);
    let own = [network.symbols.clone()];
    let profiles = if config.profiles.is_empty() {
        &own[..]
    } else {
        &config.profiles
    };
    let mut settings = config.settings();
    let (mut plans, mut notes) = (vec![], vec![]);
    for profile in profiles {
        let opt = opt(&network, profile);
        if let Err(clash) = network.check_guards(&opt) {
            // Kernels can't run at such sizes, so they are not timed.
            settings.optimization_level = 0;
            notes.push(format!(
                "nothing was timed at the shapes to optimise for: {}",
                clash.message()
            ));
        }
        let program = Program::build(network.clone(), providers.to_vec(), &settings, &opt, cache, excluded)?;
        let program = Arc::new(Executable::new(program));
        notes.extend(
            program
                .notes
                .iter()
                .filter(|note| !notes.contains(note))
                .cloned()
                .collect::<Vec<_>>(),
        );
        if let Some(refusal) = program.refusals.first().filter(|_| config.strict) {
            return Err(
                Error::unsupported(format!("{} refuses a layer: {}", refusal.provider, refusal.reason))
                    .layer(&refusal.layer)
                    .hint(
                        "let the next provider run it: allow the cpu provider, without strict=True and fallback=False",
                    ),
            );
        }
        rehearse(&program, &network, profile, &opt);
        plans.push(Plan {
            profile: profile.clone(),
            program,
        });
    }
    let foreign = plans.iter().any(|plan: &Plan| plan.program.foreign().next().is_some());
    let spare = foreign.then(|| spare(&network, settings, providers)).flatten();
    if let Err(e) = cache.flush() {
        notes.push(format!("the timing cache was not written: {}", e.message()));
    }
    Ok(Engine {
        built: Built::of(&config, providers),
        network,
        portable: None,
        config,
        plans,
        spare,
        stages: vec![],
        notes,
        passes: vec![],
        build_seconds: 0.0,
        verify_seconds: 0.0,
        source: None,
        original: None,
        general: None,
    })
}

/// Kernels for shapes outside of all profiles, for which other compilers made nothing. Without them such calls are refused.
fn spare(network: &Arc<Network>, settings: Settings, providers: &[Arc<dyn Provider>]) -> Option<Arc<Executable>> {
    let opt = opt(network, &Profile::new());
    let settings = Settings {
        optimization_level: 0,
        ..settings
    };
    let cache = TimingCache::default();
    let made = Program::build(
        network.clone(),
        layered(providers),
        &settings,
        &opt,
        &cache,
        &ExcludedLayers::new(),
    );
    made.ok().map(|program| Arc::new(Executable::new(program)))
}

/// Lets devices compile what the shapes of a profile need, so that the first call at each does not wait for it: at its
/// ends, and at odd sizes, which are not moved in packs.
fn rehearse(program: &Executable, network: &Network, profile: &Profile, opt: &Binding) {
    if program.spaces() == [Space::Host] {
        return;
    }
    let ranges: Vec<(&Arc<str>, Range)> = network
        .symbols
        .iter()
        .map(|(name, range)| (name, *profile.get(name).unwrap_or(range)))
        .collect();
    let pick = |size: fn(&Range) -> i64| -> Binding {
        ranges
            .iter()
            .map(|(name, range)| ((*name).clone(), size(range)))
            .collect()
    };
    let odd = |range: &Range| (((range.min + range.opt) / 2) | 1).clamp(range.min, range.max);
    let mut shapes = vec![opt.clone(), pick(|range| range.min), pick(|range| range.max), pick(odd)];
    shapes.dedup();
    for binding in shapes {
        if network.check_guards(&binding).is_ok() {
            // What does not fit is told by the call that brings such shapes.
            let _ = instance::rehearse(program, &binding);
        }
    }
}

/// The value to optimise for of every symbol: the profile's, else the network's.
pub(super) fn opt(network: &Network, profile: &Profile) -> Binding {
    let pick = |(name, range): (&Arc<str>, &crate::network::dim::Range)| {
        (name.clone(), profile.get(name).unwrap_or(range).opt)
    };
    network.symbols.iter().map(pick).collect()
}

/// The symbols range over all profiles.
pub(super) fn widen_ranges(network: &mut Network, profiles: &[Profile]) -> Result<()> {
    for (symbol, range) in profiles.iter().flatten() {
        let mut wide = *range;
        for other in profiles.iter().filter_map(|p| p.get(symbol)) {
            wide.min = wide.min.min(other.min);
            wide.max = wide.max.max(other.max);
        }
        network.set_range(symbol, wide)?;
    }
    Ok(())
}

fn computes(providers: &[Arc<dyn Provider>], dtype: DType) -> bool {
    providers.iter().any(|p| p.compute_dtype(dtype) == dtype)
}

/// The precision of the engine, or a wider one, with a note, where nobody here computes in it.
pub(super) fn precision(config: &BuilderConfig, providers: &[Arc<dyn Provider>], notes: &mut Vec<String>) -> Precision {
    let asked = config.precision();
    let dtype = match providers.first() {
        Some(first) if !computes(providers, asked.dtype) => first.compute_dtype(asked.dtype),
        _ => asked.dtype,
    };
    let tf32 = asked.tf32 && providers.iter().any(|p| p.has_tf32());
    let found = Precision { dtype, tf32 };
    if found != asked {
        let names: Vec<_> = providers.iter().map(|p| p.name()).collect();
        notes.push(format!(
            "{} has no arithmetic for {asked} here: {found} is computed instead",
            names.join(", ")
        ));
    }
    found
}
