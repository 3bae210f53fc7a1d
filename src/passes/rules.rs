//! Local rules, and the walk of one over a network.

use crate::error::{Error, ErrorKind, Result};
use crate::interrupt;
use crate::knobs;
use crate::network::patch::{Change, Patch};
use crate::network::{LayerId, Network};
use std::collections::{HashSet, VecDeque};

/// A rule that patches more often than this is a defect.
const MAX_PATCHES_PER_LAYER: usize = 64;

/// A local rule: a patch on what ends in this layer, or nothing.
pub trait Rule: Fn(&Network, LayerId) -> Result<Option<Change>> {}
impl<F: Fn(&Network, LayerId) -> Result<Option<Change>>> Rule for F {}

/// What a rule function gives.
pub type Found<'n> = Result<Option<Patch<'n>>>;

/// Asks the rule at every layer, inputs first, and again wherever a patch changed the surroundings.
/// The number of questions is linear in the layers and patches. Gives the number of patches.
///
/// # Errors
/// As the rule; the error names the layer.
pub fn rewrite(network: &mut Network, rule: for<'n> fn(&'n Network, LayerId) -> Found<'n>) -> Result<usize> {
    rewrite_with(network, |network, id| Ok(rule(network, id)?.map(Patch::finish)))
}

/// As [`rewrite`], for a rule that needs more than the network.
///
/// # Errors
/// As [`rewrite`].
pub fn rewrite_with(network: &mut Network, rule: impl Rule) -> Result<usize> {
    // A rule that writes layers which their ops refuse is a defect. Whoever builds a model does without its rewrite: a patch
    // is applied as a whole or not at all.
    rewrite_as(network, rule, cfg!(debug_assertions) || knobs::VERIFY.get()?)
}

/// As [`rewrite_with`]; unless `strict`, a rule whose layers are refused leaves its layer as it is.
pub(super) fn rewrite_as(network: &mut Network, rule: impl Rule, strict: bool) -> Result<usize> {
    let mut pending = VecDeque::from(network.order()?);
    let mut waiting: HashSet<LayerId> = pending.iter().copied().collect();
    let most = MAX_PATCHES_PER_LAYER * (network.layer_count() + 1);
    let mut count = 0;
    while let Some(id) = pending.pop_front() {
        interrupt::poll()?;
        waiting.remove(&id);
        let Some(layer) = network.get_layer(id) else { continue };
        // The size has the layer's name: under another one it would be another size.
        if !network.new_sizes(id).is_empty() {
            continue;
        }
        let change = match rule(network, id) {
            Err(e) if !strict && matches!(e.kind(), ErrorKind::Shape | ErrorKind::Type) => continue,
            found => found.map_err(|e| {
                e.layer(&layer.name)
                    .during(format!("in a rewrite of layer {}", layer.name))
            })?,
        };
        let Some(change) = change else { continue };
        count += 1;
        if count > most {
            return Err(Error::internal("a rule rewrites its own results without end").layer(&layer.name));
        }
        for touched in change.apply(network) {
            if waiting.insert(touched) {
                pending.push_back(touched);
            }
        }
    }
    Ok(count)
}

/// Leaves a rule unless the condition holds.
macro_rules! rule_if {
    ($condition:expr) => {
        if !$condition {
            return Ok(None);
        }
    };
}

/// Leaves a rule unless the expression gives something, and names that.
macro_rules! rule_if_some {
    ($pattern:pat = $option:expr) => {
        let Some($pattern) = $option else { return Ok(None) };
    };
}
pub(crate) use {rule_if, rule_if_some};
