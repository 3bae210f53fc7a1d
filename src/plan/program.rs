//! The program: kernels in order, each in its form, with reorders between them. Made once, at build.

use crate::error::{Error, Result};
use crate::network::array::{bytes_of, require};
use crate::network::dim::Binding;
use crate::network::{LayerId, Network, Source, TensorId};
use crate::plan::choose::{Choice, Edge, choose};
use crate::plan::cover::{Group, cover};
use crate::plan::layout::{Layout, Operand, Space};
use crate::plan::timing::{self, Times, TimingCache};
use crate::plan::{Alias, Form, Kernel, Memory, Provider, Refusal, Request, Settings, place};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, Weak};

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
pub struct Step {
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

/// Kernels in order, with everything that running them at some shapes needs.
pub struct Program {
    /// The simplified network.
    pub network: Arc<Network>,
    /// The providers, as the steps number them.
    pub providers: Vec<Arc<dyn Provider>>,
    /// The steps.
    pub steps: Vec<Step>,
    /// The slots.
    pub slots: Vec<Slot>,
    /// The slot of each result; no two share one.
    pub outputs: Vec<SlotId>,
    /// What providers did not take.
    pub refusals: Vec<Refusal>,
    /// Threads of a CPU.
    pub threads: usize,
    /// The times that decided, for the engine file.
    pub times: Times,
    /// Constants that were brought to another layout or memory: all instances share them.
    pub(super) kept: Mutex<HashMap<SlotId, Weak<dyn Memory>>>,
    /// Why calls are slower than they could be, once one found that.
    pub setback: OnceLock<String>,
}

impl Program {
    /// Chooses kernels and forms for a network that the passes are done with, at the shapes of `opt`.
    ///
    /// # Errors
    /// If some layer runs nowhere, or a kernel can't be timed at `opt`.
    pub fn build(
        network: Arc<Network>,
        providers: Vec<Arc<dyn Provider>>,
        settings: &Settings,
        opt: &Binding,
        cache: &TimingCache,
    ) -> Result<Self> {
        let cover = cover(&network, &providers, settings)?;
        let mut tuner = Tuner {
            network: &network,
            providers: &providers,
            settings,
            opt,
            cache,
            times: Times::new(),
        };
        let (edges, numbers) = tuner.edges(&cover.groups)?;
        cover.groups.iter().try_for_each(|group| tuner.announce(group))?;
        let choices = cover
            .groups
            .iter()
            .map(|group| tuner.choice(group, &numbers))
            .collect::<Result<Vec<_>>>()?;
        let chosen = choose(&choices, &edges);
        let times = tuner.times;
        let mut program = Self {
            steps: vec![],
            slots: vec![],
            outputs: vec![],
            refusals: cover.refusals,
            threads: settings.threads,
            times,
            network: network.clone(),
            providers,
            kept: Mutex::default(),
            setback: OnceLock::new(),
        };
        let mut emit = Emit {
            program: &mut program,
            slots: HashMap::new(),
            home: HashMap::new(),
        };
        for ((group, choice), form) in cover.groups.into_iter().zip(choices).zip(chosen) {
            let timed = Some(choice.times[form]).filter(|&time| time < timing::NAIVE as f64);
            emit.kernel(group, choice.forms[form].clone(), timed.unwrap_or_default())?;
        }
        emit.results()?;
        program.fetch_inputs_first();
        Ok(program)
    }

    /// The memories in which it works.
    pub fn spaces(&self) -> Vec<Space> {
        let mut spaces: Vec<Space> = vec![];
        for space in self.steps.iter().map(|step| self.providers[step.provider].space()) {
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
            .steps
            .iter()
            .flat_map(|step| step.outputs.iter().copied())
            .collect();
        let fetches = |step: &Step| {
            let crosses = step.outputs.iter().any(|&slot| self.slots[slot].space != Space::Host);
            step.layers.is_empty() && crosses && step.inputs.iter().all(|slot| !given.contains(slot))
        };
        self.steps.sort_by_key(|step| !fetches(step));
    }
}

struct Tuner<'a> {
    network: &'a Network,
    providers: &'a [Arc<dyn Provider>],
    settings: &'a Settings,
    opt: &'a Binding,
    cache: &'a TimingCache,
    times: Times,
}

impl Tuner<'_> {
    fn operand(&self, tensor: TensorId, layout: Layout) -> Result<Operand> {
        operand(self.network, tensor, layout, self.opt)
    }

    fn edges(&self, groups: &[Group]) -> Result<(Vec<Edge>, HashMap<TensorId, usize>)> {
        let mut edges = vec![];
        let mut numbers = HashMap::new();
        let results: Vec<_> = self.network.outputs().iter().map(|o| o.tensor).collect();
        let touched = |g: &Group| {
            let tensors = g.candidate.inputs.iter().chain(&g.candidate.outputs);
            tensors.map(|&t| (g.provider, t)).collect::<Vec<_>>()
        };
        for (provider, tensor) in groups.iter().flat_map(touched) {
            if numbers.contains_key(&tensor) {
                continue;
            }
            let bytes = self.operand(tensor, Layout::Plain)?.bytes() as f64;
            numbers.insert(tensor, edges.len());
            edges.push(Edge {
                reorder: self.providers[provider].reorder_time(bytes),
                given: self.network.producer(tensor).is_none(),
                result: results.contains(&tensor),
            });
        }
        Ok((edges, numbers))
    }

    /// Tells a kernel what it will be asked.
    fn announce(&self, group: &Group) -> Result<()> {
        for form in group.candidate.kernel.forms() {
            let (inputs, outputs) = self.operands(group, &form)?;
            let unknown = || self.cache.known(&self.key(group, &form, &inputs, &outputs)).is_none();
            let empty = outputs.iter().all(Operand::is_empty);
            let timed = !empty && self.settings.optimization_level > 0 && unknown();
            group
                .candidate
                .kernel
                .expect(&self.request(&form, &inputs, &outputs), timed);
        }
        Ok(())
    }

    /// The forms of a group that run at the shapes to optimise for, with their times.
    fn choice(&mut self, group: &Group, numbers: &HashMap<TensorId, usize>) -> Result<Choice> {
        let candidate = &group.candidate;
        let (mut forms, mut times) = (vec![], vec![]);
        let mut failure = None;
        for (number, form) in candidate.kernel.forms().into_iter().enumerate() {
            match self.time(group, number, &form) {
                Ok(time) => {
                    times.push(time as f64);
                    forms.push(form);
                }
                // Later forms tell less: there may just be fewer of them at these shapes.
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        if let (true, Some(error)) = (forms.is_empty(), failure) {
            let names: Vec<_> = candidate.layers.iter().map(|&l| self.network[l].name.clone()).collect();
            return Err(error.layer(names.join(" + ")));
        }
        for (form, time) in forms.iter().zip(&mut times) {
            if self.needs_no_copy(group, form)? {
                *time = 0.0;
            }
        }
        let number = |tensors: &[TensorId]| tensors.iter().map(|t| numbers[t]).collect();
        Ok(Choice {
            forms,
            times,
            inputs: number(&candidate.inputs),
            outputs: number(&candidate.outputs),
        })
    }

    /// The operands of a group at the shapes to optimise for.
    fn operands(&self, group: &Group, form: &Form) -> Result<(Vec<Operand>, Vec<Operand>)> {
        let operands = |tensors: &[TensorId], layouts: &[Layout]| {
            tensors
                .iter()
                .zip(layouts)
                .map(|(&t, &l)| self.operand(t, l))
                .collect::<Result<Vec<_>>>()
        };
        let inputs = operands(&group.candidate.inputs, &form.inputs)?;
        Ok((inputs, operands(&group.candidate.outputs, &form.outputs)?))
    }

    /// Whether a group only moves data between operands that can lie in one another.
    fn needs_no_copy(&self, group: &Group, form: &Form) -> Result<bool> {
        let alias = group.candidate.kernel.alias();
        if alias == Alias::None {
            return Ok(false);
        }
        let (inputs, outputs) = self.operands(group, form)?;
        Ok(place::is_free(&alias, &inputs, &outputs))
    }

    fn request<'b>(&'b self, form: &'b Form, inputs: &'b [Operand], outputs: &'b [Operand]) -> Request<'b> {
        Request {
            form,
            inputs,
            outputs,
            binding: self.opt,
            threads: self.settings.threads,
        }
    }

    /// What the time of a form is remembered under.
    fn key(&self, group: &Group, form: &Form, inputs: &[Operand], outputs: &[Operand]) -> String {
        let signature = self.providers[group.provider].signature(self.settings);
        timing::key(&signature, &*group.candidate.kernel, form, inputs, outputs)
    }

    /// Nanoseconds of a form, the `number`th of its kernel; without timing, the guess that earlier ones are faster by
    /// a reorder.
    fn time(&mut self, group: &Group, number: usize, form: &Form) -> Result<u64> {
        let candidate = &group.candidate;
        let (inputs, outputs) = self.operands(group, form)?;
        let provider = &*self.providers[group.provider];
        let request = self.request(form, &inputs, &outputs);
        let guess = number as u64 * provider.reorder_time(0.0) as u64;
        if outputs.iter().all(Operand::is_empty) {
            return Ok(guess);
        }
        if self.settings.optimization_level == 0 {
            // A form that does not fit these shapes may fit those that come.
            let found = timing::unless_naive(provider, &*candidate.kernel, &request, |_| Ok(guess));
            return Ok(found.unwrap_or(guess));
        }
        let key = self.key(group, form, &inputs, &outputs);
        let time = self
            .cache
            .time(&key, || timing::measure(provider, &*candidate.kernel, &request))?;
        self.times.insert(key, time);
        Ok(time)
    }
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

/// Lays the steps, with reorders where a reader wants another layout, and transfers where it reads other memory.
struct Emit<'a> {
    program: &'a mut Program,
    slots: HashMap<Slot, SlotId>,
    /// The layout in which a tensor is computed, and by whom.
    home: HashMap<TensorId, (Layout, usize)>,
}

impl Emit<'_> {
    fn kernel(&mut self, group: Group, form: Form, time: f64) -> Result<()> {
        let candidate = group.candidate;
        let inputs = candidate.inputs.iter().zip(&form.inputs);
        let inputs = inputs.map(|(&t, &l)| self.read(t, l, group.provider));
        let inputs = inputs.collect::<Result<_>>()?;
        let space = self.program.providers[group.provider].space();
        let outputs = candidate.outputs.iter().zip(&form.outputs).map(|(&tensor, &layout)| {
            self.home.insert(tensor, (layout, group.provider));
            self.slot(Slot { tensor, layout, space })
        });
        let outputs = outputs.collect();
        self.program.steps.push(Step {
            provider: group.provider,
            kernel: candidate.kernel,
            form,
            inputs,
            outputs,
            layers: candidate.layers,
            time,
        });
        Ok(())
    }

    fn slot(&mut self, slot: Slot) -> SlotId {
        let slots = &mut self.program.slots;
        *self.slots.entry(slot).or_insert_with(|| {
            slots.push(slot);
            slots.len() - 1
        })
    }

    /// The slot of a tensor in a layout, for a reader: moved and reordered if it is not there yet.
    fn read(&mut self, tensor: TensorId, layout: Layout, reader: usize) -> Result<SlotId> {
        let space = self.program.providers[reader].space();
        let wanted = Slot { tensor, layout, space };
        if let Some(&slot) = self.slots.get(&wanted) {
            return Ok(slot);
        }
        let home = self.home.get(&tensor).copied();
        let origin = home.map_or(Space::Host, |(_, provider)| self.program.providers[provider].space());
        let (from, provider) = if origin == space {
            home.unwrap_or((Layout::Plain, reader))
        } else {
            self.fetch(tensor, origin, home, reader)?;
            (Layout::Plain, reader)
        };
        let source = self.slot(Slot { layout: from, ..wanted });
        if from == layout {
            return Ok(source);
        }
        let target = self.slot(wanted);
        let kernel = self.program.providers[provider].reorder(from, layout, &self.program.network[tensor].ty);
        self.copy(kernel, provider, source, target);
        Ok(target)
    }

    /// Brings a tensor to the memory of a reader, in the plain layout.
    fn fetch(&mut self, tensor: TensorId, origin: Space, home: Option<(Layout, usize)>, reader: usize) -> Result<()> {
        let layout = Layout::Plain;
        let space = self.program.providers[reader].space();
        let source = match home {
            Some((_, provider)) => self.read(tensor, layout, provider)?,
            None => self.slot(Slot {
                tensor,
                layout,
                space: origin,
            }),
        };
        if origin != Space::Host && space != Space::Host {
            return Err(Error::internal("a tensor would go from one device to another"));
        }
        let device = if space == Space::Host {
            home.map_or(reader, |(_, provider)| provider)
        } else {
            reader
        };
        let kernel = self.program.providers[device].transfer();
        let kernel = kernel.ok_or_else(|| Error::internal("a provider with memory of its own copies nothing there"))?;
        let target = self.slot(Slot { tensor, layout, space });
        self.copy(kernel, device, source, target);
        Ok(())
    }

    fn copy(&mut self, kernel: Arc<dyn Kernel>, provider: usize, from: SlotId, to: SlotId) {
        let form = Form {
            tactic: 0,
            inputs: vec![self.program.slots[from].layout],
            outputs: vec![self.program.slots[to].layout],
        };
        self.program.steps.push(Step {
            provider,
            kernel,
            form,
            inputs: vec![from],
            outputs: vec![to],
            layers: vec![],
            time: 0.0,
        });
    }

    /// Results leave in the plain layout in the processor's memory, each from a slot of its own that a step writes.
    fn results(&mut self) -> Result<()> {
        let network = self.program.network.clone();
        let host = self.program.providers.iter().position(|p| p.space() == Space::Host);
        let host = host.ok_or_else(|| Error::internal("no provider runs on the processor"))?;
        for output in network.outputs() {
            let tensor = output.tensor;
            let ours = |&(_, provider): &(Layout, usize)| self.program.providers[provider].space() == Space::Host;
            let reader = self
                .home
                .get(&tensor)
                .filter(|home| ours(home))
                .map_or(host, |(_, provider)| *provider);
            let mut slot = self.read(tensor, Layout::Plain, reader)?;
            let computed = matches!(network[tensor].source, Source::Layer(..));
            if !computed || self.program.outputs.contains(&slot) {
                self.program.slots.push(self.program.slots[slot]);
                let own = self.program.slots.len() - 1;
                let kernel = self.program.providers[reader].reorder(Layout::Plain, Layout::Plain, &network[tensor].ty);
                self.copy(kernel, reader, slot, own);
                slot = own;
            }
            self.program.outputs.push(slot);
        }
        Ok(())
    }
}
