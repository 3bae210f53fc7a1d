//! The program: kernels in order, each in its form, with reorders between them. Made once, at build.

use crate::device::Space;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::network::array::{bytes_of, require};
use crate::network::dim::Binding;
use crate::network::{LayerId, Network, TensorId};
use crate::plan::choose::choose;
use crate::plan::cover::{Cover, Group, Offers};
use crate::plan::emit::Emit;
use crate::plan::io_signature::IoSignature;
use crate::plan::layout::{Layout, Operand};
use crate::plan::region_benchmark::unfit;
use crate::plan::regions::ExcludedLayers;
use crate::plan::slices;
use crate::plan::timing::{self, Times, TimingCache};
use crate::plan::tuning::Tuner;
use crate::plan::{Alias, Candidate, ExcludedForm, Form, Kernel, Provider, Refusal, Settings};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

/// Names a slot of one program.
pub type SlotId = usize;

/// A tensor in one layout and memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The tensor.
    pub tensor: TensorId,
    /// Its layout.
    pub layout: Layout,
    /// Where it lies.
    pub space: Space,
}

/// One kernel in its form.
pub struct Command {
    /// The number of the provider.
    pub provider: usize,
    /// The kernel.
    pub kernel: Arc<dyn Kernel>,
    /// The form.
    pub form: Form,
    /// The slots that it reads.
    pub inputs: Vec<SlotId>,
    /// The slots that it gives.
    pub outputs: Vec<SlotId>,
    /// The layers that it runs; none for a reorder or a transfer.
    pub layers: Vec<LayerId>,
    /// Nanoseconds that it took at the shapes to optimise for; 0 where it was not timed.
    pub time: f64,
}

impl Command {
    /// Whether its kernel only moves data.
    pub fn alias(&self) -> Alias {
        self.kernel.alias(&self.form)
    }
}

/// Kernels in order, with everything that running them at some shapes needs.
pub struct Program {
    /// The simplified network.
    pub network: Arc<Network>,
    /// Where the caller's arrays lie.
    pub signature: IoSignature,
    /// The providers, as the commands number them.
    pub providers: Vec<Arc<dyn Provider>>,
    /// The commands.
    pub commands: Vec<Command>,
    /// The slots.
    pub slots: Vec<Slot>,
    /// The slot of each result; no two share one.
    pub outputs: Vec<SlotId>,
    /// What providers did not take.
    pub refusals: Vec<Refusal>,
    /// What providers have to say of their regions.
    pub notes: Vec<String>,
    /// How many regions were compiled for it.
    pub compiled: usize,
    /// Threads of a CPU.
    pub threads: usize,
    /// Forms that it must not take.
    excluded: Vec<ExcludedForm>,
    /// The shapes at which its forms were chosen.
    pub opt: Binding,
    /// The times that decided, for the engine file.
    pub times: Times,
    /// The tensors whose parts are copied into them and out of them.
    pub apart: BTreeSet<TensorId>,
}

impl Program {
    /// Chooses kernels and forms for a network that the passes are done with, at the shapes of `opt`. Regions hold none of the
    /// `excluded` layers.
    ///
    /// # Errors
    /// If some layer runs nowhere, or a kernel can't be timed at `opt`.
    pub fn build(
        network: Arc<Network>,
        providers: Vec<Arc<dyn Provider>>,
        settings: &Settings,
        opt: &Binding,
        cache: &TimingCache,
        excluded: &ExcludedLayers,
    ) -> Result<Self> {
        let mut tuner = Tuner {
            network: &network,
            providers: &providers,
            settings,
            opt,
            cache,
            times: Times::new(),
            notes: vec![],
        };
        let mut offers = Offers::new(&network, &providers, settings, opt);
        let cover = fit_cover(&mut tuner, &mut offers, excluded)?;
        let (edges, numbers) = tuner.edges(&cover.groups)?;
        tuner.build(&cover.groups)?;
        let commands = cover.groups.len();
        let mut choices = Vec::with_capacity(commands);
        for (done, group) in cover.groups.iter().enumerate() {
            report_progress(settings, done, commands)?;
            choices.push(tuner.choice(group, &numbers)?);
        }
        report_progress(settings, commands, commands)?;
        let chosen = choose(&choices, &edges);
        let notes = std::mem::take(&mut tuner.notes);
        let mut program = Self {
            commands: vec![],
            slots: vec![],
            outputs: vec![],
            refusals: cover.refusals,
            notes: [cover.notes, notes].concat(),
            compiled: cover.compiled,
            threads: settings.threads,
            excluded: settings.excluded_forms.clone(),
            opt: opt.clone(),
            times: Times::new(),
            apart: BTreeSet::new(),
            signature: IoSignature::host(&network),
            network: network.clone(),
            providers: providers.clone(),
        };
        let mut emit = Emit::new(&mut program);
        for ((group, choice), form) in cover.groups.into_iter().zip(choices).zip(chosen) {
            interrupt::poll()?;
            let timed = Some(choice.times[form]).filter(|&time| time < timing::REFERENCE_TIME as f64);
            emit.kernel(group, choice.forms[form].clone(), timed.unwrap_or_default())?;
        }
        emit.results()?;
        program.fetch_inputs_first();
        program.apart = slices::losing(&program, &mut tuner)?;
        program.times = tuner.times;
        Ok(program)
    }

    /// The same kernels in other forms, one for each of [`Program::kernels`], for arrays that lie there.
    ///
    /// # Errors
    /// If a tensor can't be brought to where it is read.
    pub fn in_forms(&self, forms: &[Form], signature: IoSignature) -> Result<Self> {
        let mut made = Self {
            network: self.network.clone(),
            signature,
            providers: self.providers.clone(),
            commands: vec![],
            slots: vec![],
            outputs: vec![],
            refusals: self.refusals.clone(),
            notes: self.notes.clone(),
            compiled: self.compiled,
            threads: self.threads,
            excluded: self.excluded.clone(),
            opt: self.opt.clone(),
            times: self.times.clone(),
            apart: self.apart.clone(),
        };
        let mut emit = Emit::new(&mut made);
        for (command, form) in self.kernels().zip(forms) {
            emit.kernel(self.group(command), form.clone(), command.time)?;
        }
        emit.results()?;
        made.fetch_inputs_first();
        Ok(made)
    }

    /// The operand of each slot at concrete shapes, each dense.
    ///
    /// # Errors
    /// As [`operand`].
    pub fn operands(&self, binding: &Binding) -> Result<Vec<Operand>> {
        let slots = self.slots.iter();
        slots
            .map(|slot| operand(&self.network, slot.tensor, slot.layout, binding))
            .collect()
    }

    /// The commands that run layers.
    pub fn kernels(&self) -> impl Iterator<Item = &Command> {
        self.commands.iter().filter(|command| !command.layers.is_empty())
    }

    /// The forms that the kernel of a command may take.
    pub fn forms(&self, command: &Command) -> Vec<Form> {
        let provider = &*self.providers[command.provider];
        let is_free = |form: &Form| {
            let mut excluded = self.excluded.iter();
            !excluded.any(|excluded| excluded.is(provider, &self.network, &command.layers, form))
        };
        command.kernel.forms().into_iter().filter(is_free).collect()
    }

    /// What the cover chose for a command.
    pub(super) fn group(&self, command: &Command) -> Group {
        let tensors = |slots: &[SlotId]| slots.iter().map(|&slot| self.slots[slot].tensor).collect();
        Group {
            provider: command.provider,
            candidate: Candidate {
                kernel: command.kernel.clone(),
                layers: command.layers.clone(),
                inputs: tensors(&command.inputs),
                outputs: tensors(&command.outputs),
            },
        }
    }

    /// The commands that compilers of others made.
    pub fn foreign(&self) -> impl Iterator<Item = &Command> {
        self.commands.iter().filter(|command| command.kernel.is_foreign())
    }

    /// The provider whose stream a command goes into: those that work in the memory of one device share the first one's, so that
    /// nobody waits between them and they are recorded together.
    pub fn lane(&self, command: usize) -> usize {
        let own = self.commands[command].provider;
        let space = self.providers[own].space();
        let shares = |p: &Arc<dyn Provider>| space != Space::Host && p.space() == space;
        self.providers.iter().position(shares).unwrap_or(own)
    }

    /// The provider that copies from and to a memory of a device, and whose stream its copies go into.
    ///
    /// # Errors
    /// If no provider works there.
    pub fn owner(&self, space: Space) -> Result<usize> {
        self.providers.iter().position(|p| p.space() == space).ok_or_else(|| {
            Error::invalid("an array lies in memory that no provider of this engine reaches")
                .got(format!("{space:?}"))
                .hint("copy it to the processor, or build the engine with device= the number of that GPU")
        })
    }

    /// As [`Program::owner`], the provider itself.
    ///
    /// # Errors
    /// As [`Program::owner`].
    pub fn provider_of(&self, space: Space) -> Result<&Arc<dyn Provider>> {
        self.owner(space).map(|number| &self.providers[number])
    }

    /// The memories in which it works.
    pub fn spaces(&self) -> Vec<Space> {
        let mut spaces: Vec<Space> = vec![];
        for space in self
            .commands
            .iter()
            .map(|command| self.providers[command.provider].space())
        {
            if !spaces.contains(&space) {
                spaces.push(space);
            }
        }
        spaces
    }

    /// Moves the copies of inputs to a device before everything else: they are at other addresses in each call, and what
    /// comes behind them can be recorded whole.
    fn fetch_inputs_first(&mut self) {
        let given: HashSet<SlotId> = self
            .commands
            .iter()
            .flat_map(|command| command.outputs.iter().copied())
            .collect();
        let fetches = |command: &Command| {
            let crosses = command
                .outputs
                .iter()
                .any(|&slot| self.slots[slot].space != Space::Host);
            command.layers.is_empty() && crosses && command.inputs.iter().all(|slot| !given.contains(slot))
        };
        self.commands.sort_by_key(|command| !fetches(command));
    }
}

/// A cover whose regions all run, none slower than the kernels that could take its place.
fn fit_cover(tuner: &mut Tuner, offers: &mut Offers, excluded: &ExcludedLayers) -> Result<Cover> {
    let mut excluded = excluded.clone();
    // What providers made for earlier covers lives as long as these do.
    let mut earlier: Vec<Cover> = vec![];
    loop {
        let mut made = offers.cover(&excluded)?;
        let unfit = unfit(tuner, offers, &made);
        if unfit.is_empty() {
            made.compiled += earlier.iter().map(|cover| cover.compiled).sum::<usize>();
            let notes = earlier.into_iter().flat_map(|cover| cover.notes);
            let news: Vec<_> = notes.filter(|note| !made.notes.contains(note)).collect();
            made.notes.extend(news);
            return Ok(made);
        }
        for (provider, layers) in unfit {
            excluded.entry(provider).or_default().extend(layers);
        }
        earlier.push(made);
    }
}

/// Reports how many kernels have been timed.
fn report_progress(settings: &Settings, done: usize, commands: usize) -> Result<()> {
    settings.watch.progress("Tuning kernels", done, commands)
}

/// A tensor at concrete shapes, dense.
///
/// # Errors
/// If a symbol has no value or a dimension is negative.
pub fn operand(network: &Network, tensor: TensorId, layout: Layout, binding: &Binding) -> Result<Operand> {
    let tensor = &network[tensor];
    let shape = tensor.ty.shape.iter().map(|dim| {
        let size = dim.eval(binding).map_err(|e| e.tensor(&tensor.name))?;
        usize::try_from(size).map_err(|_| {
            Error::shape("a dimension would be negative at these input shapes")
                .tensor(&tensor.name)
                .expected(tensor.ty.describe())
                .got(format!("{dim} = {size}"))
                .hint("the input is too small for this network")
        })
    });
    let shape = shape.collect::<Result<Vec<_>>>()?;
    let bytes = bytes_of(tensor.ty.dtype, &shape).map_err(|e| e.tensor(&tensor.name))?;
    /// Smaller ones are not worth asking for before they are needed.
    const LARGE: usize = 1 << 32;
    if bytes > LARGE {
        require(bytes).map_err(|e| e.tensor(&tensor.name))?;
    }
    Ok(Operand::dense(tensor.ty.dtype, shape, layout))
}
