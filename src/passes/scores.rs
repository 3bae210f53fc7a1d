//! How rules that look for attention read scores: from the softmax back to the product of queries and keys.

use super::build::Build;
use super::causal;
use super::matching::{either_order, given_by, input, only_given_by, padded, scaled, uniform};
use crate::error::Result;
use crate::network::array::Array;
use crate::network::attr::Read;
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::patch::Patch;
use crate::network::{Layer, Network, TensorId};

/// What is done to scores of this shape.
pub struct Mask {
    /// The tensor that is added or chosen by.
    pub from: TensorId,
    /// The shape of the scores that it meets.
    shape: Vec<Dim>,
    what: What,
}

enum What {
    /// Numbers are added.
    Added(TensorId),
    /// Truth values say which scores count.
    Kept(TensorId),
    /// Scores for which the condition holds, or does not, become this low.
    Lowered(TensorId, bool, f64),
}

/// Scores as they were made.
pub struct Scores<'n> {
    /// The product of queries and keys.
    pub product: &'n Layer,
    /// What the scores are multiplied by.
    pub scale: f64,
    /// Where they are capped; 0 for nowhere.
    pub softcap: f64,
    /// The masks, the last one first.
    pub masks: Vec<Mask>,
}

/// A number this low hides a score behind any other. It may stand for minus infinity only where it is added.
const HIDING: f64 = -1e9;
/// To a number this low nothing is left of a score that is added: the sum is as if it were put in its place.
pub const ABSORBING: f64 = -1e30;
/// More layers than this never stood between the product and the softmax.
const LONGEST: usize = 12;

/// Reads the input of a softmax.
pub fn read(network: &Network, softened: TensorId) -> Option<Scores<'_>> {
    let mut scores = None;
    walk(network, softened, LONGEST, &mut vec![], (1.0, 0.0), &mut scores);
    scores
}

/// Follows scores back; `found` is set where a product is reached. Gives whether it was.
fn walk<'n>(
    network: &'n Network,
    at: TensorId,
    left: usize,
    masks: &mut Vec<Mask>,
    (scale, softcap): (f64, f64),
    found: &mut Option<Scores<'n>>,
) -> bool {
    let Some((_, layer)) = network.sole_user(at).and_then(|_| network.producer(at)) else {
        return false;
    };
    if left == 0 {
        return false;
    }
    let shape = &network[at].ty.shape;
    let untouched = scale == 1.0 && softcap == 0.0;
    if layer.op.name == "MatMul" {
        *found = Some(Scores {
            product: layer,
            scale,
            softcap,
            masks: std::mem::take(masks),
        });
        return true;
    }
    if let Some((x, factor)) = scaled(network, layer) {
        if network[x].ty.shape != *shape {
            return false;
        }
        if let Some(tanh) = only_given_by(network, x, "Tanh").filter(|_| untouched) {
            let inner = tanh.inputs[0].filter(|_| factor > 0.0);
            return inner.is_some_and(|x| walk(network, x, left - 1, masks, (factor, factor), found));
        }
        return walk(network, x, left - 1, masks, (scale * factor, softcap), found);
    }
    // Scores are masked after they were scaled and capped: here, before.
    let mut further = |x: TensorId, mask: Option<(TensorId, What)>| {
        let kept = masks.len();
        masks.extend(mask.map(|(from, what)| Mask {
            from,
            shape: shape.clone(),
            what,
        }));
        let reached = walk(network, x, left - 1, masks, (scale, softcap), found);
        if !reached {
            masks.truncate(kept);
        }
        reached
    };
    match layer.op.name {
        "Reshape" => match input(layer, 0) {
            Some(x) if same_matrices(&network[x].ty.shape, shape) => further(x, None),
            _ => false,
        },
        "Add" if untouched => either_order(layer)
            .into_iter()
            .any(|(x, mask)| network[x].ty.shape == *shape && further(x, Some((mask, added(network, mask))))),
        "Where" if untouched => lowered(network, layer).is_some_and(|(x, what)| {
            let same = network[x].ty.shape == *shape;
            same && input(layer, 0).is_some_and(|from| further(x, Some((from, what))))
        }),
        _ => false,
    }
}

/// Where(condition, x, low) and Where(condition, low, x), with a number that hides.
fn lowered(network: &Network, layer: &Layer) -> Option<(TensorId, What)> {
    let [condition, a, b] = [input(layer, 0)?, input(layer, 1)?, input(layer, 2)?];
    let low = |t: TensorId| uniform(network, t).filter(|&v| v <= HIDING);
    match (low(a), low(b)) {
        (None, Some(v)) if v == f64::NEG_INFINITY => Some((a, What::Kept(condition))),
        (None, Some(v)) => Some((a, What::Lowered(condition, false, v))),
        (Some(v), None) => Some((b, What::Lowered(condition, true, v))),
        _ => None,
    }
}

/// Numbers that are 0 where a condition holds, else minus infinity, are truth values.
fn added(network: &Network, mask: TensorId) -> What {
    let condition = network
        .producer(mask)
        .filter(|(_, layer)| layer.op.name == "Where")
        .and_then(|(_, layer)| {
            let is = |index: usize, value: f64| input(layer, index).and_then(|t| uniform(network, t)) == Some(value);
            input(layer, 0).filter(|_| is(1, 0.0) && is(2, f64::NEG_INFINITY))
        });
    condition.map_or(What::Added(mask), What::Kept)
}

/// Whether only leading dimensions differ.
pub fn same_matrices(a: &[Dim], b: &[Dim]) -> bool {
    a.len() >= 2 && b.len() >= 2 && a[a.len() - 2..] == b[b.len() - 2..]
}

/// Truth values and numbers to add, of the scores that attention has.
#[derive(Default)]
pub struct Merged {
    /// Whether a query sees no key behind its own place.
    pub causal: bool,
    kept: Option<TensorId>,
    added: Option<TensorId>,
}

impl Merged {
    /// Brings masks together for scores of the shape [batch, heads, queries, keys].
    ///
    /// # Errors
    /// If a layer can't be made.
    pub fn new(patch: &mut Patch, masks: &[Mask], scores: &[Dim], dtype: DType) -> Result<Option<Self>> {
        let mut merged = Self::default();
        if !may_be_merged(patch, masks) || shows_what_was_hidden(patch, masks) {
            return Ok(None);
        }
        for mask in masks {
            match mask.what {
                What::Kept(t) => {
                    for part in conjuncts(patch, t) {
                        if causal::keeps(patch, part, scores) {
                            merged.causal = true;
                            continue;
                        }
                        let Some(t) = fitted(patch, part, &mask.shape, scores)? else {
                            return Ok(None);
                        };
                        merged.kept = Some(both(patch, "And", merged.kept, t)?);
                    }
                }
                What::Added(t) if causal::adds(patch, t, scores, masks.len() == 1) => merged.causal = true,
                What::Added(t) => {
                    let Some(t) = fitted(patch, t, &mask.shape, scores)? else {
                        return Ok(None);
                    };
                    merged.added = Some(both(patch, "Add", merged.added, t)?);
                }
                What::Lowered(t, where_true, low) => {
                    let Some(t) = fitted(patch, t, &mask.shape, scores)? else {
                        return Ok(None);
                    };
                    // A query that sees nothing has scores that are all alike, however low.
                    let (low, zero) = (patch.scalar(dtype, low.min(ABSORBING)), patch.scalar(dtype, 0.0));
                    let [yes, no] = if where_true { [low, zero] } else { [zero, low] };
                    let numbers = patch.op("Where", &[t, yes, no])?;
                    merged.added = Some(both(patch, "Add", merged.added, numbers)?);
                }
            }
        }
        Ok(Some(merged))
    }

    /// The mask that attention takes.
    ///
    /// # Errors
    /// If a layer can't be made.
    pub fn mask(&self, patch: &mut Patch, dtype: DType) -> Result<Option<TensorId>> {
        let (Some(kept), Some(added)) = (self.kept, self.added) else {
            return Ok(self.kept.or(self.added));
        };
        let hidden = patch.scalar(dtype, f64::NEG_INFINITY);
        patch.op("Where", &[kept, added, hidden]).map(Some)
    }
}

/// Whether masks may be added to each other before they are added to the scores: where at most one of them does anything but
/// hide, or where they are known and do not cancel out.
fn may_be_merged(patch: &Patch, masks: &[Mask]) -> bool {
    let adds = |mask: &&Mask| !matches!(mask.what, What::Kept(_));
    let added: Vec<&Mask> = masks.iter().filter(adds).collect();
    if added.len() < 2 {
        return true;
    }
    let others = added.iter().filter(|mask| !only_hides(patch, mask)).count();
    let bounded = |mask: &&Mask| match mask.what {
        What::Added(t) => patch.tensor(t).constant().is_some_and(is_harmless),
        _ => false,
    };
    // What is as large as what hides brings back what was hidden.
    let large = |mask: &&Mask| match mask.what {
        What::Added(t) => !only_hides(patch, mask) && patch.tensor(t).constant().is_some_and(|a| !is_harmless(a)),
        _ => false,
    };
    match others {
        0 | 1 => !added.iter().any(large),
        _ => added.iter().all(|mask| only_hides(patch, mask) || bounded(mask)),
    }
}

/// Whether a number that is put in the place of scores takes that of a lower one, which a mask in front of it gave: from the outermost
/// mask on, as they are read. A query that sees nothing then sees what only the outer one hides.
fn shows_what_was_hidden(patch: &Patch, masks: &[Mask]) -> bool {
    let holds = |a: &Array| a.len() > LARGEST || a.f64s().any(|v| v == f64::NEG_INFINITY);
    let hides = |mask: &Mask| match mask.what {
        What::Kept(_) | What::Lowered(..) => true,
        What::Added(t) => patch.tensor(t).constant().is_some_and(holds),
    };
    let lowered = masks.iter().position(|mask| matches!(mask.what, What::Lowered(..)));
    lowered.is_some_and(|at| masks[at + 1..].iter().any(hides))
}

/// Whether a mask adds 0 or what absorbs every score.
fn only_hides(patch: &Patch, mask: &Mask) -> bool {
    let hides = |v: f64| v == 0.0 || v <= ABSORBING;
    let constant = |t: TensorId| {
        patch
            .tensor(t)
            .constant()
            .is_some_and(|a| a.len() <= LARGEST && a.f64s().all(hides))
    };
    match mask.what {
        What::Kept(_) => true,
        What::Lowered(_, _, low) => low <= ABSORBING,
        What::Added(t) => constant(t) || patch.producer(t).is_some_and(|layer| hides_by_layer(patch, layer)),
    }
}

/// Where(condition, 0, low), and c * low, which may be 0 and else is low for every c that is a truth value.
fn hides_by_layer(patch: &Patch, layer: &Layer) -> bool {
    let value = |at: usize| input(layer, at).and_then(|t| patch.tensor(t).constant()?.uniform());
    let hides = |v: Option<f64>| v.is_some_and(|v| v == 0.0 || v <= ABSORBING);
    match layer.op.name {
        "Where" => hides(value(1)) && hides(value(2)),
        "Mul" => [0, 1].into_iter().any(|at| value(at).is_some_and(|v| v <= ABSORBING)),
        _ => false,
    }
}

/// Whether the numbers of a mask are such that scores keep their digits beside them: biases, and the -100 of windows.
fn is_harmless(mask: &Array) -> bool {
    const LIMIT: f64 = 1e4;
    mask.len() <= LARGEST && mask.f64s().all(|v| v.abs() <= LIMIT || v == f64::NEG_INFINITY)
}

/// The truth values of which these are the conjunction.
fn conjuncts(patch: &Patch, t: TensorId) -> Vec<TensorId> {
    match patch.producer(t) {
        Some(layer) if layer.op.name == "And" => layer.inputs.iter().flatten().copied().collect(),
        _ => vec![t],
    }
}

fn both(patch: &mut Patch, op: &str, one: Option<TensorId>, other: TensorId) -> Result<TensorId> {
    match one {
        Some(one) => patch.op(op, &[one, other]),
        None => Ok(other),
    }
}

/// Constants above this are not looked through.
pub const LARGEST: usize = 1 << 24;

/// A mask of scores of one shape for the same scores with other leading dimensions.
fn fitted(patch: &mut Patch, mask: TensorId, from: &[Dim], to: &[Dim]) -> Result<Option<TensorId>> {
    let (lead, to_lead) = (&from[..from.len() - 2], &to[..to.len() - 2]);
    if lead == to_lead || patch.ty(mask).rank() <= 2 {
        return Ok(Some(mask));
    }
    let Some(groups) = groups(lead, to_lead) else {
        return Ok(None);
    };
    let own = padded(&patch.ty(mask).shape, from.len());
    let (mut full, mut target) = (own.clone(), vec![]);
    for (olds, news) in groups {
        if own[olds.clone()].iter().all(|d| d.is(1)) {
            target.extend(news.map(|_| Dim::from(1i64)));
        } else {
            full[olds.clone()].clone_from_slice(&lead[olds]);
            target.extend_from_slice(&to_lead[news]);
        }
    }
    target.extend_from_slice(&own[lead.len()..]);
    let mut mask = mask;
    if full != own {
        let shape = patch.dims(&full);
        mask = patch.op("Expand", &[mask, shape])?;
    }
    patch.reshape(mask, &target).map(Some)
}

type Span = std::ops::Range<usize>;

/// Which dimensions of one shape are which of another of as many elements.
fn groups(a: &[Dim], b: &[Dim]) -> Option<Vec<(Span, Span)>> {
    let (mut found, mut i, mut j) = (vec![], 0, 0);
    while i < a.len() || j < b.len() {
        let start = (i, j);
        let mut sizes = [Dim::from(1i64), 1i64.into()];
        loop {
            if (i, j) != start && sizes[0] == sizes[1] {
                break;
            }
            let grows_a = sizes[0] == sizes[1] || sizes[1].quotient(&sizes[0]).is_some();
            if grows_a && i < a.len() {
                sizes[0] = sizes[0].clone() * a[i].clone();
                i += 1;
            } else if j < b.len() {
                sizes[1] = sizes[1].clone() * b[j].clone();
                j += 1;
            } else {
                return None;
            }
        }
        found.push((start.0..i, start.1..j));
    }
    Some(found)
}

/// Queries or keys before they were multiplied by a number, and that number; Transposes and Reshapes in between are
/// made anew.
///
/// # Errors
/// If a layer can't be made.
pub fn unscaled(network: &Network, patch: &mut Patch, tensor: TensorId) -> Result<(TensorId, f64)> {
    let mut between = vec![];
    let mut at = tensor;
    while let Some((_, layer)) = network.sole_user(at).and_then(|_| network.producer(at)) {
        if let Some((mut x, factor)) = scaled(network, layer) {
            if network[x].ty.shape != network[at].ty.shape {
                break;
            }
            for layer in between.into_iter().rev() {
                let layer: &Layer = layer;
                let mut inputs = layer.inputs.clone();
                inputs[0] = Some(x);
                x = patch.add_named("", layer.op, layer.attrs.clone(), &inputs)?[0];
            }
            return Ok((x, factor));
        }
        match input(layer, 0) {
            Some(x) if matches!(layer.op.name, "Transpose" | "Reshape") && between.len() < LONGEST => {
                between.push(layer);
                at = x;
            }
            _ => break,
        }
    }
    Ok((tensor, 1.0))
}

/// What a Softmax along the last axis softens, if that gives these weights.
pub fn softened(network: &Network, weights: TensorId) -> Option<TensorId> {
    let softmax = given_by(network, weights, "Softmax")?;
    let x = input(softmax, 0)?;
    let axis = network[x].ty.axis(softmax.attrs.int("axis")).ok()?;
    (axis + 1 == network[x].ty.rank()).then_some(x)
}
