//! After a build: the engine beside another family of kernels that compute in float32. What compilers of others made and
//! departs goes to other providers, and kernels that compute something else are replaced.

use crate::device::Space;
use crate::engine::arithmetic::operations;
use crate::engine::builder::Lowering;
use crate::engine::config::{BuilderConfig, Precision};
use crate::engine::flow::Around;
use crate::engine::judge::{Judge, Limits};
use crate::engine::noise::PlannedEnd;
use crate::engine::samples;
use crate::engine::verify::Departure;
use crate::engine::{Engine, Profile, builder, culprits, holds, verify};
use crate::error::{ErrorKind, Result};
use crate::network::array::Array;
use crate::network::dim::Binding;
use crate::network::{LayerId, Network, reference};
use crate::plan::program::Program;
use crate::plan::regions::ExcludedLayers;
use crate::plan::timing::TimingCache;
use crate::plan::{ExcludedForm, Provider, Settings};
use crate::runtime::executable::Executable;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

/// The providers that go layer by layer: those that bring kernels of ours, or of whoever brought the provider.
pub(super) fn layered(providers: &[Arc<dyn Provider>]) -> Vec<Arc<dyn Provider>> {
    let (nothing, none, settings) = (Network::new(""), HashSet::new(), Settings::default());
    let layered = |p: &&Arc<dyn Provider>| p.regions(&nothing, &none, &settings).is_none();
    providers.iter().filter(layered).cloned().collect()
}

/// Providers whose kernels are of another family than an engine's: the processor's for what runs on a device, if it takes not
/// too long there.
pub(super) fn another_family(engine: &Engine, providers: &[Arc<dyn Provider>]) -> Vec<Arc<dyn Provider>> {
    let operations = work(
        &engine.network,
        &builder::opt(&engine.network, &engine.plans[0].profile),
    );
    match engine.uses_devices() {
        true => on_the_processor(providers, operations, engine.config.threads),
        false => layered(providers),
    }
}

/// The operations of a network.
pub(super) fn work(network: &Network, binding: &Binding) -> f64 {
    network
        .layers()
        .map(|(_, layer)| operations(network, layer, binding))
        .sum()
}

/// The processor's providers, if they do so many operations in not too long a time; else all that go layer by layer.
pub(super) fn on_the_processor(
    providers: &[Arc<dyn Provider>],
    operations: f64,
    threads: usize,
) -> Vec<Arc<dyn Provider>> {
    /// Operations that a thread does in some two seconds.
    const MOST: f64 = 2e11;
    let layered = layered(providers);
    let host: Vec<_> = layered.iter().filter(|p| p.space() == Space::Host).cloned().collect();
    match !host.is_empty() && operations <= MOST * threads as f64 {
        true => host,
        false => layered,
    }
}

/// What an engine should compute, at the shapes to optimise for of one of its profiles.
pub(super) struct Exact {
    /// Which profile.
    at: usize,
    program: Arc<Executable>,
    /// The sizes to optimise for.
    opt: Binding,
    /// What it runs on, with what it gives for each.
    batches: Vec<Batch>,
    /// Whether somebody gave that.
    given: bool,
    /// The sizes that it is for.
    profile: Profile,
    /// Who computes it, and how it is planned.
    family: Vec<Arc<dyn Provider>>,
    config: BuilderConfig,
    /// The ends in front of outputs that were asked for, at these sizes.
    ends: RefCell<Vec<(usize, Binding, KnownEnd)>>,
    /// The network that it is a part of.
    around: Option<Around>,
    /// The regions of other compilers that were found to depart.
    excluded: ExcludedLayers,
}

/// The end in front of an output; none where nothing was computed.
type KnownEnd = Option<Rc<PlannedEnd>>;

struct Batch {
    binding: Binding,
    inputs: Vec<Array>,
    outputs: Vec<Array>,
    /// For outputs that were asked for: see [`PlannedEnd::moves`].
    noise: RefCell<HashMap<usize, Option<Rc<[f64]>>>>,
}

impl Exact {
    /// Plans a network that the passes are done with on another family of kernels, without timing; `None` where nothing runs at
    /// the shapes to optimise for.
    ///
    /// # Errors
    /// If some layer runs on no provider, or what runs fails.
    pub fn of(
        network: Network,
        engine: &Engine,
        at: usize,
        family: Vec<Arc<dyn Provider>>,
        around: Option<Around>,
    ) -> Result<Option<Self>> {
        let Some(opt) = sizes(&network, engine, at)? else {
            return Ok(None);
        };
        let program = untimed(Arc::new(network), &engine.config, &family, &opt, &ExcludedLayers::new())?;
        let program = Arc::new(Executable::new(program));
        let mut batches = given(&program, engine, at)?;
        let is_given = !batches.is_empty() && around.as_ref().is_none_or(|around| around.flow.given);
        if batches.is_empty() {
            let most = samples::affordable(work(&program.network, &opt), engine.config.threads);
            batches = generated(&program, &opt, most)?;
        }
        Ok(Some(Self {
            at,
            batches,
            given: is_given,
            program,
            opt,
            profile: engine.plans[at].profile.clone(),
            family,
            config: engine.config.clone(),
            ends: RefCell::default(),
            around,
            excluded: ExcludedLayers::new(),
        }))
    }

    /// What departs most in an engine.
    ///
    /// # Errors
    /// Those of running it.
    pub fn departure(&self, engine: &Engine, precision: Precision) -> Result<Departure> {
        self.departs(&engine.plans[self.at].program, precision, verify::FOREIGN)
    }

    fn departs(&self, program: &Arc<Executable>, precision: Precision, least: f64) -> Result<Departure> {
        let others = program.foreign().next().is_some() || program.spaces() != self.program.spaces();
        let least = if others { least } else { 0.0 };
        let rounding = verify::rounding_with_8_bits(&program.network, precision);
        let limits = Limits {
            precision,
            rounding,
            least,
        };
        let noise = |batch, output| self.noise(batch, output);
        let mut judge = Judge::new(&self.program.network, limits, Some(&noise), self.given);
        for (number, batch) in self.batches.iter().enumerate() {
            let got = verify::run_once(program, &batch.inputs, &batch.binding)?;
            judge.batch(number, &batch.binding, &batch.outputs, &got)?;
        }
        let worst = judge.worst()?;
        let Some(Around { flow, unit }) = &self.around else {
            return Ok(worst);
        };
        let run = |feeds: &[Array], sizes: &Binding| {
            holds(&self.profile, sizes).then(|| verify::run_once(program, feeds, sizes))
        };
        let found = flow.departure(unit, limits, &run)?;
        Ok(if found.excess > worst.excess { found } else { worst })
    }

    /// How far roundings move the elements of an output, as far as its end runs by itself.
    fn noise(&self, number: usize, output: usize) -> Result<Option<Rc<[f64]>>> {
        let batch = &self.batches[number];
        if let Some(known) = batch.noise.borrow().get(&output) {
            return Ok(known.clone());
        }
        let end = self.end(output, &batch.binding);
        let moves = end.and_then(|end| {
            end.map(|end| end.moves(number, &batch.inputs, &batch.binding))
                .transpose()
        });
        let found = match moves {
            Err(e) if e.kind() == ErrorKind::Interrupted => return Err(e),
            // It explains what departs, which nothing does then.
            Err(_) => None,
            Ok(found) => found.map(Rc::from),
        };
        batch.noise.borrow_mut().insert(output, found.clone());
        Ok(found)
    }

    /// The end of the network in front of an output, planned for these sizes.
    fn end(&self, output: usize, binding: &Binding) -> Result<KnownEnd> {
        let mut ends = self.ends.borrow_mut();
        if let Some((.., end)) = ends.iter().find(|(at, sizes, _)| (*at, sizes) == (output, binding)) {
            return Ok(end.clone());
        }
        let network = &self.program.network;
        let plan = |part: Network| {
            let part = Arc::new(part);
            untimed(part, &self.config, &self.family, binding, &ExcludedLayers::new())
        };
        let end = PlannedEnd::of(network, network.outputs()[output].tensor, binding, &plan)?.map(Rc::new);
        ends.push((output, binding.clone(), end.clone()));
        Ok(end)
    }

    /// What departs most when the same family of kernels runs the network lowered, of one that `passes::run_in_full` left and
    /// that gives the same results.
    ///
    /// # Errors
    /// Those of the passes, of planning and of running it.
    pub fn trial(
        &self,
        mut network: Network,
        lowering: Lowering,
        precision: Precision,
        config: &BuilderConfig,
    ) -> Result<Departure> {
        builder::lower_in_full(&mut network, lowering, precision, config, &self.family)?;
        let program = untimed(
            Arc::new(network),
            config,
            &self.family,
            &self.opt,
            &ExcludedLayers::new(),
        )?;
        self.departs(&Arc::new(Executable::new(program)), precision, 0.0)
    }

    /// As [`Exact::departs`]; what does not run at all departs, too.
    fn fault(&self, program: &Arc<Executable>, precision: Precision) -> Option<String> {
        let found = self.departs(program, precision, verify::FOREIGN);
        match found {
            Ok(found) => found.too_far().map(|found| found.message),
            Err(e) => Some(e.to_string()),
        }
    }

    /// An engine that departs without those kernels of a device that compute something else than the processor's do.
    ///
    /// # Errors
    /// As a build: if every form of some kernel is wrong, and no other provider runs its layers.
    pub fn without_culprits(
        &self,
        mut engine: Engine,
        precision: Precision,
        providers: &[Arc<dyn Provider>],
        cache: &TimingCache,
    ) -> Result<Engine> {
        /// A plan is made so often at most.
        const ROUNDS: usize = 8;
        if !engine.uses_devices() || self.family.iter().any(|provider| provider.space() != Space::Host) {
            return Ok(engine);
        }
        for _ in 0..ROUNDS {
            let (program, config) = (&engine.plans[self.at].program, &engine.config);
            let departs = self
                .departs(program, precision, verify::OTHER_FAMILY)?
                .too_far()
                .is_some();
            let Some(batch) = self.batches.first().filter(|_| departs) else {
                break;
            };
            let culprits = culprits::find(program, &self.family, config, precision, &batch.binding, &batch.inputs)?;
            if culprits.is_empty() {
                // What a lower precision loses is for the caller to judge.
                let departure = self.departure(&engine, precision)?.too_far();
                if let Some(departure) = departure.filter(|_| precision == Precision::FLOAT32) {
                    engine.notes.push(format!(
                        "{}, though each kernel computes what the processor's do",
                        departure.message
                    ));
                }
                break;
            }
            let mut config = engine.config.clone();
            config
                .excluded_forms
                .extend(culprits.iter().map(|found| found.form.clone()));
            let network = || (*engine.network).clone();
            let mut again = match builder::plan(network(), config, providers, cache, &self.excluded) {
                Ok(again) => again,
                // No form is left of some kernel: the next provider runs its layers.
                Err(_) => {
                    let mut config = engine.config.clone();
                    for ExcludedForm { provider, layers, .. } in culprits.iter().map(|found| &found.form) {
                        let excluded = config.exclude.entry(provider.clone()).or_default();
                        excluded.extend(layers.iter().cloned());
                    }
                    builder::plan(network(), config, providers, cache, &self.excluded)?
                }
            };
            let notes = culprits.into_iter().map(|found| found.note);
            keep_exclusions(&mut again, &engine);
            (again.passes, again.portable) = (engine.passes, engine.portable);
            again.notes.extend(notes);
            engine = again;
        }
        Ok(engine)
    }

    /// An engine without those regions of other compilers that depart or do not run; each of their layers is refused with the
    /// reason.
    ///
    /// # Errors
    /// As a build.
    pub fn settle(
        &mut self,
        mut engine: Engine,
        precision: Precision,
        providers: &[Arc<dyn Provider>],
        cache: &TimingCache,
    ) -> Result<Engine> {
        let mut excluded = ExcludedLayers::new();
        while engine.has_foreign() {
            let program = engine.plans[self.at].program.clone();
            let Some(fault) = self.fault(&program, precision) else {
                break;
            };
            for (provider, layers) in self.culprits(&engine, &excluded, precision, providers, fault) {
                excluded.entry(provider).or_default().extend(layers);
            }
            let mut again = builder::plan(
                (*engine.network).clone(),
                engine.config.clone(),
                providers,
                cache,
                &excluded,
            )?;
            (again.passes, again.portable) = (engine.passes, engine.portable);
            engine = again;
        }
        self.excluded = excluded;
        Ok(engine)
    }

    /// The regions that depart when they are the only ones; all of them where none does so alone.
    fn culprits(
        &self,
        engine: &Engine,
        excluded: &ExcludedLayers,
        precision: Precision,
        providers: &[Arc<dyn Provider>],
        fault: String,
    ) -> ExcludedLayers {
        let program = &engine.plans[self.at].program;
        let regions: Vec<(String, Vec<LayerId>)> = program
            .foreign()
            .map(|step| (program.providers[step.provider].name().into(), step.layers.clone()))
            .collect();
        let exclude = |chosen: &mut dyn Iterator<Item = (usize, String)>| {
            let mut made = ExcludedLayers::new();
            for (at, reason) in chosen {
                let (provider, layers) = &regions[at];
                let layers = layers.iter().map(|&id| (id, reason.clone()));
                made.entry(provider.clone()).or_default().extend(layers);
            }
            made
        };
        let alone = |at: &usize| {
            let others = (0..regions.len()).filter(|other| other != at);
            let mut without = exclude(&mut others.map(|other| (other, String::new())));
            for (provider, layers) in excluded {
                without.entry(provider.clone()).or_default().extend(layers.clone());
            }
            let made = untimed(engine.network.clone(), &engine.config, providers, &self.opt, &without);
            made.ok()
                .and_then(|made| self.fault(&Arc::new(Executable::new(made)), precision))
        };
        let single = regions.len() < 2;
        let found = (0..regions.len()).filter(|_| !single);
        let found: Vec<_> = found.filter_map(|at| Some((at, alone(&at)?))).collect();
        match found.is_empty() {
            true => exclude(&mut (0..regions.len()).map(|at| (at, fault.clone()))),
            false => exclude(&mut found.into_iter()),
        }
    }
}

/// Takes over the notes on the kernels that were excluded before an engine was built again.
pub(super) fn keep_exclusions(again: &mut Engine, before: &Engine) {
    for note in before.notes.iter().filter(|note| note.contains("was excluded")) {
        if !again.notes.contains(note) {
            again.notes.push(note.clone());
        }
    }
}

/// A program that rules choose, without these layers in regions.
///
/// # Errors
/// As [`Program::build`].
pub(super) fn untimed(
    network: Arc<Network>,
    config: &BuilderConfig,
    providers: &[Arc<dyn Provider>],
    binding: &Binding,
    excluded: &ExcludedLayers,
) -> Result<Program> {
    Program::build(
        network,
        providers.to_vec(),
        &config.untimed().settings(),
        binding,
        &TimingCache::default(),
        excluded,
    )
}

impl Batch {
    fn of(program: &Arc<Executable>, binding: Binding, inputs: Vec<Array>) -> Result<Self> {
        let outputs = verify::run_once(program, &inputs, &binding)?;
        Ok(Self {
            binding,
            inputs,
            outputs,
            noise: RefCell::default(),
        })
    }
}

/// The sizes to optimise for, or those of arrays at hand where they do not go together; `None` where nothing runs.
fn sizes(network: &Network, engine: &Engine, at: usize) -> Result<Option<Binding>> {
    let opt = builder::opt(network, &engine.plans[at].profile);
    let given = engine.config.samples.iter();
    let given = given.map(|batch| reference::bind(network, &|input| batch[input].shape().to_vec()));
    let mut all = std::iter::once(Ok(opt)).chain(given);
    all.find(|binding| {
        !binding
            .as_ref()
            .is_ok_and(|binding| network.check_guards(binding).is_err())
    })
    .transpose()
}

/// What the caller gave of sizes of this profile.
fn given(program: &Arc<Executable>, engine: &Engine, at: usize) -> Result<Vec<Batch>> {
    let (network, mut found) = (&program.network, vec![]);
    for batch in &engine.config.samples {
        let binding = reference::bind(network, &|input| batch[input].shape().to_vec())?;
        if engine.plan_for(&binding) == (at, true) && network.check_guards(&binding).is_ok() {
            found.push(Batch::of(program, binding, batch.clone())?);
        }
    }
    Ok(found)
}

/// Arrays of our own at the sizes to optimise for.
fn generated(program: &Arc<Executable>, opt: &Binding, most: usize) -> Result<Vec<Batch>> {
    let run = |inputs| Batch::of(program, opt.clone(), inputs);
    samples::several(&program.network, opt, most, run, |batch| &batch.outputs)
}
