//! NonMaxSuppression.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType};
use std::ops::Range;

/// The best boxes that do not overlap better ones (ONNX NonMaxSuppression).
pub static DEF: OpDef = OpDef {
    name: "NonMaxSuppression",
    doc: "For boxes [batches, n, 4] with scores [batches, classes, n] those that overlap no better one of their class: \
          int64 [count, 3] of batch, class and box, the best of each class first (ONNX NonMaxSuppression)",
    inputs: &["boxes", "scores", "most?", "overlap?", "least?"],
    attrs: &[attr(
        "center_point_box",
        Preset::Int(0),
        "boxes are (x, y, width, height) around their centre instead of (y1, x1, y2, x2)",
    )],
    infer,
    evaluate,
    lowering: Lowering::WIDE,
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (boxes, scores) = (infer.input(0)?, infer.input(1)?);
    if boxes.rank() != 3 || scores.rank() != 3 || boxes.shape[2].as_const().is_some_and(|n| n != 4) {
        return Err(Error::shape("boxes and scores do not go together")
            .expected("boxes [batches, n, 4] and scores [batches, classes, n]")
            .got(format!("{} and {}", boxes.describe(), scores.describe())));
    }
    infer.require_equal(
        &boxes.shape[0],
        &scores.shape[0],
        "boxes and scores have as many batches",
    )?;
    infer.require_equal(&boxes.shape[1], &scores.shape[2], "each box has a score")?;
    let shape = vec![infer.counted(0), Dim::from(3i64)];
    Ok(vec![TensorType::new(DType::Int64, shape)])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (boxes, scores) = (e.input(0)?, e.input(1)?);
    let scalar = |index: usize| e.optional(index).and_then(|a| a.to_f64().first().copied());
    let most = scalar(2).unwrap_or(0.0).max(0.0) as usize;
    let (overlap, least) = (scalar(3).unwrap_or(0.0), scalar(4));
    let centred = e.attrs.flag("center_point_box");
    let (corners, values) = (boxes.to_f64(), scores.to_f64());
    let corners: Vec<Corners> = corners.chunks_exact(4).map(|b| Corners::of(b, centred)).collect();
    let [_, classes, count] = *scores.shape() else {
        return Err(Error::shape("scores must have three dimensions"));
    };
    let mut found = vec![];
    for (row, scores) in values.chunks_exact(count.max(1)).enumerate() {
        let (batch, class) = (row / classes, row % classes);
        let boxes = &corners[batch * count..][..count];
        let kept = suppress(boxes, scores, most, overlap, least);
        found.extend(kept.into_iter().flat_map(|at| [batch as i64, class as i64, at as i64]));
    }
    Ok(vec![Array::from_i64(DType::Int64, vec![found.len() / 3, 3], &found)?])
}

/// Greedy, the best first; of equal scores the first.
fn suppress(boxes: &[Corners], scores: &[f64], most: usize, overlap: f64, least: Option<f64>) -> Vec<usize> {
    let mut order: Vec<usize> = (0..boxes.len())
        .filter(|&i| least.is_none_or(|least| scores[i] > least))
        .collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    let (mut strips, mut places) = (Strips::of(boxes, &order, overlap), vec![]);
    for i in order {
        if places.len() >= most {
            break;
        }
        let around = strips.around(&boxes[i]);
        if !strips.kept[around.clone()]
            .iter()
            .any(|kept| kept.overlaps(&boxes[i], overlap))
        {
            strips.kept[around].iter_mut().for_each(|kept| kept.push(&boxes[i]));
            places.push(i);
        }
    }
    places
}

/// The kept boxes by where they lie along one axis: those that overlap share a strip. Models put the classes next to each
/// other, and compare a hundred thousand boxes.
struct Strips {
    kept: Vec<Kept>,
    start: f64,
    width: f64,
}

/// So many boxes a strip are few enough.
const FEW: usize = 16;

impl Strips {
    /// Strips about as wide as the boxes.
    fn of(boxes: &[Corners], order: &[usize], overlap: f64) -> Self {
        let (mut start, mut end, mut widths) = (f64::INFINITY, f64::NEG_INFINITY, 0.0);
        for corners in order.iter().map(|&i| &boxes[i]) {
            (start, end) = (start.min(corners.low[1]), end.max(corners.high[1]));
            widths += corners.high[1] - corners.low[1];
        }
        let wanted = (end - start) * order.len() as f64 / widths;
        // Below 0 even boxes that are apart overlap, and where a number is not finite nobody knows.
        let count = if overlap >= 0.0 && wanted.is_finite() {
            wanted as usize
        } else {
            1
        };
        let count = count.clamp(1, (order.len() / FEW).max(1));
        let width = (end - start) / count as f64;
        Self {
            kept: (0..count).map(|_| Kept::default()).collect(),
            start,
            width,
        }
    }

    /// The strips that a box touches.
    fn around(&self, corners: &Corners) -> Range<usize> {
        let last = self.kept.len() - 1;
        // A number that is not one becomes 0; so does whatever lies before the first strip.
        let strip = |place: f64| (((place - self.start) / self.width) as usize).min(last);
        match last {
            0 => 0..1,
            _ => strip(corners.low[1])..strip(corners.high[1]) + 1,
        }
    }
}

/// The boxes that are kept so far, a list for each coordinate: models compare each box with thousands.
#[derive(Default)]
struct Kept {
    low: [Vec<f64>; 2],
    high: [Vec<f64>; 2],
    area: Vec<f64>,
}

/// So many boxes are compared before it is asked whether one overlaps.
const BLOCK: usize = 32;

impl Kept {
    fn push(&mut self, corners: &Corners) {
        for axis in 0..2 {
            self.low[axis].push(corners.low[axis]);
            self.high[axis].push(corners.high[axis]);
        }
        self.area.push(corners.area());
    }

    /// Whether intersection over union with one of them is more than `limit`; it is 0 where the union is empty.
    fn overlaps(&self, corners: &Corners, limit: f64) -> bool {
        let ([low, left], [high, right], area) = (corners.low, corners.high, corners.area());
        (0..self.area.len()).step_by(BLOCK).any(|first| {
            let block = first..(first + BLOCK).min(self.area.len());
            let lows = self.low[0][block.clone()].iter().zip(&self.low[1][block.clone()]);
            let highs = self.high[0][block.clone()].iter().zip(&self.high[1][block.clone()]);
            let boxes = lows.zip(highs).zip(&self.area[block]);
            boxes.fold(false, |found, (((l, f), (h, r)), own)| {
                let shared = extent(less(*h, high) - more(*l, low)) * extent(less(*r, right) - more(*f, left));
                let union = own + area - shared;
                let over = if union > 0.0 {
                    shared > limit * union
                } else {
                    limit < 0.0
                };
                found | over
            })
        })
    }
}

// Without the care for NaN of `f64::min` and `f64::max`, which keeps the loop from becoming vectors.
fn less(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

fn more(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

fn extent(difference: f64) -> f64 {
    if difference > 0.0 { difference } else { 0.0 }
}

struct Corners {
    low: [f64; 2],
    high: [f64; 2],
}

impl Corners {
    fn of(given: &[f64], centred: bool) -> Self {
        let &[a, b, c, d] = given else {
            return Self {
                low: [0.0; 2],
                high: [0.0; 2],
            };
        };
        if centred {
            let (width, height) = (c / 2.0, d / 2.0);
            return Self {
                low: [a - width, b - height],
                high: [a + width, b + height],
            };
        }
        Self {
            low: [a.min(c), b.min(d)],
            high: [a.max(c), b.max(d)],
        }
    }

    fn area(&self) -> f64 {
        (0..2).map(|i| (self.high[i] - self.low[i]).max(0.0)).product()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_find_what_all_pairs_find() {
        let mut state = 1u64;
        let mut random = |end: f64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as f64 / (1u64 << 24) as f64 * end
        };
        for overlap in [0.0, 0.3, 0.7] {
            let mut one = || {
                let (y, x) = (random(50.0), random(900.0));
                Corners::of(&[y, x, y + random(20.0), x + random(30.0)], false)
            };
            let boxes: Vec<Corners> = (0..700).map(|_| one()).collect();
            let scores: Vec<f64> = (0..700).map(|i| f64::from(i * 37 % 701)).collect();
            let mut order: Vec<usize> = (0..boxes.len()).collect();
            order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
            let (mut all, mut want) = (Kept::default(), vec![]);
            for i in order {
                if !all.overlaps(&boxes[i], overlap) {
                    all.push(&boxes[i]);
                    want.push(i);
                }
            }
            assert_eq!(suppress(&boxes, &scores, usize::MAX, overlap, None), want);
        }
    }
}
