//! The engine: programs for a network on the providers at hand, and the file that it is kept in.

pub mod arithmetic;
mod builder;
pub mod built;
mod checks;
pub mod config;
mod culprits;
mod default_dims;
pub mod every_form;
mod flow;
pub mod foreign;
pub mod format;
mod full_precision;
pub mod general;
mod hints;
mod judge;
mod lifting;
mod noise;
mod parts;
mod refit;
mod replay;
pub mod report;
mod samples;
mod saved;
mod slices;
pub mod stages;
mod staging;
mod trial;
mod verify;

use crate::error::Result;
use crate::network::Network;
use crate::network::dim::{Binding, Symbols};
use crate::network::graph::Graph;
use crate::passes;
use crate::plan::Provider;
use crate::plan::timing::Times;
use crate::runtime::executable::Executable;
use built::Built;
use config::{BuilderConfig, FEWEST_CALLS};
use general::General;
pub use saved::Saved;
use stages::Stage;
use std::sync::Arc;

/// An optimisation profile: the least, expected and greatest value of each symbol.
pub type Profile = Symbols;

/// Whether the sizes of a call are among those of a profile.
pub(crate) fn holds(profile: &Profile, binding: &Binding) -> bool {
    let mut ranges = profile.iter();
    ranges.all(|(name, range)| binding.get(name).is_none_or(|v| (range.min..=range.max).contains(v)))
}

/// One plan per profile, on shared, immutable kernels. Contexts run it.
pub struct Engine {
    /// The simplified network.
    pub network: Arc<Network>,
    /// The network before it was lowered for the providers at hand, where that changed it: what a file keeps.
    pub portable: Option<Arc<Network>>,
    /// How it was built.
    pub config: BuilderConfig,
    /// What its times depend on.
    pub built: Built,
    /// The profiles, each with its program; none where there are stages.
    pub plans: Vec<Plan>,
    /// What runs shapes outside of all profiles where the programs serve those alone.
    pub spare: Option<Arc<Executable>>,
    /// The stages of a network with sizes that depend on data.
    pub stages: Vec<Stage>,
    /// What the user should know: fallbacks, precision that could not be had, ...
    pub notes: Vec<String>,
    /// How often each pass rewrote something.
    pub passes: Vec<(String, usize)>,
    /// Seconds that the build took.
    pub build_seconds: f64,
    /// Those of them in which the engine was compared, and built anew where it departed; 0 where it was not.
    pub verify_seconds: f64,
    /// The network as it was given, for reports; an engine that was loaded has none.
    pub source: Option<Graph>,
    /// The network as it came, of an engine whose weights can be replaced.
    pub original: Option<Arc<Network>>,
    /// What runs calls in which symbols are not equal that the network takes to be.
    pub general: Option<General>,
}

/// A profile and the program that is best at its opt shapes.
pub struct Plan {
    /// The profile.
    pub profile: Profile,
    /// The program.
    pub program: Arc<Executable>,
}

impl Engine {
    /// Builds an engine.
    ///
    /// # Errors
    /// If the network is not well-formed, or some layer runs on no provider.
    pub fn build(network: Network, config: BuilderConfig, providers: &[Arc<dyn Provider>]) -> Result<Self> {
        builder::build(network, config, providers)
    }

    /// The number of the plan for these values of the symbols: the first smallest that holds them, and whether one does.
    pub fn plan_for(&self, binding: &Binding) -> (usize, bool) {
        let spread = |profile: &Profile| profile.values().map(|r| (r.max - r.min) as f64).sum::<f64>();
        let fitting = (0..self.plans.len()).filter(|&i| holds(&self.plans[i].profile, binding));
        match fitting.min_by(|&a, &b| spread(&self.plans[a].profile).total_cmp(&spread(&self.plans[b].profile))) {
            Some(plan) => (plan, true),
            None => (0, false),
        }
    }

    /// What runs the shapes that [`Engine::plan_for`] found this plan for.
    pub fn program(&self, (plan, inside): (usize, bool)) -> &Arc<Executable> {
        let spare = self.spare.as_ref().filter(|_| !inside);
        spare.unwrap_or(&self.plans[plan].program)
    }

    /// Whether compilers of others made some of it.
    pub(crate) fn has_foreign(&self) -> bool {
        self.plans.iter().any(|plan| plan.program.foreign().next().is_some())
    }

    /// The profiles that it was built for.
    pub fn profiles(&self) -> impl Iterator<Item = &Profile> {
        let asked = self.config.profiles.iter().filter(|_| self.plans.is_empty());
        self.plans.iter().map(|plan| &plan.profile).chain(asked)
    }

    /// The engines that run it: itself, or those of its stages and of the networks in its layers.
    pub fn parts(&self) -> Vec<&Engine> {
        match self.stages.as_slice() {
            [] => vec![self],
            stages => stages.iter().flat_map(Stage::engines).flat_map(Self::parts).collect(),
        }
    }

    /// The providers that it was planned for.
    fn providers(&self) -> &[Arc<dyn Provider>] {
        let parts = self.parts();
        let plan = parts.into_iter().find_map(|part| part.plans.first());
        plan.map_or(&[], |plan| plan.program.providers.as_slice())
    }

    /// Whether some of it runs outside of the processor.
    pub(crate) fn uses_devices(&self) -> bool {
        let parts = self.parts();
        let plans = parts.iter().flat_map(|part| &part.plans);
        let mut spaces = plans.flat_map(|plan| plan.program.spaces());
        spaces.any(|space| space.device().is_some())
    }

    /// Calls beside each other that keep busy what it runs on. A GPU gains nothing from more.
    pub fn calls(&self) -> usize {
        match self.uses_devices() {
            true => FEWEST_CALLS,
            false => self.config.calls(),
        }
    }

    /// Why calls are slower than they could be, once one found that.
    pub fn degraded(&self) -> Option<&str> {
        let own = self.plans.iter().find_map(|plan| plan.program.degraded());
        let own = own.or_else(|| self.general.as_ref()?.reason());
        let mut inner = self.stages.iter().flat_map(Stage::engines);
        own.or_else(|| inner.find_map(|engine| engine.degraded()))
    }

    /// The tactics that did not serve the shapes of a call, and what ran in their place.
    pub fn replacements(&self) -> Vec<String> {
        let own = self.plans.iter().flat_map(|plan| plan.program.replacements());
        let inner = self.stages.iter().flat_map(Stage::engines);
        own.chain(inner.flat_map(|engine| engine.replacements())).collect()
    }

    /// Adds how often passes rewrote something.
    fn count(&mut self, counts: passes::Counts) {
        for (name, count) in counts {
            match self.passes.iter_mut().find(|(known, _)| known == name) {
                Some((_, total)) => *total += count,
                None => self.passes.push((name.into(), count)),
            }
        }
        self.passes.sort();
    }

    /// The times that decided.
    fn times(&self) -> Times {
        let plans = self.parts().into_iter().flat_map(|engine| &engine.plans);
        plans.flat_map(|plan| plan.program.times.clone()).collect()
    }
}
