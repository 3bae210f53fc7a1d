//! From a network to regions that run: which layers TensorRT takes, in which convex sets, and the plan of each.

use super::NAME;
use super::convert::{Refused, Selection, refusal};
use super::cut::{cut, is_worthwhile, ports};
use super::keep::{Compiled, Compiler};
use super::pieces::Pieces;
use super::region::RegionKernel;
use crate::error::{Error, Result};
use crate::network::{LayerId, Network};
use crate::plan::regions::{Regions, Watch};
use crate::plan::{Candidate, Refusal, Settings};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A region of fewer layers costs more than it saves.
const TOO_FEW: &str = "too few layers between those that TensorRT does not take to be worth a plan of their own";

/// The regions of those layers that are free, compiled or found in the cache.
///
/// # Errors
/// If the layers form a cycle, the library gives no session, or whoever watches ends the build.
pub fn find(compiler: &Compiler, network: &Network, free: &HashSet<LayerId>, settings: &Settings) -> Result<Regions> {
    let mut search = Search {
        compiler,
        network,
        pieces: Pieces::of(network, free)?,
        taken: free.clone(),
        refused: Refused::new(),
    };
    search.leave_counted();
    let found = search.settle()?;
    let mut regions = Regions::default();
    for layers in found {
        search.compile(layers, settings, &mut regions)?;
    }
    regions.refusals.extend(search.refused.into_values());
    Ok(regions)
}

struct Search<'a> {
    compiler: &'a Compiler,
    network: &'a Network,
    pieces: Pieces,
    /// The layers that TensorRT takes, as far as is known.
    taken: HashSet<LayerId>,
    refused: Refused,
}

impl Search<'_> {
    fn refuse(&mut self, layers: &[LayerId], error: &Error) {
        for id in layers {
            self.taken.remove(id);
            let network = self.network;
            self.refused.entry(*id).or_insert_with(|| refusal(&network[*id], error));
        }
    }

    /// Leaves what has sizes that depend on data.
    fn leave_counted(&mut self) {
        let network = self.network;
        let counts = |id: &LayerId| network.unknown_size(*id).is_some() || !network.new_sizes(*id).is_empty();
        let counted: Vec<LayerId> = self.taken.iter().copied().filter(counts).collect();
        self.refuse(&counted, &Error::unsupported("the size of its result depends on data"));
    }

    /// What TensorRT takes of the pieces of some layers; whether it was all of them.
    fn try_out(&mut self, layers: &HashSet<LayerId>) -> Result<bool> {
        let mut selection = self.select(layers);
        let refused = selection.settle(&self.compiler.library)?;
        let whole = refused.is_empty();
        for (piece, why) in refused {
            let id = self.pieces.origin(piece);
            self.taken.remove(&id);
            let layer = self.network[id].name.clone();
            self.refused.entry(id).or_insert(Refusal { layer, ..why });
        }
        Ok(whole)
    }

    fn select(&self, layers: &HashSet<LayerId>) -> Selection<'_> {
        Selection {
            network: &self.pieces.network,
            inside: self.pieces.of_layers(layers),
            whole: false,
        }
    }

    /// Regions of which TensorRT takes every layer, each by itself: sizes that are extents of a tensor in the whole network
    /// need not be any in a part.
    fn settle(&mut self) -> Result<Vec<Vec<LayerId>>> {
        while !self.try_out(&self.taken.clone())? {}
        loop {
            let found = cut(self.network, &self.taken)?;
            let (found, small): (Vec<_>, Vec<_>) = found
                .into_iter()
                .partition(|region| is_worthwhile(self.network, region));
            self.refuse(&small.concat(), &Error::unsupported(TOO_FEW));
            let mut whole = true;
            for region in found.iter().filter(|_| found.len() > 1) {
                whole &= self.try_out(&region.iter().copied().collect())?;
            }
            if whole {
                return Ok(found);
            }
        }
    }

    /// Makes a candidate of a region; where that fails its layers are refused with the reason.
    fn compile(&mut self, layers: Vec<LayerId>, settings: &Settings, regions: &mut Regions) -> Result<()> {
        let (inputs, outputs) = ports(self.network, &layers);
        let selection = self.select(&layers.iter().copied().collect());
        let names = |tensors: &[_]| -> Vec<String> {
            let heirs = tensors.iter().map(|&tensor| self.pieces.tensor(tensor));
            heirs.map(|tensor| self.pieces.network[tensor].name.clone()).collect()
        };
        let names = (names(&inputs), names(&outputs));
        let cancelled = Arc::new(AtomicBool::new(false));
        let watched = Settings {
            watch: watched(settings, &cancelled),
            ..settings.clone()
        };
        match self.compiler.region(&selection, names, layers.len(), &watched) {
            Ok(Compiled { region, notes, fresh }) => {
                regions.notes.extend(notes);
                regions.compiled += usize::from(fresh);
                regions.candidates.push(Candidate {
                    kernel: Arc::new(RegionKernel(region)),
                    layers,
                    inputs,
                    outputs,
                });
                Ok(())
            }
            Err(error) if cancelled.load(Ordering::Relaxed) => Err(error),
            Err(error) => {
                let error = Error::unsupported(format!("the region of {} layers: {error}", layers.len()));
                self.refuse(&layers, &error);
                Ok(())
            }
        }
    }
}

/// The same callbacks, which also set `cancelled` if progress ends the build.
fn watched(settings: &Settings, cancelled: &Arc<AtomicBool>) -> Watch {
    let (mut watch, cancelled) = (settings.watch.clone(), cancelled.clone());
    let on_progress = watch.on_progress.clone();
    watch.on_progress = Arc::new(move |phase, done, steps| {
        let goes_on = on_progress(phase, done, steps);
        cancelled.fetch_or(!goes_on, Ordering::Relaxed);
        goes_on
    });
    watch
}

/// Why a layer is not asked about by itself.
pub fn refuse_alone(network: &Network, layer: LayerId) -> Refusal {
    refused(network, layer, "TensorRT runs regions of layers, and none alone", "")
}

/// No regions, for builds that must repeat.
pub fn refuse_to_repeat(network: &Network, free: &HashSet<LayerId>) -> Regions {
    const REASON: &str = "deterministic=True: which kernels TensorRT chooses may differ from build to build";
    let free: BTreeSet<LayerId> = free.iter().copied().collect();
    let refuse = |id| {
        refused(
            network,
            id,
            REASON,
            "build without deterministic=True, and save the engine",
        )
    };
    Regions {
        refusals: free.into_iter().map(refuse).collect(),
        ..Regions::default()
    }
}

fn refused(network: &Network, layer: LayerId, reason: &str, hint: &str) -> Refusal {
    Refusal {
        provider: NAME.into(),
        layer: network[layer].name.clone(),
        reason: reason.into(),
        hint: hint.into(),
    }
}
