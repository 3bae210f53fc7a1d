//! Benchmarks of regions against the kernels that the next providers would run instead.

use crate::network::LayerId;
use crate::plan::choose::{choose, total};
use crate::plan::cover::{Cover, Group, Offers};
use crate::plan::regions::ExcludedLayers;
use crate::plan::timing::REFERENCE_TIME;
use crate::plan::tuning::Tuner;
use std::collections::HashSet;

/// A region is excluded if it takes more than this many times as long as the kernels of the next providers.
const SLOWER: f64 = 1.1;

/// The layers of regions that fail at the shapes to optimise for, or are slower by [`SLOWER`] than kernels of the next
/// providers in the same memory, with the reasons.
pub(super) fn unfit(tuner: &mut Tuner, offers: &mut Offers, cover: &Cover) -> ExcludedLayers {
    let mut excluded = ExcludedLayers::new();
    for group in cover.groups.iter().filter(|group| group.candidate.kernel.is_foreign()) {
        let reason = match time_of(tuner, std::slice::from_ref(group)) {
            Err(error) => Some(error.to_string()),
            Ok(_) if tuner.settings.optimization_level == 0 => None,
            Ok(time) => slower(tuner, offers, group, time),
        };
        let Some(reason) = reason else { continue };
        let of_provider = excluded
            .entry(tuner.providers[group.provider].name().into())
            .or_default();
        of_provider.extend(group.candidate.layers.iter().map(|&id| (id, reason.clone())));
    }
    excluded
}

/// Nanoseconds of kernels one after another, each in the best of its forms.
fn time_of(tuner: &mut Tuner, groups: &[Group]) -> crate::error::Result<f64> {
    let (edges, numbers) = tuner.edges(groups)?;
    for group in groups {
        tuner.enqueue_builds(group)?;
        tuner.try_out(group)?;
    }
    let choices = groups.iter().map(|group| tuner.choice(group, &numbers));
    let choices = choices.collect::<crate::error::Result<Vec<_>>>()?;
    let forms = choose(&choices, &edges);
    Ok(total(&choices, &edges, &forms))
}

/// By what a region is slower than what the next providers would run in its place, as a reason; `None` where it is not, or
/// nobody else runs all of it there.
fn slower(tuner: &mut Tuner, offers: &mut Offers, group: &Group, time: f64) -> Option<String> {
    let layers: HashSet<LayerId> = group.candidate.layers.iter().copied().collect();
    let next = group.provider + 1;
    let other_cover = offers.cover_part(&layers, next).ok()?;
    let space = tuner.providers[group.provider].space();
    let same = |group: &Group| tuner.providers[group.provider].space() == space;
    if !other_cover.groups.iter().all(same) {
        return None;
    }
    let other_time = time_of(tuner, &other_cover.groups)
        .ok()
        .filter(|&time| time < REFERENCE_TIME as f64)?;
    let name = tuner.providers[other_cover.groups.first()?.provider].name();
    (time > SLOWER * other_time).then(|| {
        format!(
            "slower: the region takes {:.1} us, kernels of {name} {:.1} us",
            time / 1e3,
            other_time / 1e3
        )
    })
}
