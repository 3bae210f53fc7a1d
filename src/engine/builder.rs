//! From a network to an engine: passes, then a plan per profile.

use crate::engine::config::BuilderConfig;
use crate::engine::lower::lower;
use crate::engine::{Engine, Plan, Profile};
use crate::error::{Error, Result};
use crate::network::Network;
use crate::network::dim::Binding;
use crate::network::dtype::DType;
use crate::plan::Provider;
use crate::plan::program::Program;
use crate::plan::timing::{Times, TimingCache};
use std::sync::Arc;
use std::time::Instant;

/// Passes, then a plan per profile.
pub fn build(mut network: Network, config: BuilderConfig, providers: &[Arc<dyn Provider>]) -> Result<Engine> {
    let start = Instant::now();
    network.verify()?;
    widen_ranges(&mut network, &config.profiles)?;
    let mut notes = vec![];
    let _compute = compute_dtype(config.compute, providers, &mut notes);
    lower(&mut network, providers, &config.settings())?;
    let cache = config
        .timing_cache
        .clone()
        .map_or_else(TimingCache::default, TimingCache::open);
    let mut engine = plan(network, config, providers, &cache)?;
    engine.notes.splice(0..0, notes);
    engine.build_seconds = start.elapsed().as_secs_f64();
    Ok(engine)
}

/// A plan per profile for a network that an engine file brought, with the times that stood beside it.
pub fn plan_again(
    network: Network,
    config: BuilderConfig,
    providers: &[Arc<dyn Provider>],
    times: Times,
    notes: Vec<String>,
) -> Result<Engine> {
    let start = Instant::now();
    let cache = config
        .timing_cache
        .clone()
        .map_or_else(TimingCache::default, TimingCache::open);
    cache.extend(&times);
    let mut engine = plan(network, config, providers, &cache)?;
    let foreign = engine
        .plans
        .iter()
        .flat_map(|p| p.program.times.keys())
        .any(|key| !times.contains_key(key));
    engine.notes.extend(notes);
    if foreign {
        let note = "the engine was built for another device, thread count or library version: planned anew";
        engine.notes.push(note.into());
    }
    engine.build_seconds = start.elapsed().as_secs_f64();
    Ok(engine)
}

fn plan(
    network: Network,
    config: BuilderConfig,
    providers: &[Arc<dyn Provider>],
    cache: &TimingCache,
) -> Result<Engine> {
    let network = Arc::new(network);
    let own = [network.symbols.clone()];
    let profiles = if config.profiles.is_empty() {
        &own[..]
    } else {
        &config.profiles
    };
    let settings = config.settings();
    let mut plans = vec![];
    for profile in profiles {
        let program = Program::build(
            network.clone(),
            providers.to_vec(),
            &settings,
            &opt(&network, profile),
            cache,
        )?;
        if let Some(refusal) = program.refusals.first().filter(|_| config.strict) {
            return Err(
                Error::unsupported(format!("{} refuses a layer: {}", refusal.provider, refusal.reason))
                    .layer(&refusal.layer)
                    .hint("leave out strict=True to let the next provider run it"),
            );
        }
        plans.push(Plan {
            profile: profile.clone(),
            program: Arc::new(program),
        });
    }
    let mut notes = vec![];
    if let Err(e) = cache.flush() {
        notes.push(format!("the timing cache was not written: {}", e.message()));
    }
    Ok(Engine {
        network,
        config,
        plans,
        notes,
        passes: vec![],
        build_seconds: 0.0,
    })
}

/// The value to optimise for of every symbol: the profile's, else the network's.
fn opt(network: &Network, profile: &Profile) -> Binding {
    let pick = |(name, range): (&Arc<str>, &crate::network::dim::Range)| {
        (name.clone(), profile.get(name).unwrap_or(range).opt)
    };
    network.symbols.iter().map(pick).collect()
}

/// The symbols range over all profiles.
fn widen_ranges(network: &mut Network, profiles: &[Profile]) -> Result<()> {
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

/// The dtype that was asked for, or a wider one, with a note, where nobody computes in it.
fn compute_dtype(asked: DType, providers: &[Arc<dyn Provider>], notes: &mut Vec<String>) -> DType {
    if computes(providers, asked) {
        return asked;
    }
    let wider = providers.first().map_or(asked, |p| p.compute_dtype(asked));
    let names: Vec<_> = providers.iter().map(|p| p.name()).collect();
    notes.push(format!(
        "{asked} was asked for; {} has no arithmetic for it here, so {wider} is computed",
        names.join(", ")
    ));
    wider
}
