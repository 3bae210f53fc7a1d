//! Builds of networks with sizes or control flow that depend on data: an engine for each stage, and for each network in a layer.

use crate::engine::builder::{build_in, precision};
use crate::engine::built::Built;
use crate::engine::checks::Checks;
use crate::engine::config::{BuilderConfig, Precision};
use crate::engine::stages::{self, Cut, Stage};
use crate::engine::{Engine, default_dims};
use crate::error::Result;
use crate::network::Network;
use crate::network::body::Body;
use crate::plan::Provider;
use crate::plan::timing::TimingCache;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// A note names so many layers.
const SHOWN: usize = 8;

/// An engine for each stage.
///
/// # Errors
/// As a build.
pub(super) fn staged(
    network: Network,
    cuts: Vec<Cut>,
    config: BuilderConfig,
    providers: &[Arc<dyn Provider>],
    cache: &TimingCache,
) -> Result<Engine> {
    let (mut notes, mut config) = (vec![], config);
    // They are arrays for the inputs of the whole network.
    config.samples.clear();
    let precision = precision(&config, providers, &mut notes);
    let mut passes = BTreeMap::<String, usize>::new();
    let mut stages = vec![];
    for Cut {
        network: part,
        guessed,
        mut stage,
    } in cuts
    {
        if let Some(mut part) = part {
            default_dims::choose(&mut part);
            let part = build_guessed(part, guessed, precision, &config, providers, cache)?;
            stage.engine = Some(Arc::new(part));
        }
        for end in &mut stage.ends {
            let layer = &network[end.layer];
            for (attr, body) in layer.bodies() {
                let body = body_engine(&network, body, &config, providers, cache).map_err(|e| e.layer(&layer.name))?;
                end.bodies.insert(attr.into(), Arc::new(body));
            }
        }
        for (name, count) in stage.engines().flat_map(|engine| &engine.passes) {
            *passes.entry(name.clone()).or_default() += count;
        }
        stages.push(stage);
    }
    let names: Vec<_> = stages
        .iter()
        .flat_map(|stage| &stage.ends)
        .map(|end| network[end.layer].name.as_str())
        .collect();
    let mut seen = HashSet::new();
    let parts = stages.iter().flat_map(Stage::engines).flat_map(|engine| &engine.notes);
    notes.extend(parts.filter(|note| seen.insert(note.as_str())).cloned());
    let built = Built::of(&config, providers);
    notes.push(format!(
        "sizes or control flow depend on data ({}{}): planned in {} stages, with copies between them, and optimised for \
         {} where nobody knows a size",
        names[..names.len().min(SHOWN)].join(", "),
        if names.len() > SHOWN { ", ..." } else { "" },
        stages.len(),
        default_dims::COUNTED
    ));
    Ok(Engine {
        network: Arc::new(network),
        portable: None,
        config,
        built,
        plans: vec![],
        spare: None,
        stages,
        notes,
        passes: passes.into_iter().collect(),
        build_seconds: 0.0,
        source: None,
        original: None,
    })
}

/// An engine for a network of which some sizes may be guessed: those may not go together, and then nothing is timed.
fn build_guessed(
    network: Network,
    guessed: bool,
    precision: Precision,
    config: &BuilderConfig,
    providers: &[Arc<dyn Provider>],
    cache: &TimingCache,
) -> Result<Engine> {
    let original = (guessed || config.verify).then(|| network.clone());
    let built = build_in(network, precision, config, providers, cache);
    let Some(original) = original else {
        return built;
    };
    // Where sizes were guessed, what fails may be they: it is built anew, without what failed.
    let anew = |config: &BuilderConfig, note: String| {
        let mut engine = build_in(original.clone(), precision, config, providers, cache)?;
        engine.notes.push(note);
        Ok(engine)
    };
    let checks = Checks {
        network: &original,
        precision,
        config,
        providers,
        cache,
    };
    match built {
        Err(e) if guessed => anew(
            &config.untimed(),
            format!("nothing was timed at sizes that were guessed: {}", e.message()),
        ),
        Ok(engine) if config.verify => match checks.checked(engine) {
            Err(e) if guessed => anew(
                config,
                format!("not compared with float32, at sizes that were guessed: {}", e.message()),
            ),
            checked => checked,
        },
        built => built,
    }
}

/// An engine for a network that a layer of `around` holds.
fn body_engine(
    around: &Network,
    body: &Body,
    config: &BuilderConfig,
    providers: &[Arc<dyn Provider>],
    cache: &TimingCache,
) -> Result<Engine> {
    let mut network = (*body.0).clone();
    network.take_ranges(|name| around.symbols.get(name).copied());
    default_dims::choose(&mut network);
    let guessed = network.symbols.keys().any(|name| !around.symbols.contains_key(name));
    match stages::cut(&network)? {
        Some(cuts) => staged(network, cuts, config.clone(), providers, cache),
        None => {
            let precision = precision(config, providers, &mut vec![]);
            build_guessed(network, guessed, precision, config, providers, cache)
        }
    }
}
