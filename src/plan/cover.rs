//! The cover: which candidates, together, run every layer once at the least cost.

use crate::error::{Error, Result};
use crate::knobs;
use crate::network::dim::Binding;
use crate::network::{LayerId, Network, Source, TensorId};
use crate::plan::regions::{ExcludedLayers, Regions};
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
    /// What providers have to say of their regions.
    pub notes: Vec<String>,
    /// How many regions were compiled for it.
    pub compiled: usize,
}

/// Nanoseconds that a kernel costs before it computes anything.
const LAUNCH: f64 = 2_000.0;
/// Bytes that memory moves in a nanosecond.
const BANDWIDTH: f64 = 8.0;

/// What providers offer for the layers of a network, at the shapes to optimise for. Each is asked once for each layer, however
/// often the network is covered.
pub(super) struct Offers<'a> {
    network: &'a Network,
    providers: &'a [Arc<dyn Provider>],
    settings: &'a Settings,
    opt: &'a Binding,
    known: HashMap<(usize, LayerId), Offer>,
}

impl<'a> Offers<'a> {
    /// Of providers, the first of which is preferred; nobody has been asked yet.
    pub fn new(
        network: &'a Network,
        providers: &'a [Arc<dyn Provider>],
        settings: &'a Settings,
        opt: &'a Binding,
    ) -> Self {
        Self {
            network,
            providers,
            settings,
            opt,
            known: HashMap::new(),
        }
    }

    /// Covers the network.
    ///
    /// # Errors
    /// If no provider takes some layer; the error lists all such layers.
    pub fn cover(&mut self, excluded: &ExcludedLayers) -> Result<Cover> {
        let (network, providers) = (self.network, self.providers);
        let mut asking = Asking::new(self, network.order()?);
        for (number, provider) in providers.iter().enumerate() {
            let before = asking.refusals.len();
            let kept = asking.keep_from(&**provider, excluded);
            let open = asking.open.iter().copied();
            let free: HashSet<LayerId> = open.filter(|id| !kept.contains(id)).collect();
            match provider.regions(network, &free, asking.offers.settings) {
                Some(regions) => asking.take_regions(number, regions?),
                None => {
                    asking.refusals.truncate(before);
                    asking.ask(number);
                }
            }
        }
        asking.finish()
    }

    /// Covers a convex part of the network with kernels of providers that go layer by layer: those from a number on.
    ///
    /// # Errors
    /// As [`Offers::cover`].
    pub fn cover_part(&mut self, layers: &HashSet<LayerId>, first: usize) -> Result<Cover> {
        let (network, providers) = (self.network, self.providers);
        let mut order = network.order()?;
        order.retain(|id| layers.contains(id));
        let mut asking = Asking::new(self, order);
        for (number, provider) in providers.iter().enumerate().skip(first) {
            if provider
                .regions(network, &HashSet::new(), asking.offers.settings)
                .is_none()
            {
                asking.ask(number);
            }
        }
        asking.finish()
    }

    /// What the provider of a number offers for a layer, less what the caller keeps from it.
    fn of(&mut self, number: usize, layer: LayerId) -> Offer {
        let (network, provider, settings) = (self.network, &*self.providers[number], self.settings);
        let ask = || {
            let kept_out = |id: LayerId| is_excluded(provider, network, id, settings);
            if kept_out(layer) {
                return Err(refusal(provider, network, layer, EXCLUDED.into()));
            }
            let mut candidates = provider.candidates(network, layer, settings)?;
            candidates.retain(|candidate| !candidate.layers.iter().any(|&id| kept_out(id)));
            Ok(candidates)
        };
        self.known.entry((number, layer)).or_insert_with(ask).clone()
    }
}

/// Asks one provider after another for what those before it left.
struct Asking<'o, 'a> {
    offers: &'o mut Offers<'a>,
    search: Search<'a>,
    /// The layers that nobody takes yet.
    open: Vec<LayerId>,
    offered: Vec<(LayerId, Group)>,
    /// The place of each layer, by its name.
    places: HashMap<&'a str, usize>,
    /// With the place of the layer.
    refusals: Vec<(usize, Refusal)>,
    notes: Vec<String>,
    compiled: usize,
}

impl<'o, 'a> Asking<'o, 'a> {
    fn new(offers: &'o mut Offers<'a>, order: Vec<LayerId>) -> Self {
        let network = offers.network;
        let named = order
            .iter()
            .enumerate()
            .map(|(place, &id)| (network[id].name.as_str(), place));
        Self {
            search: Search::new(network, &order, offers.opt),
            offers,
            places: named.collect(),
            open: order,
            offered: vec![],
            refusals: vec![],
            notes: vec![],
            compiled: 0,
        }
    }

    fn refuse(&mut self, refusal: Refusal) {
        let place = self.places.get(refusal.layer.as_str()).copied();
        self.refusals.push((place.unwrap_or(usize::MAX), refusal));
    }

    /// The open layers that a provider may not run in regions; the reasons stand among the refusals.
    fn keep_from(&mut self, provider: &dyn Provider, excluded: &ExcludedLayers) -> HashSet<LayerId> {
        let mut kept = HashSet::new();
        let reasons = excluded.get(provider.name());
        for id in self.open.clone() {
            let reason = reasons.and_then(|reasons| reasons.get(&id)).cloned();
            let Offers { network, settings, .. } = *self.offers;
            let by_caller = is_excluded(provider, network, id, settings).then(|| EXCLUDED.to_string());
            if let Some(reason) = reason.or(by_caller) {
                kept.insert(id);
                self.refuse(refusal(provider, network, id, reason));
            }
        }
        kept
    }

    fn take_regions(&mut self, provider: usize, regions: Regions) {
        self.notes.extend(regions.notes);
        self.compiled += regions.compiled;
        regions.refusals.into_iter().for_each(|refusal| self.refuse(refusal));
        for candidate in regions.candidates {
            let open: HashSet<LayerId> = self.open.iter().copied().collect();
            let layers: HashSet<LayerId> = candidate.layers.iter().copied().collect();
            if layers.is_subset(&open) && !self.search.closes_cycle(&candidate.layers) {
                self.open.retain(|id| !layers.contains(id));
                self.search.take(Group { provider, candidate });
            }
        }
    }

    fn ask(&mut self, number: usize) {
        for layer in std::mem::take(&mut self.open) {
            match self.offers.of(number, layer) {
                Ok(mut candidates) => {
                    // A part is covered without what is around it.
                    candidates.retain(|c| c.layers.iter().all(|id| self.search.position.contains_key(id)));
                    let groups = candidates.into_iter().map(|candidate| Group {
                        provider: number,
                        candidate,
                    });
                    self.offered.extend(groups.map(|group| (layer, group)));
                }
                Err(refusal) => {
                    self.refusals.push((self.search.position[&layer], refusal));
                    self.open.push(layer);
                }
            }
        }
    }

    fn finish(mut self) -> Result<Cover> {
        if knobs::is_disabled("fusion")? {
            self.leave_out_fusions();
        }
        self.refusals.sort_by_key(|(place, _)| *place);
        self.refuse_orphans()?;
        let alone = self.search.take_best(self.offered);
        self.search.take_rest(alone);
        Ok(Cover {
            groups: self.search.ordered()?,
            refusals: self.refusals.into_iter().map(|(_, refusal)| refusal).collect(),
            notes: self.notes,
            compiled: self.compiled,
        })
    }

    /// Forgets kernels of several layers that run each by itself, too.
    fn leave_out_fusions(&mut self) {
        let single = |group: &Group| group.candidate.layers.len() == 1;
        let alone: HashSet<LayerId> = self
            .offered
            .iter()
            .filter(|(_, group)| single(group))
            .map(|(id, _)| *id)
            .collect();
        self.offered
            .retain(|(_, group)| single(group) || !group.candidate.layers.iter().all(|id| alone.contains(id)));
    }

    fn refuse_orphans(&self) -> Result<()> {
        let Some(first) = self.open.first() else { return Ok(()) };
        let of = |id: &LayerId| {
            let place = self.search.position[id];
            let all = self.refusals.iter().filter(move |(other, _)| *other == place);
            all.map(|(_, refusal)| refusal)
        };
        let line = |r: &Refusal| format!("{}: {} ({})", r.layer, r.reason, r.provider);
        let all: Vec<_> = self.open.iter().flat_map(of).map(line).collect();
        let hint = of(first).map(|r| r.hint.as_str()).find(|hint| !hint.is_empty());
        Err(Error::unsupported(format!(
            "no provider runs {} of the layers:\n  {}",
            self.open.len(),
            all.join("\n  ")
        ))
        .hint(hint.unwrap_or(match of(first).any(|r| r.reason == EXCLUDED) {
            true => "exclude fewer of them",
            false => "register a plugin for them",
        })))
    }
}

/// Why a provider does not run what the caller keeps from it.
const EXCLUDED: &str = "excluded by the caller";

fn refusal(provider: &dyn Provider, network: &Network, layer: LayerId, reason: String) -> Refusal {
    Refusal {
        provider: provider.name().into(),
        layer: network[layer].name.clone(),
        reason,
        hint: String::new(),
    }
}

fn is_excluded(provider: &dyn Provider, network: &Network, id: LayerId, settings: &Settings) -> bool {
    let mut excluded = settings.exclude.get(provider.name()).into_iter().flatten();
    excluded.any(|name| *name == network[id].name || name == network[id].op.name)
}

struct Search<'a> {
    network: &'a Network,
    /// The sizes to optimise for.
    opt: &'a Binding,
    position: HashMap<LayerId, usize>,
    group_of: HashMap<LayerId, usize>,
    groups: Vec<Group>,
    /// For each position, the last one that a group with a layer up to there reaches.
    reach: Vec<usize>,
}

impl<'a> Search<'a> {
    fn new(network: &'a Network, order: &[LayerId], opt: &'a Binding) -> Self {
        let position = order.iter().enumerate().map(|(i, &layer)| (layer, i)).collect();
        Self {
            network,
            opt,
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
        ty.elements().eval(self.opt).unwrap_or(0) as f64 * ty.dtype.size() as f64
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

    /// Who reads what a layer gives, of the layers that are to be covered.
    fn users(&self, layer: LayerId) -> impl Iterator<Item = LayerId> + '_ {
        let users = self.network[layer].outputs.iter().flat_map(|&t| &self.network[t].users);
        users.copied().filter(|id| self.position.contains_key(id))
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
