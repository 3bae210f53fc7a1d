//! NonMaxSuppression.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::op::{Decomposition, Evaluate, Infer, OpDef, TensorType};

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
    pointwise: None,
    decomposition: Decomposition::None,
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
    let (mut kept, mut places) = (Kept::default(), vec![]);
    for i in order {
        if places.len() >= most {
            break;
        }
        if !kept.overlaps(&boxes[i], overlap) {
            kept.push(&boxes[i]);
            places.push(i);
        }
    }
    places
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
