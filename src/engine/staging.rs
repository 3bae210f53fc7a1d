//! Builds of networks with sizes or control flow that depend on data: an engine for each stage, and for each network in a layer.

use crate::engine::builder::{build_in, precision};
use crate::engine::built::Built;
use crate::engine::checks::Checks;
use crate::engine::config::{BuilderConfig, Precision};
use crate::engine::flow::{self, Around, Flow, Unit};
use crate::engine::judge::Limits;
use crate::engine::stages::{self, Cut, Stage};
use crate::engine::{Engine, default_dims, verify};
use crate::error::{ErrorKind, Result};
use crate::network::Network;
use crate::network::body::Body;
use crate::network::dtype::DType;
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
    let precision = precision(&config, providers, &mut notes);
    let flow = match flow::is_verified(&config, precision, providers) {
        true => flow(&network, &cuts, &config, providers, &mut notes)?,
        false => None,
    };
    // They are arrays for the inputs of the whole network.
    config.samples.clear();
    let on = |unit: Unit| {
        let samples = flow.as_ref().map(|flow| flow.fed_to(&unit)).unwrap_or_default();
        let around = flow.clone().map(|flow| Around { flow, unit });
        (
            BuilderConfig {
                samples,
                ..config.clone()
            },
            around,
        )
    };
    let mut passes = BTreeMap::<String, usize>::new();
    let mut stages = vec![];
    for (
        at,
        Cut {
            network: part,
            guessed,
            mut stage,
        },
    ) in cuts.into_iter().enumerate()
    {
        if let Some(mut part) = part {
            default_dims::choose(&mut part);
            let (config, around) = on(Unit::Stage(at));
            let mut part = build_guessed(part, guessed, precision, &config, around, providers, cache)?;
            part.config.samples.clear();
            stage.engine = Some(Arc::new(part));
        }
        for (number, end) in stage.ends.iter_mut().enumerate() {
            let layer = &network[end.layer];
            for (attr, body) in layer.bodies() {
                let on = on(Unit::Body(at, number, attr.into()));
                let mut body = body_engine(&network, body, on, providers, cache).map_err(|e| e.layer(&layer.name))?;
                body.config.samples.clear();
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
    if let Some(message) = departs(flow.as_deref(), &stages, precision)? {
        let config = BuilderConfig {
            compute: DType::Float32,
            tf32: false,
            ..config
        };
        let cuts = stages::cut(&network)?.unwrap_or_default();
        let mut engine = staged(network, cuts, config, providers, cache)?;
        engine
            .notes
            .insert(0, format!("{message}: every layer went back to float32"));
        return Ok(engine);
    }
    let built = Built::of(&config, providers);
    notes.push(format!(
        "sizes or control flow depend on data ({}{}): planned in {} stages, with copies between them, and optimised for \
         {} where nobody knows a size",
        names[..names.len().min(SHOWN)].join(", "),
        if names.len() > SHOWN { ", ..." } else { "" },
        stages.len(),
        default_dims::COUNTED
    ));
    let verify_seconds = stages
        .iter()
        .flat_map(Stage::engines)
        .map(|engine| engine.verify_seconds)
        .sum();
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
        verify_seconds,
        source: None,
        original: None,
        general: None,
    })
}

/// By how much the stages together depart, where each departs by no more than is allowed and all of them by more.
fn departs(flow: Option<&Flow>, stages: &[Stage], precision: Precision) -> Result<Option<String>> {
    let Some(flow) = flow.filter(|_| precision != Precision::FLOAT32) else {
        return Ok(None);
    };
    let limits = Limits {
        precision,
        rounding: precision.rounding(),
        least: verify::FOREIGN,
    };
    let found = flow.departure_of(stages, limits)?.too_far();
    Ok(found.map(|found| found.message))
}

/// What the stages are verified on; nothing, with a note, where a run in float32 fails.
fn flow(
    network: &Network,
    cuts: &[Cut],
    config: &BuilderConfig,
    providers: &[Arc<dyn Provider>],
    notes: &mut Vec<String>,
) -> Result<Option<Arc<Flow>>> {
    match Flow::of(network, cuts, config, providers) {
        Ok(found) => Ok(Some(Arc::new(found))),
        Err(e) if e.kind() != ErrorKind::Interrupted => {
            notes.push(format!(
                "stages are compared with float32 on numbers of their own, not on what flows between them: {}",
                e.message()
            ));
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

/// An engine for a network of which some sizes may be guessed: those may not go together, and then nothing is timed.
fn build_guessed(
    network: Network,
    guessed: bool,
    precision: Precision,
    config: &BuilderConfig,
    around: Option<Around>,
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
        around,
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

/// An engine for a network that a layer of `whole` holds.
fn body_engine(
    whole: &Network,
    body: &Body,
    (config, around): (BuilderConfig, Option<Around>),
    providers: &[Arc<dyn Provider>],
    cache: &TimingCache,
) -> Result<Engine> {
    let mut network = (*body.0).clone();
    network.take_ranges(|name| whole.symbols.get(name).copied());
    default_dims::choose(&mut network);
    let guessed = network.symbols.keys().any(|name| !whole.symbols.contains_key(name));
    match stages::cut(&network)? {
        Some(cuts) => staged(network, cuts, config, providers, cache),
        None => {
            let precision = precision(&config, providers, &mut vec![]);
            build_guessed(network, guessed, precision, &config, around, providers, cache)
        }
    }
}
