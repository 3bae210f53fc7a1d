//! After a build: are its kernels right, and does the precision lose too much? Two questions, asked for each profile.

use crate::engine::builder::{Lowering, build_in, opt, pass_settings, simplified};
use crate::engine::config::{BuilderConfig, Precision};
use crate::engine::flow::Around;
use crate::engine::lifting::Search;
use crate::engine::trial::{Exact, another_family, keep_exclusions, layered};
use crate::engine::verify::Departure;
use crate::engine::{Engine, parts};
use crate::error::{ErrorKind, Result};
use crate::network::Network;
use crate::passes;
use crate::plan::Provider;
use crate::plan::timing::TimingCache;
use std::sync::Arc;
use std::time::Instant;

/// How the engines of one network are checked.
pub(super) struct Checks<'c> {
    /// As it was given.
    pub network: &'c Network,
    /// What was asked for.
    pub precision: Precision,
    /// How they are built.
    pub config: &'c BuilderConfig,
    /// Who runs them.
    pub providers: &'c [Arc<dyn Provider>],
    /// Times that are known.
    pub cache: &'c TimingCache,
    /// The network that it is a part of.
    pub around: Option<Around>,
}

impl Checks<'_> {
    /// An engine whose kernels compute what others do and whose precision loses no more than is allowed.
    ///
    /// # Errors
    /// As a build.
    pub fn checked(&self, engine: Engine) -> Result<Engine> {
        let lowered = self.precision != Precision::FLOAT32;
        if !(lowered || engine.has_foreign() || engine.uses_devices()) {
            return Ok(engine);
        }
        let start = Instant::now();
        let mut engine = self.corrected_and_lifted(engine)?;
        engine.verify_seconds = start.elapsed().as_secs_f64();
        Ok(engine)
    }

    fn corrected_and_lifted(&self, engine: Engine) -> Result<Engine> {
        let probe = self.probe()?;
        let (mut engine, mut precision, mut notes) = (engine, self.precision, vec![]);
        for at in 0..engine.plans.len() {
            let mut exact = match self.exact(&probe, &engine, at) {
                Ok(Some(exact)) => exact,
                Ok(None) => continue,
                Err(e) if e.kind() == ErrorKind::Interrupted => return Err(e),
                Err(e) => {
                    notes.push(format!("not compared with float32: {}", e.message()));
                    continue;
                }
            };
            engine = self.corrected(engine, &mut exact, precision)?;
            if precision == Precision::FLOAT32 {
                continue;
            }
            let Some(mut loss) = self.loss(&probe, &engine, &exact)? else {
                continue;
            };
            if let Some((config, message)) = self.lifted(&probe, &exact, &engine, &loss)? {
                engine = self.again(&config, precision, &engine, &mut exact)?;
                let Some(left) = self.loss(&probe, &engine, &exact)? else {
                    notes.push(message);
                    continue;
                };
                loss = left;
            }
            if loss.whole <= 1.0 {
                notes.push(format!(
                    "{}, and the result as a whole by less than it may: its layers stay as they are",
                    loss.message
                ));
                continue;
            }
            precision = Precision::FLOAT32;
            let all = match self.around {
                Some(_) => "every layer of that part",
                None => "every layer",
            };
            notes = vec![format!("{}: {all} went back to float32", loss.message)];
            engine = self.again(&engine.config.clone(), precision, &engine, &mut exact)?;
        }
        engine.notes.splice(0..0, notes);
        Ok(engine)
    }

    /// The network, with what decides its integers as results besides where a precision is lowered.
    fn probe(&self) -> Result<Network> {
        let mut probe = self.network.clone();
        if self.precision != Precision::FLOAT32 {
            for (number, tensor) in parts::decisive(self.network).into_iter().enumerate() {
                probe.mark_output(tensor, &format!("decides: {number}"))?;
            }
        }
        Ok(probe)
    }

    /// What an engine should compute: the float32 network on another family of kernels; on those of the same family where another
    /// one can't run it.
    fn exact(&self, probe: &Network, engine: &Engine, at: usize) -> Result<Option<Exact>> {
        let config = engine.config.untimed();
        let planned = |family: Vec<Arc<dyn Provider>>| {
            let network = simplified(probe.clone(), Precision::FLOAT32, &config, &family)?;
            Exact::of(network, engine, at, family, self.around.clone())
        };
        match planned(another_family(engine, self.providers)) {
            Err(_) if engine.uses_devices() => planned(layered(self.providers)),
            made => made,
        }
    }

    /// An engine without what compilers of others, or kernels, compute wrongly.
    fn corrected(&self, engine: Engine, exact: &mut Exact, precision: Precision) -> Result<Engine> {
        let engine = exact.settle(engine, precision, self.providers, self.cache)?;
        exact.without_culprits(engine, precision, self.providers, self.cache)
    }

    /// What the precision loses, where that is too much.
    fn loss(&self, probe: &Network, engine: &Engine, exact: &Exact) -> Result<Option<Departure>> {
        let loss = exact.departure(engine, self.precision)?;
        // What decides integers is no result of the engine.
        if probe.outputs().len() == self.network.outputs().len() {
            return Ok(loss.too_far());
        }
        let decisive = exact.trial(self.in_full(probe)?, Lowering::Rough, self.precision, &engine.config)?;
        // How far off floats are, more of the integers that they decide can't tell.
        Ok(match loss.too_far() {
            Some(loss) => Some(Departure {
                excess: decisive.excess.max(loss.excess),
                whole: decisive.whole.max(loss.whole),
                ..loss
            }),
            None => decisive.too_far(),
        })
    }

    fn in_full(&self, probe: &Network) -> Result<Network> {
        let mut network = probe.clone();
        passes::run_in_full(
            &mut network,
            &pass_settings(self.precision, self.config, self.providers),
        )?;
        Ok(network)
    }

    /// How to build it so that only those layers stay in full precision for which that is needed.
    fn lifted(
        &self,
        probe: &Network,
        exact: &Exact,
        engine: &Engine,
        loss: &Departure,
    ) -> Result<Option<(BuilderConfig, String)>> {
        let (network, settings) = (
            self.in_full(probe)?,
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
        let found = search.find(loss)?;
        Ok(found.map(|found| {
            let mut config = engine.config.clone();
            config.lifted.extend(found.layers);
            (config, found.message)
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
        again = self.corrected(again, exact, precision)?;
        keep_exclusions(&mut again, engine);
        Ok(again)
    }
}
