//! Kernels of one layer each, with what follows it, and several of them that read the same: what a launch for all has in common with one
//! after another.

use crate::error::Result;
use crate::network::{LayerId, TensorId};
use crate::plan::layout::Layout;
use crate::plan::{Call, Candidate, Form, Instance, Kernel, Launcher, Prepared, Request, Tactic, Tier};
use std::sync::Arc;

/// How tactics of kernels one after another are called, around that of each.
pub const IN_TURN: &str = "in turn";

/// A kernel for one layer, and what it is for.
pub struct Single<K> {
    pub kernel: K,
    pub layers: Vec<LayerId>,
    pub inputs: Vec<TensorId>,
    pub outputs: Vec<TensorId>,
}

impl<K: Kernel + 'static> Single<K> {
    /// It as a candidate.
    pub fn candidate(self) -> Candidate {
        Candidate {
            kernel: Arc::new(self.kernel),
            layers: self.layers,
            inputs: self.inputs,
            outputs: self.outputs,
        }
    }
}

/// Kernels of one result, each with the inputs of all of them that it reads.
pub struct Singles<K>(pub Vec<(K, Vec<usize>)>);

impl<K: Kernel> Singles<K> {
    /// The kernels.
    pub fn kernels(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(kernel, _)| kernel)
    }

    /// The first one, of which there is one for sure.
    pub fn first(&self) -> &K {
        &self.0[0].0
    }

    /// The name of a kernel for all of them.
    pub fn name(&self) -> String {
        self.kernels().map(Kernel::name).collect::<Vec<_>>().join("+")
    }

    /// Its identity: the kernels are alike.
    pub fn identity(&self) -> String {
        format!("{} of {}", self.0.len(), self.first().identity())
    }

    /// One after another, each in this tactic.
    ///
    /// # Errors
    /// If one of them can't be prepared.
    pub fn in_turn(&self, request: &Request, tactic: &Tactic) -> Result<Prepared> {
        let part = |((kernel, slots), output): (&(K, Vec<usize>), usize)| {
            let inputs: Vec<_> = slots.iter().map(|&slot| request.inputs[slot].clone()).collect();
            let form = Form {
                tactic: tactic.clone(),
                inputs: vec![Layout::Plain; inputs.len()],
                outputs: vec![Layout::Plain],
            };
            let prepared = kernel.prepare(&Request {
                form: &form,
                inputs: &inputs,
                outputs: &request.outputs[output..=output],
                ..*request
            })?;
            Ok((prepared, slots.clone()))
        };
        let mut parts = self.0.iter().zip(0..).map(part).collect::<Result<Vec<_>>>()?;
        let reference = parts.iter().any(|(part, _)| part.tier == Tier::Reference);
        let tier = if reference { Tier::Reference } else { Tier::Specialised };
        let jobs = parts
            .iter_mut()
            .flat_map(|(part, _)| std::mem::take(&mut part.jobs))
            .collect();
        let finish = move || {
            let parts = parts.into_iter().map(|(part, slots)| Ok((part.finish()?, slots)));
            parts.collect::<Result<_>>().map(|parts| InTurn(parts).instance())
        };
        Ok(Prepared::deferred(jobs, finish).with_tier(tier))
    }
}

/// Kernels one after another, each with the inputs that it reads.
struct InTurn(Vec<(Instance, Vec<usize>)>);

impl InTurn {
    fn instance(self) -> Instance {
        let first = self.0.first().map_or("", |(instance, _)| &instance.implementation);
        let how = format!("{first}, {} times", self.0.len());
        let each = self.0.iter().map(|(instance, _)| instance.workspace);
        let (workspace, wait_inputs) = (each.max().unwrap_or(0), self.wait_inputs());
        Instance::new(how, self)
            .with_workspace(workspace)
            .with_wait_inputs(wait_inputs)
    }

    /// The kernels read the inputs in orders of their own.
    fn wait_inputs(&self) -> usize {
        let waited = |input: &usize| {
            self.0.iter().all(|(instance, slots)| {
                let read = slots.iter().position(|slot| slot == input);
                read.is_none_or(|at| at < instance.pdl.wait_inputs)
            })
        };
        let slots = self.0.iter().flat_map(|(_, slots)| slots);
        let count = slots.max().map_or(0, |last| last + 1);
        (0..count).take_while(waited).count()
    }
}

impl Launcher for InTurn {
    fn launch(&mut self, call: &Call) -> Result<()> {
        for ((instance, slots), &output) in self.0.iter_mut().zip(call.outputs) {
            let inputs: Vec<*const u8> = slots.iter().map(|&slot| call.inputs[slot]).collect();
            instance.launch(&Call {
                inputs: &inputs,
                outputs: &[output],
                workspace: call.workspace,
                stream: call.stream,
            })?;
        }
        Ok(())
    }
}
