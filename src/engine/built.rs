//! What an engine file says of the build for which its times hold, and how that differs from where it is opened.

use crate::engine::config::{BuilderConfig, Hint};
use crate::engine::format::{Header, PRODUCER};
use crate::error::{Error, Result};
use crate::plan::timing::Times;
use crate::plan::{ExcludedForm, Provider, Tactic};
use crate::threads::default_threads;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The options of a build that decide about kernels, and what its times depend on.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Built {
    /// As [`BuilderConfig::threads`].
    pub threads: usize,
    /// As [`BuilderConfig::hint`].
    pub hint: Hint,
    /// As [`BuilderConfig::optimization_level`].
    pub optimization_level: u8,
    /// As [`BuilderConfig::exclude`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub exclude: BTreeMap<String, Vec<String>>,
    /// As [`BuilderConfig::workspace`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<usize>,
    /// As [`BuilderConfig::excluded_forms`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded_forms: Vec<ExcludedForm>,
    /// By provider, in order of preference: what its times depend on, by name.
    pub devices: Vec<(String, BTreeMap<String, String>)>,
}

impl Built {
    /// What a build with these options and providers is.
    pub fn of(config: &BuilderConfig, providers: &[Arc<dyn Provider>]) -> Self {
        let settings = config.settings();
        let device = |p: &Arc<dyn Provider>| (p.name().into(), p.conditions(&settings).into_iter().collect());
        Self {
            threads: config.threads,
            hint: config.hint,
            optimization_level: config.optimization_level,
            exclude: config.exclude.clone(),
            workspace: config.workspace,
            excluded_forms: config.excluded_forms.clone(),
            devices: providers.iter().map(device).collect(),
        }
    }

    /// Checks what a file says.
    ///
    /// # Errors
    /// If no build can have been so.
    pub fn check(&self) -> Result<()> {
        let sound = self.threads > 0 && self.optimization_level <= MOST_LEVEL;
        sound.then_some(()).ok_or_else(|| {
            Error::format("no build has these options")
                .expected(format!("threads from 1 on, optimization_level 0 to {MOST_LEVEL}"))
                .got(format!("{}, {}", self.threads, self.optimization_level))
        })
    }

    /// The options that hold unless the caller says otherwise. A call takes no more threads than this machine gives. A kernel of which
    /// an older version excluded a form is excluded as a whole.
    pub fn config(&self) -> BuilderConfig {
        let mut exclude = self.exclude.clone();
        let (numbered, excluded_forms): (Vec<_>, Vec<_>) = self
            .excluded_forms
            .iter()
            .cloned()
            .partition(|excluded| excluded.form.tactic == Tactic::NUMBERED);
        for ExcludedForm { provider, layers, .. } in numbered {
            exclude.entry(provider).or_default().extend(layers);
        }
        BuilderConfig {
            threads: self.threads.min(default_threads()),
            hint: self.hint,
            optimization_level: self.optimization_level,
            exclude,
            workspace: self.workspace,
            excluded_forms,
            ..BuilderConfig::default()
        }
    }

    /// What is not the same here, each as `name value, here value`.
    pub fn differences(&self, here: &Self) -> Vec<String> {
        let mut found = vec![];
        let mut compare = |name: &str, there: String, here: String| {
            if there != here {
                found.push(format!("{name} {there}, here {here}"));
            }
        };
        compare(
            "optimization_level",
            self.optimization_level.to_string(),
            here.optimization_level.to_string(),
        );
        compare("workspace_size", bytes(self.workspace), bytes(here.workspace));
        compare("exclude", format!("{:?}", self.exclude), format!("{:?}", here.exclude));
        let names: BTreeSet<&String> = self.devices.iter().chain(&here.devices).map(|(name, _)| name).collect();
        for provider in names {
            match (self.device(provider), here.device(provider)) {
                (Some(there), Some(here)) => {
                    let facts: BTreeSet<&String> = there.keys().chain(here.keys()).collect();
                    for fact in facts {
                        compare(fact, value(there, fact), value(here, fact));
                    }
                }
                (there, here) => compare("provider", name_if(provider, there), name_if(provider, here)),
            }
        }
        found
    }

    fn device(&self, provider: &str) -> Option<&BTreeMap<String, String>> {
        let device = self.devices.iter().find(|(name, _)| name == provider);
        device.map(|(_, conditions)| conditions)
    }
}

/// The highest optimization level.
const MOST_LEVEL: u8 = 5;

fn bytes(workspace: Option<usize>) -> String {
    workspace.map_or("None".into(), |bytes| bytes.to_string())
}

fn value(conditions: &BTreeMap<String, String>, name: &str) -> String {
    conditions.get(name).cloned().unwrap_or_else(|| "none".into())
}

fn name_if<T>(name: &str, there: Option<T>) -> String {
    there.map_or("without it".into(), |_| name.to_string())
}

/// Why the times of an engine file did not do: what differs from its build, of which files of versions 1 and 2 say little.
pub fn why_anew(header: &Header, here: &Built) -> String {
    let mut found = match &header.built {
        Some(built) => built.differences(here),
        None => vec![format!("{}, here {}", signatures(&header.times), here.signature())],
    };
    if header.producer != PRODUCER {
        found.push(format!("{}, here {PRODUCER}", header.producer));
    }
    match found.is_empty() {
        true => format!("{ANEW} its file has no times for some kernels"),
        false => format!("{ANEW} its build differs: {}", found.join("; ")),
    }
}

/// How that note begins. It is of one opening, and stands in no file.
pub const ANEW: &str = "the engine was planned anew, since";

/// What the keys of times begin with.
fn signatures(times: &Times) -> String {
    let all: BTreeSet<&str> = times.keys().filter_map(|key| key.split('|').next()).collect();
    all.into_iter().collect::<Vec<_>>().join(" and ")
}

impl Built {
    fn signature(&self) -> String {
        let one = |(name, conditions): &(String, BTreeMap<String, String>)| {
            let all = conditions.iter().map(|(name, value)| format!(" {name} {value}"));
            format!("{name}{}", all.collect::<String>())
        };
        self.devices.iter().map(one).collect::<Vec<_>>().join(" and ")
    }
}
