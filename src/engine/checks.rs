//! After a build: are its kernels right, and does the precision lose too much? Two questions, asked for each profile.

use crate::engine::builder::{Lowering, build_in, opt, pass_settings, simplified};
use crate::engine::config::{BuilderConfig, Precision};
use crate::engine::lifting::Search;
use crate::engine::trial::{Exact, another_family, layered};
use crate::engine::verify::Departure;
use crate::engine::{Engine, parts};
use crate::error::{ErrorKind, Result};
use crate::network::Network;
use crate::passes;
use crate::plan::Provider;
use crate::plan::timing::TimingCache;
use std::sync::Arc;

/// How the engines of one network are checked.
pub(super) struct Checks<'c> {
    /// As it was given, and what decides its integers as results besides.
    probe: Network,
    /// As it was given.
    network: Network,
    precision: Precision,
    config: &'c BuilderConfig,
    providers: &'c [Arc<dyn Provider>],
    cache: &'c TimingCache,
}

impl<'c> Checks<'c> {
    pub fn new(
        network: Network,
        precision: Precision,
        config: &'c BuilderConfig,
        providers: &'c [Arc<dyn Provider>],
        cache: &'c TimingCache,
    ) -> Self {
        Self {
            probe: network.clone(),
            network,
            precision,
            config,
            providers,
            cache,
        }
    }

    /// An engine whose kernels compute what others do and whose precision loses no more than is allowed.
    ///
    /// # Errors
    /// As a build.
    pub fn hold(mut self, engine: Engine) -> Result<Engine> {
        let lowered = self.precision != Precision::FLOAT32;
        if !(lowered || engine.has_foreign() || engine.uses_devices()) {
            return Ok(engine);
        }
        if lowered {
            for (number, tensor) in parts::decisive(&self.network).into_iter().enumerate() {
                self.probe.mark_output(tensor, &format!("decides: {number}"))?;
            }
        }
        let (mut engine, mut precision, mut told) = (engine, self.precision, vec![]);
        for at in 0..engine.plans.len() {
            let mut exact = match self.exact(&engine, at) {
                Ok(Some(exact)) => exact,
                Ok(None) => continue,
                Err(e) if e.kind() == ErrorKind::Interrupted => return Err(e),
                Err(e) => {
                    told.push(format!("not compared with float32: {}", e.message()));
                    continue;
                }
            };
            engine = self.right(engine, &mut exact, precision)?;
            if precision == Precision::FLOAT32 {
                continue;
            }
            let Some(lost) = self.lost(&engine, &exact)? else {
                continue;
            };
            let config = match self.lifted(&exact, &engine, &lost)? {
                Some((config, why)) => {
                    engine = self.again(&config, precision, &engine, &mut exact)?;
                    told.push(why);
                    match self.lost(&engine, &exact)? {
                        None => continue,
                        Some(_) => engine.config.clone(),
                    }
                }
                None => engine.config.clone(),
            };
            precision = Precision::FLOAT32;
            told = vec![format!("{}: every layer went back to float32", lost.told)];
            engine = self.again(&config, precision, &engine, &mut exact)?;
        }
        engine.notes.splice(0..0, told);
        Ok(engine)
    }

    /// As [`Checks::hold`], where sizes were guessed: what does not run at them is not checked, and the report says so.
    ///
    /// # Errors
    /// As a build.
    pub fn hold_guessed(self, engine: Engine) -> Result<Engine> {
        let (network, precision) = (self.network.clone(), self.precision);
        let (config, providers, cache) = (self.config, self.providers, self.cache);
        match self.hold(engine) {
            Ok(engine) => Ok(engine),
            Err(e) => {
                let mut engine = build_in(network, precision, config, providers, cache)?;
                let note = format!("not compared with float32, at sizes that were guessed: {}", e.message());
                engine.notes.push(note);
                Ok(engine)
            }
        }
    }

    /// What an engine should compute: the float32 network on another family of kernels; on those of the same family where another
    /// one can't run it.
    fn exact(&self, engine: &Engine, at: usize) -> Result<Option<Exact>> {
        let config = engine.config.untimed();
        let planned = |family: Vec<Arc<dyn Provider>>| {
            let network = simplified(self.probe.clone(), Precision::FLOAT32, &config, &family)?;
            Exact::of(network, engine, at, family)
        };
        match planned(another_family(engine, self.providers)) {
            Err(_) if engine.uses_devices() => planned(layered(self.providers)),
            made => made,
        }
    }

    /// An engine without what compilers of others, or kernels, compute wrongly.
    fn right(&self, engine: Engine, exact: &mut Exact, precision: Precision) -> Result<Engine> {
        let engine = exact.settle(engine, precision, self.providers, self.cache)?;
        exact.without_culprits(engine, precision, self.providers, self.cache)
    }

    /// What the precision loses, where that is too much.
    fn lost(&self, engine: &Engine, exact: &Exact) -> Result<Option<Departure>> {
        if let Some(lost) = exact.departure(engine, self.precision)?.too_far() {
            return Ok(Some(lost));
        }
        // What decides integers is no result of the engine.
        match self.probe.outputs().len() == self.network.outputs().len() {
            true => Ok(None),
            false => {
                let lost = exact.trial(self.in_full()?, Lowering::Rough, self.precision, &engine.config)?;
                Ok(lost.too_far())
            }
        }
    }

    fn in_full(&self) -> Result<Network> {
        let mut network = self.probe.clone();
        passes::run_in_full(
            &mut network,
            &pass_settings(self.precision, self.config, self.providers),
        )?;
        Ok(network)
    }

    /// How to build it so that only those layers stay in full precision for which that is needed.
    fn lifted(&self, exact: &Exact, engine: &Engine, lost: &Departure) -> Result<Option<(BuilderConfig, String)>> {
        let (network, settings) = (
            self.in_full()?,
            pass_settings(self.precision, self.config, self.providers),
        );
        let search = Search {
            lowered: passes::lowered(&network, &settings)?,
            network: &network,
            exact,
            config: &engine.config,
            precision: self.precision,
            opt: opt(&network, &engine.plans[0].profile),
        };
        let found = search.find(lost)?;
        Ok(found.map(|found| {
            let mut config = engine.config.clone();
            config.lifted.extend(found.layers);
            (config, found.told)
        }))
    }

    /// Another engine in place of one that lost too much.
    fn again(
        &self,
        config: &BuilderConfig,
        precision: Precision,
        engine: &Engine,
        exact: &mut Exact,
    ) -> Result<Engine> {
        let mut again = build_in(self.network.clone(), precision, config, self.providers, self.cache)?;
        again = self.right(again, exact, precision)?;
        let kept = engine.notes.iter().filter(|note| note.contains("was excluded"));
        let kept: Vec<_> = kept.filter(|note| !again.notes.contains(note)).cloned().collect();
        again.notes.extend(kept);
        Ok(again)
    }
}
