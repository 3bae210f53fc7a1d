//! Whether regions run, and how they do against kernels of the next providers.

use crate::network::LayerId;
use crate::plan::choose::{choose, total};
use crate::plan::cover::{Cover, Group, cover_part};
use crate::plan::regions::Banned;
use crate::plan::timing::NAIVE;
use crate::plan::tuning::Tuner;
use std::collections::HashSet;

/// A region that takes so much longer than its rivals is not what runs.
const SLOWER: f64 = 1.1;

/// The layers of regions that do not run at the shapes to optimise for, or are clearly slower than kernels of the next
/// providers that work in the same memory.
pub(super) fn unfit(tuner: &mut Tuner, cover: &Cover) -> Banned {
    let mut banned = Banned::new();
    for group in cover.groups.iter().filter(|group| group.candidate.kernel.is_foreign()) {
        let reason = match time_of(tuner, std::slice::from_ref(group)) {
            Err(error) => Some(error.to_string()),
            Ok(_) if tuner.settings.optimization_level == 0 => None,
            Ok(time) => slower(tuner, group, time),
        };
        let Some(reason) = reason else { continue };
        let of_provider = banned.entry(tuner.providers[group.provider].name().into()).or_default();
        of_provider.extend(group.candidate.layers.iter().map(|&id| (id, reason.clone())));
    }
    banned
}

/// Nanoseconds of kernels one after another, each in the best of its forms.
fn time_of(tuner: &mut Tuner, groups: &[Group]) -> crate::error::Result<f64> {
    let (edges, numbers) = tuner.edges(groups)?;
    for group in groups {
        tuner.announce(group)?;
        tuner.try_out(group)?;
    }
    let choices = groups.iter().map(|group| tuner.choice(group, &numbers));
    let choices = choices.collect::<crate::error::Result<Vec<_>>>()?;
    let forms = choose(&choices, &edges);
    Ok(total(&choices, &edges, &forms))
}

/// By what a region is slower than what the next providers would run in its place, as a reason; `None` where it is not, or
/// nobody else runs all of it there.
fn slower(tuner: &mut Tuner, group: &Group, time: f64) -> Option<String> {
    let layers: HashSet<LayerId> = group.candidate.layers.iter().copied().collect();
    let next = group.provider + 1;
    let rival = cover_part(tuner.network, &layers, tuner.providers, next, tuner.settings).ok()?;
    let space = tuner.providers[group.provider].space();
    let same = |group: &Group| tuner.providers[group.provider].space() == space;
    if !rival.groups.iter().all(same) {
        return None;
    }
    let other = time_of(tuner, &rival.groups).ok().filter(|&time| time < NAIVE as f64)?;
    let name = tuner.providers[rival.groups.first()?.provider].name();
    (time > SLOWER * other).then(|| {
        format!(
            "slower: the region takes {:.1} us, kernels of {name} {:.1} us",
            time / 1e3,
            other / 1e3
        )
    })
}
