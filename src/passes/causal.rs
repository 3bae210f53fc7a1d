//! Whether a mask hides from each query just what lies behind its own place: as a constant, or made of a triangle of sizes that are
//! not known before.

use super::matching::input;
use super::scores::{ABSORBING, LARGEST};
use crate::network::array::Array;
use crate::network::attr::Read;
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::patch::Patch;
use crate::network::{Layer, TensorId};

/// The lowest number of float16, which exporters write where they mean minus infinity.
const LOWEST_HALF: f64 = -65504.0;

/// Whether truth values say that a query sees what does not lie behind its own place, for all heads of scores alike.
pub fn keeps(patch: &Patch, mask: TensorId, scores: &[Dim]) -> bool {
    let constant = patch.tensor(mask).constant();
    lies_as(patch, mask, scores)
        && (constant.is_some_and(|mask| is_lower_triangle(mask, 1.0, |v| v == 0.0))
            || is_half(patch, mask, Half::Seen, scores))
}

/// Whether numbers that are added hide so. Where this is the `only` mask every query sees its own place, so that what absorbs every
/// score is as good as minus infinity; where another one hides that, all that is left may be what absorbs.
pub fn adds(patch: &Patch, mask: TensorId, scores: &[Dim], only: bool) -> bool {
    if !lies_as(patch, mask, scores) {
        return false;
    }
    let low = match patch.ty(mask).dtype {
        _ if !only => f64::NEG_INFINITY,
        DType::Float16 => LOWEST_HALF,
        _ => ABSORBING,
    };
    let hides = |v: f64| v <= low;
    if let Some(mask) = patch.tensor(mask).constant() {
        return is_lower_triangle(mask, 0.0, hides);
    }
    let Some(layer) = patch.producer(mask) else {
        return false;
    };
    let number = |at: usize| input(layer, at).and_then(|t| uniform(patch, t));
    match layer.op.name {
        "Where" => {
            let condition = |half: Half| input(layer, 0).is_some_and(|t| is_half(patch, t, half, scores));
            match (number(1), number(2)) {
                (Some(0.0), Some(low)) if hides(low) => condition(Half::Seen),
                (Some(low), Some(0.0)) if hides(low) => condition(Half::Hidden),
                _ => false,
            }
        }
        "Trilu" => is_trilu(patch, layer, Half::Hidden) && number(0).is_some_and(hides),
        _ => false,
    }
}

/// Whether a mask has a number for each query and each key, and the same for all batches and heads.
fn lies_as(patch: &Patch, mask: TensorId, scores: &[Dim]) -> bool {
    let shape = &patch.ty(mask).shape;
    let Some((lead, own)) = shape.split_at_checked(shape.len().saturating_sub(2)) else {
        return false;
    };
    own == &scores[2..] && lead.iter().all(|dim| dim.is(1)) && !own[0].is(1)
}

fn is_lower_triangle(mask: &Array, seen: f64, hides: impl Fn(f64) -> bool) -> bool {
    let keys = mask.shape().last().copied().unwrap_or(0);
    let fits = |(i, v): (usize, f64)| if i % keys <= i / keys { v == seen } else { hides(v) };
    mask.len() <= LARGEST && mask.f64s().enumerate().all(fits)
}

/// A part of a matrix of queries and keys.
#[derive(Clone, Copy, PartialEq)]
enum Half {
    /// The diagonal and what lies before it.
    Seen,
    /// What lies behind it.
    Hidden,
}

/// Whether just this half of a whole matrix is true, or not 0.
fn is_half(patch: &Patch, mask: TensorId, half: Half, scores: &[Dim]) -> bool {
    let Some(layer) = patch.producer(mask).filter(|_| lies_as(patch, mask, scores)) else {
        return false;
    };
    let given = input(layer, 0);
    let other = if half == Half::Seen { Half::Hidden } else { Half::Seen };
    let zero = |at: usize| input(layer, at).and_then(|t| uniform(patch, t)) == Some(0.0);
    match layer.op.name {
        // Between numbers what is not 0 may become it.
        "Cast" => given.is_some_and(|t| {
            let truths = [t, mask].iter().any(|&t| patch.ty(t).dtype == DType::Bool);
            truths && is_half(patch, t, half, scores)
        }),
        "Not" => given.is_some_and(|t| is_half(patch, t, other, scores)),
        "Equal" => zero(1) && given.is_some_and(|t| is_half(patch, t, other, scores)),
        "Trilu" => is_trilu(patch, layer, half) && given.and_then(|t| uniform(patch, t)).is_some_and(|v| v != 0.0),
        _ => false,
    }
}

/// Whether a Trilu layer keeps just this half.
fn is_trilu(patch: &Patch, layer: &Layer, half: Half) -> bool {
    let k = match input(layer, 1) {
        Some(k) => uniform(patch, k),
        None => Some(0.0),
    };
    match half {
        Half::Seen => !layer.attrs.flag("upper") && k == Some(0.0),
        Half::Hidden => layer.attrs.flag("upper") && k == Some(1.0),
    }
}

/// The number that all elements are.
fn uniform(patch: &Patch, t: TensorId) -> Option<f64> {
    if let Some(constant) = patch.tensor(t).constant() {
        return constant.uniform();
    }
    let layer = patch.producer(t)?;
    match layer.op.name {
        "Expand" => uniform(patch, input(layer, 0)?),
        _ => None,
    }
}
