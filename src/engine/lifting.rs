//! Which layers of a network that loses too much in a lower precision have to stay in full precision: as few as will do.
//!
//! What a group of layers loses is measured by lowering it alone, with everything rounded that may be: what a kernel rounds depends
//! on what is fused. Roundings are independent, so the squares of what groups lose add up to that of all; groups that lose
//! most are halved until single layers are left, whose squares say which have to stay.

use crate::engine::arithmetic::operations;
use crate::engine::builder::Lowering;
use crate::engine::config::{BuilderConfig, Precision};
use crate::engine::trial::Exact;
use crate::engine::verify::Departure;
use crate::error::Result;
use crate::network::dim::Binding;
use crate::network::{LayerId, Network};
use std::collections::HashSet;

/// Trials that a search may take; each plans the network and runs it.
const MOST_TRIALS: usize = 64;
/// What is lifted may be this share of the operations of all layers that were lowered. With more, conversions cost what is
/// gained.
const MOST_OPERATIONS: f64 = 0.5;
/// Groups that make so little of the operations are lifted whole.
const LITTLE: f64 = 0.02;
/// Where of so many groups nearly all would have to be lifted, no smaller ones are looked for.
const SPREAD: usize = 16;
const MOST_SPREAD: f64 = 0.9;
/// Of what is allowed, so much may be left when groups are chosen: their squares add up only roughly.
const AIMS: [f64; 3] = [0.8, 0.4, 0.2];

/// Layers that stay in full precision.
pub(super) struct Lifted {
    /// Their names.
    pub layers: HashSet<String>,
    /// For the report.
    pub message: String,
}

/// Layers that lose much, together or alone.
struct Group {
    layers: Vec<LayerId>,
    /// The square of what departs, beside what is allowed, when they alone are lowered.
    loss: f64,
}

/// The search for one network and precision.
pub(super) struct Search<'s> {
    /// As `passes::run_in_full` left it.
    pub network: &'s Network,
    /// The layers that the precision lowers, in an order of execution.
    pub lowered: Vec<LayerId>,
    /// What it should compute.
    pub exact: &'s Exact,
    /// How the engine is built.
    pub config: &'s BuilderConfig,
    /// What was asked for.
    pub precision: Precision,
    /// Sizes at which operations are counted.
    pub opt: Binding,
}

impl Search<'_> {
    /// The layers to lift, of a network that departs by `all` when every layer is lowered; `None` where most of it would be.
    ///
    /// # Errors
    /// As a build.
    pub fn find(&self, all: &Departure) -> Result<Option<Lifted>> {
        let mut groups = vec![Group {
            loss: self.loss(&self.lowered)?,
            layers: self.lowered.clone(),
        }];
        let mut trials = 1;
        // Kernels lose less than what is measured here.
        let scale = (groups[0].loss.sqrt() / all.excess.max(1.0)).max(1.0);
        for aim in AIMS.map(|aim| aim * scale) {
            loop {
                groups.sort_by(|a, b| b.loss.total_cmp(&a.loss));
                let lifted = over(&groups, aim);
                let share = self.share(&groups[..lifted]);
                let divisible = groups[..lifted].iter().position(|group| group.layers.len() > 1);
                let spread = groups.len() >= SPREAD && share > MOST_SPREAD;
                let Some(at) = divisible.filter(|_| share > LITTLE && trials < MOST_TRIALS && !spread) else {
                    break;
                };
                trials += self.halve(&mut groups, at)?;
            }
            let lifted = over(&groups, aim);
            let share = self.share(&groups[..lifted]);
            if share > MOST_OPERATIONS {
                return Ok(None);
            }
            let layers: Vec<LayerId> = groups[..lifted].iter().flat_map(|g| g.layers.clone()).collect();
            let left = self.departure(&layers, Lowering::Rough)?;
            trials += 1;
            if left.excess <= 1.0 {
                return Ok(Some(self.lifted(&layers, share, all, &left)));
            }
        }
        Ok(None)
    }

    /// Puts two halves in the place of a group; gives the number of trials.
    fn halve(&self, groups: &mut Vec<Group>, at: usize) -> Result<usize> {
        /// A half that has this share of the whole leaves next to nothing for the other.
        const MOST: f64 = 0.98;
        let Group { mut layers, loss } = groups.swap_remove(at);
        let second = layers.split_off(layers.len() / 2);
        let first = Group {
            loss: self.loss(&layers)?,
            layers,
        };
        let rest = loss - first.loss;
        let (found, trials) = match first.loss < (1.0 - MOST) * loss {
            true => (rest, 1),
            false => (self.loss(&second)?, 2),
        };
        groups.push(first);
        groups.push(Group {
            layers: second,
            loss: found,
        });
        Ok(trials)
    }

    /// What is lost when these layers alone are lowered, squared.
    fn loss(&self, layers: &[LayerId]) -> Result<f64> {
        let low: HashSet<LayerId> = layers.iter().copied().collect();
        let others: Vec<_> = self.lowered.iter().copied().filter(|id| !low.contains(id)).collect();
        Ok(square(self.departure(&others, Lowering::Emulated)?.excess))
    }

    /// What departs when these layers are lifted.
    fn departure(&self, lifted: &[LayerId], lowering: Lowering) -> Result<Departure> {
        let config = BuilderConfig {
            lifted: self.names(lifted),
            ..self.config.clone()
        };
        self.exact
            .trial(self.network.clone(), lowering, self.precision, &config)
    }

    fn names(&self, layers: &[LayerId]) -> HashSet<String> {
        layers.iter().map(|&id| self.network[id].name.clone()).collect()
    }

    /// The share of the operations of all layers that were lowered.
    fn share(&self, groups: &[Group]) -> f64 {
        let count = |id: &LayerId| operations(self.network, &self.network[*id], &self.opt);
        let all: f64 = self.lowered.iter().map(count).sum();
        let some: f64 = groups.iter().flat_map(|group| &group.layers).map(count).sum();
        some / all.max(1.0)
    }

    fn lifted(&self, layers: &[LayerId], share: f64, all: &Departure, left: &Departure) -> Lifted {
        /// A note names so many.
        const SHOWN: usize = 8;
        let chosen: HashSet<_> = layers.iter().collect();
        let names = self.lowered.iter().filter(|id| chosen.contains(id));
        let names: Vec<_> = names.map(|&id| self.network[id].name.as_str()).collect();
        let more = if names.len() > SHOWN { ", ..." } else { "" };
        Lifted {
            layers: self.names(layers),
            message: format!(
                "{}: {} of {} layers ({}{more}; {:.1} % of the operations) stay float32, which leaves {:.0} % of what is allowed",
                all.message,
                layers.len(),
                self.lowered.len(),
                names[..names.len().min(SHOWN)].join(", "),
                share * 100.0,
                left.excess * 100.0
            ),
        }
    }
}

/// A square that stays finite, so that sums and differences of them mean something.
fn square(excess: f64) -> f64 {
    excess.min(1e6).powi(2)
}

/// How many of these groups, the worst first, have to be lifted for the others to lose no more than `aim` together.
fn over(groups: &[Group], aim: f64) -> usize {
    let mut left: f64 = groups.iter().map(|group| group.loss).sum();
    let mut lifted = 0;
    while left > aim * aim && lifted < groups.len() {
        // Summed anew: what is small would be lost beside what is large.
        lifted += 1;
        left = groups[lifted..].iter().map(|group| group.loss).sum();
    }
    lifted
}
