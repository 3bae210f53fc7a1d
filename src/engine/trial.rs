//! After a build: the engine beside kernels of ours that compute in float32. What compilers of others made and departs goes
//! to other providers.

use crate::engine::config::Precision;
use crate::engine::{Engine, builder, verify};
use crate::error::Result;
use crate::network::dim::Binding;
use crate::network::{LayerId, Network};
use crate::plan::program::Program;
use crate::plan::regions::Banned;
use crate::plan::timing::TimingCache;
use crate::plan::{Provider, Settings};
use std::collections::HashSet;
use std::sync::Arc;

/// The providers that go layer by layer: those that bring kernels of ours, or of whoever brought the provider.
pub(super) fn layered(providers: &[Arc<dyn Provider>]) -> Vec<Arc<dyn Provider>> {
    let (nothing, none, settings) = (Network::new(""), HashSet::new(), Settings::default());
    let layered = |p: &&Arc<dyn Provider>| p.regions(&nothing, &none, &settings).is_none();
    providers.iter().filter(layered).cloned().collect()
}

/// What an engine should compute, at the shapes to optimise for.
pub(super) struct Exact {
    program: Arc<Program>,
    binding: Binding,
}

impl Exact {
    /// Plans a network that the passes are done with on kernels of ours, without timing; `None` where nothing runs at the
    /// shapes to optimise for.
    ///
    /// # Errors
    /// If some layer runs on no provider.
    pub fn of(network: Network, engine: &Engine, providers: &[Arc<dyn Provider>]) -> Result<Option<Self>> {
        let binding = builder::opt(&network, &engine.plans[0].profile);
        if network.check_guards(&binding).is_err() {
            return Ok(None);
        }
        let program = Program::build(
            Arc::new(network),
            layered(providers),
            &engine.config.untimed().settings(),
            &binding,
            &TimingCache::default(),
            &Banned::new(),
        )?;
        Ok(Some(Self {
            program: Arc::new(program),
            binding,
        }))
    }

    /// What departs in the first plan of an engine, if anything does.
    ///
    /// # Errors
    /// Those of running either.
    pub fn departure(&self, engine: &Engine, precision: Precision) -> Result<Option<String>> {
        self.departs(&engine.plans[0].program, precision)
    }

    fn departs(&self, program: &Arc<Program>, precision: Precision) -> Result<Option<String>> {
        verify::departure(program, &self.program, &self.binding, precision)
    }

    /// As [`Exact::departs`]; what does not run at all departs, too.
    fn fault(&self, program: &Arc<Program>, precision: Precision) -> Option<String> {
        self.departs(program, precision).unwrap_or_else(|e| Some(e.to_string()))
    }

    /// An engine without those regions of other compilers that depart or do not run; each of their layers is refused with the
    /// reason.
    ///
    /// # Errors
    /// As a build.
    pub fn settle(
        &self,
        mut engine: Engine,
        precision: Precision,
        providers: &[Arc<dyn Provider>],
        cache: &TimingCache,
    ) -> Result<Engine> {
        let mut banned = Banned::new();
        while engine.has_foreign() {
            let program = engine.plans[0].program.clone();
            let Some(fault) = self.fault(&program, precision) else {
                break;
            };
            for (provider, layers) in self.guilty(&engine, &banned, precision, providers, fault) {
                banned.entry(provider).or_default().extend(layers);
            }
            let mut again = builder::plan(
                (*engine.network).clone(),
                engine.config.clone(),
                providers,
                cache,
                &banned,
            )?;
            (again.passes, again.portable) = (engine.passes, engine.portable);
            engine = again;
        }
        Ok(engine)
    }

    /// The regions that depart when they are the only ones; all of them where none does so alone.
    fn guilty(
        &self,
        engine: &Engine,
        banned: &Banned,
        precision: Precision,
        providers: &[Arc<dyn Provider>],
        fault: String,
    ) -> Banned {
        let program = &engine.plans[0].program;
        let regions: Vec<(String, Vec<LayerId>)> = program
            .foreign()
            .map(|step| (program.providers[step.provider].name().into(), step.layers.clone()))
            .collect();
        let ban = |chosen: &mut dyn Iterator<Item = (usize, String)>| {
            let mut made = Banned::new();
            for (at, reason) in chosen {
                let (provider, layers) = &regions[at];
                let layers = layers.iter().map(|&id| (id, reason.clone()));
                made.entry(provider.clone()).or_default().extend(layers);
            }
            made
        };
        let alone = |at: &usize| {
            let others = (0..regions.len()).filter(|other| other != at);
            let mut without = ban(&mut others.map(|other| (other, String::new())));
            for (provider, layers) in banned {
                without.entry(provider.clone()).or_default().extend(layers.clone());
            }
            let made = Program::build(
                engine.network.clone(),
                providers.to_vec(),
                &engine.config.untimed().settings(),
                &self.binding,
                &TimingCache::default(),
                &without,
            );
            made.ok().and_then(|made| self.fault(&Arc::new(made), precision))
        };
        let single = regions.len() < 2;
        let found = (0..regions.len()).filter(|_| !single);
        let found: Vec<_> = found.filter_map(|at| Some((at, alone(&at)?))).collect();
        match found.is_empty() {
            true => ban(&mut (0..regions.len()).map(|at| (at, fault.clone()))),
            false => ban(&mut found.into_iter()),
        }
    }
}
