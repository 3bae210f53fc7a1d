//! The forms of kernels at the shapes to optimise for, with their times.

use crate::device::Space;
use crate::error::{Error, ErrorKind, Result};
use crate::network::dim::Binding;
use crate::network::{Network, TensorId};
use crate::plan::choose::{Choice, Edge};
use crate::plan::cover::Group;
use crate::plan::effort::{self, Effort};
use crate::plan::layout::{Layout, Operand};
use crate::plan::program::operand;
use crate::plan::timing::{self, Times, TimingCache};
use crate::plan::{Alias, BuildJob, Form, Kernel, Provider, Request, Settings, Tier, build_jobs, placement};
use crate::threads::collect_on_threads;
use std::collections::HashMap;
use std::sync::Arc;

/// Times the forms of kernels, or guesses.
pub(super) struct Tuner<'a> {
    pub network: &'a Network,
    pub providers: &'a [Arc<dyn Provider>],
    pub settings: &'a Settings,
    pub opt: &'a Binding,
    pub cache: &'a TimingCache,
    /// What decided.
    pub times: Times,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// A form of a group, with its operands.
type Timed<'a> = (&'a Group, Form, Vec<Operand>, Vec<Operand>);

/// Nanoseconds that a kernel is taken to need that must not be run to be timed: as much as it costs to call it.
const UNTIMED: u64 = 2_000;

impl Tuner<'_> {
    fn operand(&self, tensor: TensorId, layout: Layout) -> Result<Operand> {
        operand(self.network, tensor, layout, self.opt)
    }

    /// The tensors between groups, with the number of each.
    ///
    /// # Errors
    /// As [`operand`].
    pub fn edges(&self, groups: &[Group]) -> Result<(Vec<Edge>, HashMap<TensorId, usize>)> {
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
                bitcast: Layout::Plain.is_bitcast(Layout::ChannelsLast, &self.network[tensor].ty.shape),
            });
        }
        Ok((edges, numbers))
    }

    /// Runs the jobs of all forms that will be timed in parallel, before the first is.
    ///
    /// # Errors
    /// As [`operand`], and if the caller ends the work.
    pub fn build(&self, groups: &[Group]) -> Result<()> {
        let mut timed = vec![];
        for group in groups {
            timed.extend(self.timed(group)?);
        }
        // What libraries propose for a form is asked in parallel, too. A form that does not fit is told when it is timed.
        let jobs = collect_on_threads(timed.len(), |at| {
            let (group, form, inputs, outputs) = &timed[at];
            self.jobs(group, &self.request(form, inputs, outputs))
                .unwrap_or_default()
        });
        build_jobs::run(jobs?.into_iter().flatten());
        Ok(())
    }

    fn jobs(&self, group: &Group, request: &Request) -> Result<Vec<BuildJob>> {
        let mut jobs = vec![];
        self.providers[group.provider].run(self.settings.threads, &mut || {
            let prepared = group.candidate.kernel.prepare(request)?;
            if prepared.tier != Tier::Reference {
                jobs = prepared.jobs;
            }
            Ok(())
        })?;
        Ok(jobs)
    }

    /// The forms of a group that will be timed, with operands at the shapes to optimise for. The processor's kernels are left
    /// out: they have no jobs.
    fn timed<'b>(&self, group: &'b Group) -> Result<Vec<Timed<'b>>> {
        let (forms, mut timed) = (group.candidate.kernel.forms(), vec![]);
        if self.providers[group.provider].space() == Space::Host || !group.candidate.kernel.is_timed() {
            return Ok(timed);
        }
        for (number, form) in forms.iter().enumerate() {
            if Effort::of(self.settings, form, &forms[..number]) != Effort::Time || self.is_excluded(group, form) {
                continue;
            }
            let (inputs, outputs) = self.operands(group, form)?;
            let kernel = &*group.candidate.kernel;
            let known = || {
                let key = self.key(group.provider, kernel, form, &inputs, &outputs);
                self.cache.known(&key).is_some()
            };
            if !outputs.iter().all(Operand::is_empty) && !known() {
                timed.push((group, form.clone(), inputs, outputs));
            }
        }
        Ok(timed)
    }

    /// Makes a kernel of somebody else's ready, of which only that tells whether it runs.
    ///
    /// # Errors
    /// If it does not.
    pub fn try_out(&self, group: &Group) -> Result<()> {
        let kernel = &*group.candidate.kernel;
        for form in kernel.forms().iter().filter(|_| kernel.is_foreign()) {
            let (inputs, outputs) = self.operands(group, form)?;
            let request = self.request(form, &inputs, &outputs);
            timing::unless_reference(&*self.providers[group.provider], kernel, &request, |prepared| {
                prepared.finish().map(|_| 0)
            })?;
        }
        Ok(())
    }

    /// The forms of a group that run at the shapes to optimise for, with their times.
    ///
    /// # Errors
    /// If there is none; names the layers.
    pub fn choice(&mut self, group: &Group, numbers: &HashMap<TensorId, usize>) -> Result<Choice> {
        let candidate = &group.candidate;
        let (mut forms, mut times) = (vec![], vec![]);
        let (mut fit, mut failure) = (vec![], None);
        let mut base = 0;
        for (number, form) in candidate.kernel.forms().into_iter().enumerate() {
            if self.is_excluded(group, &form) {
                continue;
            }
            let made = match Effort::of(self.settings, &form, &fit) {
                Effort::Time if !candidate.kernel.is_timed() => self.guess(group, number, &form, UNTIMED),
                Effort::Time => self.time(group, number, &form),
                Effort::Guess => self.guess(group, number, &form, base),
                Effort::Skip => continue,
            };
            match made {
                Ok(time) => {
                    if time < timing::REFERENCE_TIME {
                        base = if fit.is_empty() { time } else { base };
                        fit.push(form.clone());
                    }
                    times.push(time as f64);
                    forms.push(form);
                }
                // Later forms tell less: there may just be fewer of them at these shapes.
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        self.within_workspace(group, &mut forms, &mut times)?;
        if forms.is_empty() {
            let error = failure.unwrap_or_else(|| Error::internal("every form of a kernel was found wrong"));
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

    fn is_excluded(&self, group: &Group, form: &Form) -> bool {
        let (provider, layers) = (&*self.providers[group.provider], &group.candidate.layers);
        let mut excluded = self.settings.excluded_forms.iter();
        excluded.any(|excluded| excluded.is(provider, self.network, layers, form))
    }

    /// Leaves out the forms that need more scratch memory than they may use; where all do, keeps the one that needs least,
    /// with a note.
    fn within_workspace(&mut self, group: &Group, forms: &mut Vec<Form>, times: &mut Vec<f64>) -> Result<()> {
        // A processor's kernels take what they need.
        let bounded = self.providers[group.provider].space() != Space::Host && !forms.is_empty();
        let Some(limit) = self.settings.workspace.filter(|_| bounded) else {
            return Ok(());
        };
        let needs = forms.iter().map(|form| self.workspace(group, form));
        let needs: Vec<usize> = needs.collect::<Result<_>>()?;
        let least = needs.iter().copied().min().unwrap_or(0);
        if least > limit {
            let layers: Vec<_> = group.candidate.layers.iter().map(|&l| &*self.network[l].name).collect();
            self.notes.push(format!(
                "{} needs {least} bytes of workspace at least, more than the {limit} of workspace_size",
                layers.join(" + ")
            ));
        }
        let fits = |number: usize| needs[number] <= limit.max(least);
        let kept: Vec<usize> = (0..forms.len()).filter(|&number| fits(number)).collect();
        *times = kept.iter().map(|&number| times[number]).collect();
        *forms = kept.iter().map(|&number| forms[number].clone()).collect();
        Ok(())
    }

    /// Bytes of scratch memory of a form at the shapes to optimise for; none where it can't be had there.
    fn workspace(&self, group: &Group, form: &Form) -> Result<usize> {
        let (inputs, outputs) = self.operands(group, form)?;
        if outputs.iter().all(Operand::is_empty) {
            return Ok(0);
        }
        let (provider, kernel) = (&self.providers[group.provider], &group.candidate.kernel);
        let mut bytes = 0;
        let asked = provider.run(self.settings.threads, &mut || {
            bytes = kernel
                .prepare(&self.request(form, &inputs, &outputs))?
                .finish()?
                .workspace;
            Ok(())
        });
        // A form that does not fit these shapes was kept for others.
        Ok(asked.map_or(0, |()| bytes))
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
        let alias = group.candidate.kernel.alias(form);
        if alias == Alias::None {
            return Ok(false);
        }
        let (inputs, outputs) = self.operands(group, form)?;
        Ok(placement::is_free(&alias, &inputs, &outputs))
    }

    fn request<'b>(&'b self, form: &'b Form, inputs: &'b [Operand], outputs: &'b [Operand]) -> Request<'b> {
        Request {
            form,
            inputs,
            outputs,
            binding: self.opt,
            opt: self.opt,
            threads: self.settings.threads,
        }
    }

    /// What the time of a form is remembered under: one that is known, or that to measure.
    fn key(
        &self,
        provider: usize,
        kernel: &dyn Kernel,
        form: &Form,
        inputs: &[Operand],
        outputs: &[Operand],
    ) -> String {
        let signature = self.providers[provider].signature(self.settings);
        let key = timing::key(&signature, kernel, form, inputs, outputs);
        let rounds = effort::rounds(self.settings);
        let known = effort::keys(&key, rounds).find(|key| self.cache.known(key).is_some());
        known.or_else(|| effort::keys(&key, rounds).last()).unwrap_or(key)
    }

    /// Nanoseconds of a form, the `number`th of its kernel.
    fn time(&mut self, group: &Group, number: usize, form: &Form) -> Result<u64> {
        let (inputs, outputs) = self.operands(group, form)?;
        if outputs.iter().all(Operand::is_empty) {
            return self.guess(group, number, form, 0);
        }
        self.time_of(group.provider, &*group.candidate.kernel, form, &inputs, &outputs)
    }

    /// Nanoseconds of a kernel of a provider in a form, on operands that lie so.
    ///
    /// # Errors
    /// If the form can't serve them.
    pub fn time_of(
        &mut self,
        provider: usize,
        kernel: &dyn Kernel,
        form: &Form,
        inputs: &[Operand],
        outputs: &[Operand],
    ) -> Result<u64> {
        let key = self.key(provider, kernel, form, inputs, outputs);
        let request = self.request(form, inputs, outputs);
        let rounds = effort::rounds(self.settings);
        let measure = || timing::measure(&*self.providers[provider], kernel, &request, rounds);
        let time = self.cache.time(&key, measure)?;
        self.times.insert(key, time);
        Ok(time)
    }

    /// Nanoseconds of a form that is not timed: earlier ones are faster by a reorder each, from the time of the first one on.
    fn guess(&self, group: &Group, number: usize, form: &Form, first: u64) -> Result<u64> {
        let (inputs, outputs) = self.operands(group, form)?;
        let provider = &*self.providers[group.provider];
        let request = self.request(form, &inputs, &outputs);
        let guess = first + number as u64 * provider.reorder_time(0.0) as u64;
        if outputs.iter().all(Operand::is_empty) {
            return Ok(guess);
        }
        match timing::unless_reference(provider, &*group.candidate.kernel, &request, |_| Ok(guess)) {
            // Where nothing is timed, a form that does not fit these shapes may fit those that come; others go first.
            Err(error) if self.settings.optimization_level == 0 && error.kind() != ErrorKind::Interrupted => {
                Ok(timing::REFERENCE_TIME)
            }
            found => found,
        }
    }
}
