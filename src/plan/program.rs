//! The program: kernels in order, each in its form, with reorders between them. Made once, at build.

use crate::error::Result;
use crate::network::array::{Buffer, bytes_of};
use crate::network::dim::Binding;
use crate::network::{LayerId, Network, Source, TensorId};
use crate::plan::choose::{Choice, Edge, choose};
use crate::plan::cover::{Group, cover};
use crate::plan::layout::{Layout, Operand};
use crate::plan::timing::{self, Times, TimingCache};
use crate::plan::{Alias, Form, Kernel, Provider, Refusal, Request, Settings, place};
use std::collections::HashMap;
use std::sync::Arc;

/// Names a slot of one program.
pub type SlotId = usize;

/// A tensor in one layout.
pub struct Slot {
    /// The tensor.
    pub tensor: TensorId,
    /// Its layout.
    pub layout: Layout,
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
    /// The layers that it runs; none for a reorder.
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
}

/// Bytes that a reorder moves in a nanosecond; what it costs besides.
const REORDER_BANDWIDTH: f64 = 6.0;
const REORDER_LAUNCH: f64 = 1_500.0;

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
        };
        let mut emit = Emit {
            program: &mut program,
            slots: HashMap::new(),
            home: HashMap::new(),
        };
        for ((group, choice), form) in cover.groups.into_iter().zip(choices).zip(chosen) {
            let timed = Some(choice.times[form]).filter(|&time| time < timing::NAIVE as f64);
            emit.kernel(group, choice.forms[form].clone(), timed.unwrap_or_default());
        }
        emit.results();
        Ok(program)
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
        for &tensor in groups
            .iter()
            .flat_map(|g| g.candidate.inputs.iter().chain(&g.candidate.outputs))
        {
            if numbers.contains_key(&tensor) {
                continue;
            }
            let bytes = self.operand(tensor, Layout::Plain)?.bytes() as f64;
            numbers.insert(tensor, edges.len());
            edges.push(Edge {
                reorder: REORDER_LAUNCH + 2.0 * bytes / REORDER_BANDWIDTH,
                given: self.network.producer(tensor).is_none(),
                result: results.contains(&tensor),
            });
        }
        Ok((edges, numbers))
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
                Err(error) => failure = Some(error),
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

    /// Nanoseconds of a form, the `number`th of its kernel; without timing, the guess that earlier ones are faster by
    /// a reorder.
    fn time(&mut self, group: &Group, number: usize, form: &Form) -> Result<u64> {
        let candidate = &group.candidate;
        let (inputs, outputs) = self.operands(group, form)?;
        let provider = &*self.providers[group.provider];
        let request = Request {
            form,
            inputs: &inputs,
            outputs: &outputs,
            binding: self.opt,
            threads: self.settings.threads,
        };
        let guess = number as u64 * REORDER_LAUNCH as u64;
        if outputs.iter().all(Operand::is_empty) {
            return Ok(guess);
        }
        if self.settings.optimization_level == 0 {
            // A form that does not fit these shapes may fit those that come.
            let found = timing::unless_naive(provider, &*candidate.kernel, &request, |_| Ok(guess));
            return Ok(found.unwrap_or(guess));
        }
        let key = timing::key(
            &provider.signature(self.settings),
            &*candidate.kernel,
            form,
            &inputs,
            &outputs,
        );
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
            crate::error::Error::shape("a dimension would be negative at these input shapes")
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
        Buffer::try_zeroed(bytes).map_err(|e| e.tensor(&tensor.name))?;
    }
    Ok(Operand::dense(tensor.ty.dtype, shape, layout))
}

/// Lays the steps, with reorders where a reader wants another layout.
struct Emit<'a> {
    program: &'a mut Program,
    slots: HashMap<(TensorId, Layout), SlotId>,
    /// The layout in which a tensor is computed.
    home: HashMap<TensorId, (Layout, usize)>,
}

impl Emit<'_> {
    fn kernel(&mut self, group: Group, form: Form, time: f64) {
        let candidate = group.candidate;
        let inputs = candidate
            .inputs
            .iter()
            .zip(&form.inputs)
            .map(|(&t, &l)| self.read(t, l, group.provider))
            .collect();
        let outputs = candidate.outputs.iter().zip(&form.outputs).map(|(&t, &l)| {
            self.home.insert(t, (l, group.provider));
            self.slot(t, l)
        });
        let outputs = outputs.collect();
        let (kernel, layers, provider) = (candidate.kernel, candidate.layers, group.provider);
        self.program.steps.push(Step {
            provider,
            kernel,
            form,
            inputs,
            outputs,
            layers,
            time,
        });
    }

    fn slot(&mut self, tensor: TensorId, layout: Layout) -> SlotId {
        let slots = &mut self.program.slots;
        *self.slots.entry((tensor, layout)).or_insert_with(|| {
            slots.push(Slot { tensor, layout });
            slots.len() - 1
        })
    }

    /// The slot of a tensor in a layout, reordered if it is not there yet.
    fn read(&mut self, tensor: TensorId, layout: Layout, reader: usize) -> SlotId {
        if let Some(&slot) = self.slots.get(&(tensor, layout)) {
            return slot;
        }
        let (from, provider) = self.home.get(&tensor).copied().unwrap_or((Layout::Plain, reader));
        let source = self.slot(tensor, from);
        if from == layout {
            return source;
        }
        let target = self.slot(tensor, layout);
        self.copy(tensor, provider, (source, from), (target, layout));
        target
    }

    fn copy(&mut self, tensor: TensorId, provider: usize, from: (SlotId, Layout), to: (SlotId, Layout)) {
        let ty = &self.program.network[tensor].ty;
        let kernel = self.program.providers[provider].reorder(from.1, to.1, ty);
        let form = Form {
            tactic: 0,
            inputs: vec![from.1],
            outputs: vec![to.1],
        };
        let step = Step {
            provider,
            kernel,
            form,
            inputs: vec![from.0],
            outputs: vec![to.0],
            layers: vec![],
            time: 0.0,
        };
        self.program.steps.push(step);
    }

    /// Results leave in the plain layout, each from a slot of its own that a step writes.
    fn results(&mut self) {
        let network = self.program.network.clone();
        for output in network.outputs() {
            let tensor = output.tensor;
            let provider = self.home.get(&tensor).map_or(0, |(_, provider)| *provider);
            let mut slot = self.read(tensor, Layout::Plain, provider);
            let computed = matches!(network[tensor].source, Source::Layer(..));
            if !computed || self.program.outputs.contains(&slot) {
                self.program.slots.push(Slot {
                    tensor,
                    layout: Layout::Plain,
                });
                let own = self.program.slots.len() - 1;
                self.copy(tensor, provider, (slot, Layout::Plain), (own, Layout::Plain));
                slot = own;
            }
            self.program.outputs.push(slot);
        }
    }
}
