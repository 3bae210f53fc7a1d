//! The cover: which candidates, together, run every layer once at the least cost.

use crate::error::{Error, Result};
use crate::network::dim::Binding;
use crate::network::{LayerId, Network, Source, TensorId};
use crate::plan::{Candidate, Offer, Provider, Refusal, Settings};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::Arc;

/// One chosen candidate.
#[derive(Clone)]
pub struct Group {
    /// The number of its provider.
    pub provider: usize,
    /// What it runs.
    pub candidate: Candidate,
}

/// All chosen candidates in an order of execution, and what was refused on the way.
pub struct Cover {
    /// The chosen candidates.
    pub groups: Vec<Group>,
    /// Layers that a provider did not take.
    pub refusals: Vec<Refusal>,
}

/// Nanoseconds that a kernel costs before it computes anything.
const LAUNCH: f64 = 2_000.0;
/// Bytes that memory moves in a nanosecond.
const BANDWIDTH: f64 = 8.0;

/// Covers a network with the candidates of providers, the first of which is preferred.
///
/// # Errors
/// If no provider takes some layer; the error lists all such layers.
pub fn cover(network: &Network, providers: &[Arc<dyn Provider>], settings: &Settings) -> Result<Cover> {
    let order = network.order()?;
    let mut search = Search::new(network, &order);
    let mut offers = vec![];
    let mut refusals: Vec<Refusal> = vec![];
    let mut orphans = vec![];
    for &layer in &order {
        let before = refusals.len();
        let found = providers.iter().enumerate().find_map(|(provider, p)| {
            let offer = allowed(&**p, network, layer, settings);
            offer
                .map_err(|refusal| refusals.push(refusal))
                .ok()
                .map(|candidates| (provider, candidates))
        });
        match found {
            Some((provider, candidates)) => {
                offers.extend(
                    candidates
                        .into_iter()
                        .map(|candidate| (layer, Group { provider, candidate })),
                );
            }
            None => orphans.push(refusals[before..].to_vec()),
        }
    }
    refuse_orphans(&orphans)?;
    let alone = search.take_best(offers);
    search.take_rest(alone);
    Ok(Cover {
        groups: search.ordered()?,
        refusals,
    })
}

/// What a provider offers, less what the caller keeps from it.
fn allowed(provider: &dyn Provider, network: &Network, layer: LayerId, settings: &Settings) -> Offer {
    let Some(excluded) = settings.exclude.get(provider.name()) else {
        return provider.candidates(network, layer, settings);
    };
    let kept_out = |id: LayerId| {
        excluded
            .iter()
            .any(|name| *name == network[id].name || name == network[id].op.name)
    };
    if kept_out(layer) {
        return Err(Refusal {
            provider: provider.name().into(),
            layer: network[layer].name.clone(),
            reason: "excluded by the caller".into(),
            hint: String::new(),
        });
    }
    let mut candidates = provider.candidates(network, layer, settings)?;
    candidates.retain(|candidate| !candidate.layers.iter().any(|&id| kept_out(id)));
    Ok(candidates)
}

fn refuse_orphans(orphans: &[Vec<Refusal>]) -> Result<()> {
    let Some(first) = orphans.first() else { return Ok(()) };
    let line = |r: &Refusal| format!("{}: {} ({})", r.layer, r.reason, r.provider);
    let all: Vec<_> = orphans.iter().flatten().map(line).collect();
    Err(Error::unsupported(format!(
        "no provider runs {} of the layers:\n  {}",
        orphans.len(),
        all.join("\n  ")
    ))
    .hint(
        first
            .iter()
            .map(|r| r.hint.as_str())
            .find(|h| !h.is_empty())
            .unwrap_or("register a plugin for them"),
    ))
}

struct Search<'a> {
    network: &'a Network,
    /// The sizes to optimise for.
    opt: Binding,
    position: HashMap<LayerId, usize>,
    group_of: HashMap<LayerId, usize>,
    groups: Vec<Group>,
    /// For each position, the last one that a group with a layer up to there reaches.
    reach: Vec<usize>,
}

impl<'a> Search<'a> {
    fn new(network: &'a Network, order: &[LayerId]) -> Self {
        let position = order.iter().enumerate().map(|(i, &layer)| (layer, i)).collect();
        let opt = network.symbols.iter().map(|(name, range)| (name.clone(), range.opt));
        Self {
            network,
            opt: opt.collect(),
            position,
            group_of: HashMap::new(),
            groups: vec![],
            reach: (0..order.len()).collect(),
        }
    }

    /// Takes fusions by falling gain, where they neither overlap nor close a cycle; gives the single-layer offers back.
    fn take_best(&mut self, offers: Vec<(LayerId, Group)>) -> HashMap<LayerId, Group> {
        let mut alone = HashMap::new();
        let mut fusions = vec![];
        for (layer, group) in offers {
            if group.candidate.layers.len() == 1 {
                alone.insert(layer, group);
            } else {
                fusions.push((self.gain(&group.candidate), self.position[&layer], group));
            }
        }
        fusions.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        for (_, _, group) in fusions {
            let layers = &group.candidate.layers;
            if layers.iter().all(|l| !self.group_of.contains_key(l)) && !self.closes_cycle(layers) {
                self.take(group);
            }
        }
        alone
    }

    fn take_rest(&mut self, alone: HashMap<LayerId, Group>) {
        let mut rest: Vec<_> = alone
            .into_iter()
            .filter(|(layer, _)| !self.group_of.contains_key(layer))
            .collect();
        rest.sort_by_key(|(layer, _)| self.position[layer]);
        rest.into_iter().for_each(|(_, group)| self.take(group));
    }

    fn take(&mut self, group: Group) {
        let places = group.candidate.layers.iter().map(|l| self.position[l]);
        let (first, last) = (places.clone().min().unwrap_or(0), places.max().unwrap_or(0));
        for reach in &mut self.reach[first..=last] {
            *reach = last.max(*reach);
        }
        for &layer in &group.candidate.layers {
            self.group_of.insert(layer, self.groups.len());
        }
        self.groups.push(group);
    }

    /// Nanoseconds that running the layers together saves: launches, and writing and reading what stays inside.
    fn gain(&self, candidate: &Candidate) -> f64 {
        let given: HashSet<_> = candidate.outputs.iter().collect();
        let inside = candidate
            .layers
            .iter()
            .flat_map(|&l| &self.network[l].outputs)
            .filter(|t| !given.contains(t));
        let bytes: f64 = inside.map(|&t| self.opt_bytes(t)).sum();
        (candidate.layers.len() - 1) as f64 * LAUNCH + 2.0 * bytes / BANDWIDTH
    }

    /// Bytes of a tensor at the shapes to optimise for.
    fn opt_bytes(&self, tensor: TensorId) -> f64 {
        if matches!(self.network[tensor].source, Source::Constant(_)) {
            return 0.0;
        }
        let ty = &self.network[tensor].ty;
        ty.elements().eval(&self.opt).unwrap_or(0) as f64 * ty.dtype.size() as f64
    }

    /// Whether a path leaves these layers and comes back, through groups that are taken already.
    fn closes_cycle(&self, layers: &[LayerId]) -> bool {
        let inside: HashSet<_> = layers.iter().copied().collect();
        let last = layers.iter().map(|l| self.position[l]).max().unwrap_or(0);
        // Behind this position no layer is in a group with one before it, so that no path leads back.
        let mut end = last;
        while self.reach[end] > end {
            end = self.reach[end];
        }
        let mut seen = HashSet::new();
        let mut pending: Vec<LayerId> = layers
            .iter()
            .flat_map(|&l| self.users(l))
            .filter(|l| !inside.contains(l))
            .collect();
        while let Some(layer) = pending.pop() {
            if !seen.insert(layer) {
                continue;
            }
            let together: &[LayerId] = match self.group_of.get(&layer) {
                Some(&group) => &self.groups[group].candidate.layers,
                None => std::slice::from_ref(&layer),
            };
            if together.iter().all(|l| self.position[l] > end) {
                continue;
            }
            for user in together.iter().flat_map(|&l| self.users(l)) {
                if inside.contains(&user) {
                    return true;
                }
                pending.push(user);
            }
        }
        false
    }

    fn users(&self, layer: LayerId) -> impl Iterator<Item = LayerId> + '_ {
        self.network[layer]
            .outputs
            .iter()
            .flat_map(|&t| self.network[t].users.iter().copied())
    }

    /// The groups, each after those that it reads; ties by the position of their first layer.
    fn ordered(&self) -> Result<Vec<Group>> {
        let key = |g: usize| {
            self.groups[g]
                .candidate
                .layers
                .iter()
                .map(|l| self.position[l])
                .min()
                .unwrap_or(0)
        };
        let mut users: Vec<HashSet<usize>> = vec![HashSet::new(); self.groups.len()];
        let mut waiting = vec![0; self.groups.len()];
        for (&layer, &group) in &self.group_of {
            for user in self.users(layer).map(|l| self.group_of[&l]).filter(|&u| u != group) {
                if users[group].insert(user) {
                    waiting[user] += 1;
                }
            }
        }
        let mut ready: BinaryHeap<_> = (0..self.groups.len())
            .filter(|&g| waiting[g] == 0)
            .map(|g| Reverse((key(g), g)))
            .collect();
        let mut ordered = vec![];
        while let Some(Reverse((_, group))) = ready.pop() {
            ordered.push(self.groups[group].clone());
            for &user in &users[group] {
                waiting[user] -= 1;
                if waiting[user] == 0 {
                    ready.push(Reverse((key(user), user)));
                }
            }
        }
        match ordered.len() == self.groups.len() {
            true => Ok(ordered),
            false => Err(Error::internal("the chosen fusions form a cycle")),
        }
    }
}
