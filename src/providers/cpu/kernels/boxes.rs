//! Ops whose result is boxes of their input: Slice, Pad, Expand, Tile. Where data tells the boxes: see `bounds`.

use super::copy::{Move, Mover, Origin};
use super::region::{Span, copy_box, fill_box, zero_padding};
use super::scope::{Scope, uniform_forms};
use super::{Answer, Why};
use crate::error::Result;
use crate::network::array::{Array, require};
use crate::network::attr::Read;
use crate::network::dim::Dim;
use crate::network::ops::pad;
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Alias, Form, Kernel, Prepared, Request};
use crate::providers::common::slices::{self, Places};
use std::ops::Range;

/// Slice, Pad, Expand and Tile where the shapes determine the boxes.
pub fn offer(scope: &Scope) -> Answer {
    let rank = scope.output_type(0).rank();
    let mut alias = Alias::None;
    let rule = match scope.op() {
        "Slice" => {
            let places = slices::places(scope)?;
            alias = slices::alias(scope, &places);
            Rule::Slice(places)
        }
        "Pad" => pad(scope)?,
        "Expand" => Rule::Expand,
        "Tile" => Rule::Tile,
        _ => return Ok(vec![]),
    };
    let keeps_rank = scope.input_type(0).is_some_and(|x| x.rank() == rank);
    let kernel = Boxes {
        name: scope.op(),
        identity: format!("{} {:?} {:?}", scope.op(), scope.layer().attrs, rule),
        layouts: Layout::ALL
            .into_iter()
            .filter(|l| *l == Layout::Plain || keeps_rank && l.fits(rank))
            .collect(),
        rule,
        alias,
    };
    Ok(vec![scope.alone(kernel, &[0])])
}

#[derive(Debug)]
enum Rule {
    Slice(Places),
    /// Elements before each axis, how indices outside repeat, and what fills the rest.
    Pad(Vec<Dim>, Border, Array),
    Expand,
    Tile,
}

/// What stands outside of a padded tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Border {
    Constant,
    Edge,
    Reflect,
    Wrap,
}

impl Border {
    /// What a Pad asks for.
    pub(super) fn of(scope: &Scope) -> Border {
        match scope.layer().attrs.text("mode") {
            "edge" => Border::Edge,
            "reflect" => Border::Reflect,
            "wrap" => Border::Wrap,
            _ => Border::Constant,
        }
    }
}

fn pad(scope: &Scope) -> std::result::Result<Rule, Why> {
    let (pads, ty) = (scope.known(1)?, scope.output_type(0));
    let axes = scope.numbers(3)?.unwrap_or_else(|| (0..ty.rank() as i64).collect());
    let mut before = vec![Dim::default(); ty.rank()];
    for (&axis, count) in axes.iter().zip(pads) {
        before[ty.axis(axis).map_err(|e| Why::new(e.message()))?] = count;
    }
    let border = Border::of(scope);
    let value = match (scope.input(2), scope.constant(2)) {
        (None, _) => Array::scalar(ty.dtype, 0.0),
        (Some(_), Some(value)) => value.clone(),
        _ => return Err(Why::new("the value to fill with depends on data")),
    };
    Ok(Rule::Pad(before, border, value))
}

struct Boxes {
    name: &'static str,
    identity: String,
    layouts: Vec<Layout>,
    rule: Rule,
    /// How the result may lie in the input.
    alias: Alias,
}

impl Kernel for Boxes {
    fn name(&self) -> String {
        self.name.into()
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn forms(&self) -> Vec<Form> {
        uniform_forms(&self.layouts, 1, 1)
    }

    fn alias(&self, _form: &Form) -> Alias {
        self.alias.clone()
    }

    fn takes_slices(&self, _form: &Form) -> (bool, bool) {
        (true, true)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let (from, to) = (&request.inputs[0], &request.outputs[0]);
        let mut moves = zero_padding(0, to);
        moves.extend(match &self.rule {
            Rule::Slice(places) => {
                let place = |(start, step): &(Option<Dim>, i64)| {
                    let start = start.as_ref().map(|start| start.eval(request.binding));
                    Ok((start.transpose()?, *step))
                };
                sliced(&places.iter().map(place).collect::<Result<Vec<_>>>()?, from, to)
            }
            Rule::Pad(before, border, value) => {
                let count = |count: &Dim| count.eval(request.binding);
                let before: Vec<i64> = before.iter().map(count).collect::<Result<_>>()?;
                padded(&before, *border, value, from, to)?
            }
            Rule::Expand | Rule::Tile => repeated(from, to)?,
        });
        Ok(Prepared::new("strided copy", Mover::new(moves)))
    }
}

/// The copies of a slice: for each axis the first place, counted and clamped as ONNX says, and the step.
pub(super) fn sliced(places: &[(Option<i64>, i64)], from: &Operand, to: &Operand) -> Vec<Move> {
    let mut spans = vec![];
    for (axis, &(start, step)) in places.iter().enumerate() {
        let size = from.shape[axis] as i64;
        let place = start.unwrap_or(0);
        let place = if place < 0 { place.saturating_add(size) } else { place };
        let first = place.clamp(0, if step > 0 { size } else { (size - 1).max(0) });
        spans.push(Span {
            from: first as isize,
            step: step as isize,
            ..Span::whole(axis, to.shape[axis])
        });
    }
    copy_box(Origin::Input(0), from, 0, to, &spans)
}

/// The parts of one axis of a padded tensor: each a span, or none where it is filled.
fn parts(axis: usize, before: i64, from: usize, to: usize, border: Border) -> Vec<(Span, bool)> {
    let (size, total) = (from as i64, to as i64);
    let inside = before.clamp(0, total)..(before + size).clamp(0, total);
    let span = |at: i64, from: i64, step: isize, count: i64| Span {
        axis: Some(axis),
        from: from as isize,
        step,
        to: at as isize,
        size: count as usize,
    };
    let mut parts = vec![(
        span(inside.start, inside.start - before, 1, inside.end - inside.start),
        true,
    )];
    for outside in [0..inside.start, inside.end..total] {
        match border {
            Border::Constant => parts.push((span(outside.start, 0, 0, outside.end - outside.start), false)),
            _ => {
                let read = |at: i64| source(at - before, size, border);
                parts.extend(even(outside, read).map(|(at, step, count)| (span(at, read(at), step, count), true)));
            }
        }
    }
    parts.retain(|(span, _)| span.size > 0);
    parts
}

/// Stretches of places along which what `read` gives changes by the same step of at most 1: the first place, the step,
/// and how many.
fn even(mut places: Range<i64>, read: impl Fn(i64) -> i64) -> impl Iterator<Item = (i64, isize, i64)> {
    std::iter::from_fn(move || {
        let first = places.start;
        if places.is_empty() {
            return None;
        }
        let step_at = |at: i64| read(at + 1) - read(at);
        let step = if first + 1 < places.end { step_at(first) } else { 0 };
        let mut last = first;
        if step.abs() <= 1 {
            while last + 1 < places.end && step_at(last) == step {
                last += 1;
            }
        }
        places.start = last + 1;
        Some((first, step as isize, last + 1 - first))
    })
}

/// The element that an index outside of an axis repeats.
fn source(i: i64, size: i64, border: Border) -> i64 {
    match border {
        Border::Wrap => i.rem_euclid(size),
        Border::Reflect => {
            let period = (2 * (size - 1)).max(1);
            let i = i.rem_euclid(period);
            i.min(period - i).min(size - 1)
        }
        _ => i.clamp(0, size - 1),
    }
}

/// Bytes that a box takes in a list, about.
const EACH: usize = 128;

/// Asked before a list of boxes is made, which ends the process where there is no memory.
fn require_boxes(count: impl Iterator<Item = usize>) -> Result<()> {
    require(count.fold(EACH, usize::saturating_mul))
}

/// The copies of a padded tensor, given the elements before each axis.
///
/// # Errors
/// If there is not enough memory for a list of all parts.
pub(super) fn padded(before: &[i64], border: Border, value: &Array, from: &Operand, to: &Operand) -> Result<Vec<Move>> {
    if border != Border::Constant {
        pad::check_repeats(&from.shape, &to.shape)?;
    }
    let parts: Vec<_> = before
        .iter()
        .enumerate()
        .map(|(axis, &count)| parts(axis, count, from.shape[axis], to.shape[axis], border))
        .collect();
    require_boxes(parts.iter().map(Vec::len))?;
    let mut boxes: Vec<Vec<(Span, bool)>> = vec![vec![]];
    for parts in parts {
        let grow = |start: &Vec<(Span, bool)>| {
            let start = start.clone();
            parts
                .iter()
                .map(move |part| [start.as_slice(), &[*part]].concat())
                .collect::<Vec<_>>()
        };
        boxes = boxes.iter().flat_map(grow).collect();
    }
    let one = |spans: Vec<(Span, bool)>| {
        let copied = spans.iter().all(|(_, inside)| *inside);
        let spans: Vec<Span> = spans.into_iter().map(|(span, _)| span).collect();
        if copied {
            return copy_box(Origin::Input(0), from, 0, to, &spans);
        }
        let (starts, sizes): (Vec<usize>, Vec<usize>) = spans.iter().map(|s| (s.to as usize, s.size)).unzip();
        fill_box(value, 0, to, &starts, &sizes)
    };
    Ok(boxes.into_iter().flat_map(one).collect())
}

/// The input as often as it fits along each axis.
///
/// # Errors
/// If there is not enough memory for a list of all repetitions.
fn repeated(from: &Operand, to: &Operand) -> Result<Vec<Move>> {
    let lead = to.shape.len() - from.shape.len();
    let times = |(&total, &size): (&usize, &usize)| if size > 1 { total / size } else { 1 };
    require_boxes(to.shape[lead..].iter().zip(&from.shape).map(times))?;
    let mut boxes: Vec<Vec<Span>> = vec![vec![]];
    for (axis, &total) in to.shape.iter().enumerate() {
        let own = axis.checked_sub(lead);
        let size = own.map_or(1, |a| from.shape[a]);
        let spans: Vec<Span> = if size <= 1 {
            let axis = None;
            vec![Span {
                axis,
                step: 0,
                ..Span::whole(0, total)
            }]
        } else {
            let at = |i: usize| Span {
                axis: own,
                to: (i * size) as isize,
                ..Span::whole(0, size)
            };
            (0..total / size).map(at).collect()
        };
        let grow = |start: &Vec<Span>| {
            let start = start.clone();
            spans
                .iter()
                .map(move |span| [start.as_slice(), &[*span]].concat())
                .collect::<Vec<_>>()
        };
        boxes = boxes.iter().flat_map(grow).collect();
    }
    if from.elements() == 0 {
        return Ok(vec![]);
    }
    let copies = boxes
        .iter()
        .flat_map(|spans| copy_box(Origin::Input(0), from, 0, to, spans));
    Ok(copies.collect())
}

#[cfg(test)]
mod tests {
    use crate::network::array::Array;
    use crate::network::attr::{Attr, Attrs, attrs};
    use crate::network::dtype::DType;
    use crate::providers::cpu::kernels::testing::Case;

    #[test]
    fn slices_forwards_and_backwards() {
        for (start, end, axis, step) in [
            (0, 9, 1, 1),
            (3, -1, 1, 2),
            (-1, -100, 2, -1),
            (1, 100, 3, 1),
            (16, 32, 1, 1),
        ] {
            for channels in [8, 17, 40] {
                let mut case = Case::new(DType::Float32);
                let x = case.input(&format!("2 {channels} h 7"));
                let parts = [start, end, axis, step].map(|v| case.constant(Array::ints(&[v])));
                let y = case.op("Slice", &[&[x], &parts[..]].concat());
                case.output(y).check_fast(&[("h", 5)]);
            }
        }
    }

    #[test]
    fn pads_with_every_border() {
        for mode in ["constant", "edge", "reflect", "wrap"] {
            for channels in [3, 17] {
                let mut case = Case::new(DType::Float32);
                let x = case.input(&format!("1 {channels} h 4"));
                let pads = case.constant(Array::ints(&[0, 1, 2, 0, 0, 0, 1, 3]));
                let value = case.scalar(5.0);
                let mode = attrs([("mode", Attr::Text(mode.into()))]);
                let y = case.layer_of("Pad", mode, &[Some(x), Some(pads), Some(value)])[0];
                case.output(y).check_fast(&[("h", 5)]);
            }
        }
    }

    #[test]
    fn expands_and_tiles() {
        let mut case = Case::new(DType::Float32);
        let x = case.input("1 17 h 1");
        let shape = case.constant(Array::ints(&[2, 17, 5, 3]));
        let y = case.op("Expand", &[x, shape]);
        let repeats = case.constant(Array::ints(&[1, 2, 1, 3]));
        let z = case.op("Tile", &[x, repeats]);
        case.output(y).output(z).check_fast(&[("h", 5)]);
        let mut case = Case::new(DType::Int64);
        let x = case.input("h");
        let shape = case.constant(Array::ints(&[3, 5]));
        let y = case.op("Expand", &[x, shape]);
        case.output(y).check_fast(&[("h", 5)]);
    }

    #[test]
    fn moves_between_all_layouts() {
        for channels in [1, 3, 16, 17, 24, 40] {
            let mut case = Case::new(DType::Float32);
            let x = case.input(&format!("2 {channels} h 4"));
            let z = case.input("2 5 h 4");
            let cat = attrs([("axis", Attr::Int(1))]);
            let y = case.layer("Concat", cat, &[x, z, x]);
            let split = Attr::Ints(vec![channels, 5, channels]);
            let parts = case.layer_of("Split", attrs([("axis", Attr::Int(1)), ("split", split)]), &[Some(y)]);
            let t = case.layer("Transpose", attrs([("perm", Attr::Ints(vec![0, 2, 3, 1]))]), &[y]);
            let u = case.layer("Transpose", attrs([("perm", Attr::Ints(vec![0, 1, 3, 2]))]), &[y]);
            let shape = case.constant(Array::ints(&[2, -1]));
            let flat = case.layer_of("Reshape", Attrs::new(), &[Some(t), Some(shape)])[0];
            case.output(flat).output(parts[0]).output(u);
            case.check_fast(&[("h", 5)]);
        }
    }
}
