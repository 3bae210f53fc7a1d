//! Boxes of one operand copied to boxes of another, whatever the layouts of the two.

use super::copy::{Axis, Move, Origin};
use super::operand_strides::BLOCK;
use crate::network::array::Array;
use crate::plan::layout::{Layout, Operand};

/// An operand seen for copying: the strides of its axes, and how its channels lie.
struct Lens {
    strides: Vec<isize>,
    /// From one block of channels to the next; none where channels lie evenly.
    block: Option<isize>,
}

impl Lens {
    fn of(operand: &Operand) -> Lens {
        let axes = super::operand_strides::axes(operand);
        Lens {
            strides: axes.strides.iter().map(|&s| s as isize).collect(),
            block: (operand.layout == Layout::Blocked16).then_some(axes.block as isize),
        }
    }

    /// The offset of channel `c` against channel 0.
    fn channel(&self, c: isize) -> isize {
        match self.block {
            Some(block) => c / BLOCK as isize * block + c % BLOCK as isize,
            None => c * self.strides.get(1).copied().unwrap_or(0),
        }
    }
}

/// One axis of a box.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// The axis of the source; none where it repeats one element.
    pub axis: Option<usize>,
    /// The first place in the source.
    pub from: isize,
    /// Step in the source.
    pub step: isize,
    /// The first place in the target.
    pub to: isize,
    /// Number of places.
    pub size: usize,
}

impl Span {
    /// All of an axis, to the same place.
    pub fn whole(axis: usize, size: usize) -> Span {
        Span {
            axis: Some(axis),
            from: 0,
            step: 1,
            to: 0,
            size,
        }
    }
}

/// The copies that bring a box of the source to a box of the target; `spans` are those of the target's axes in order.
pub fn copy_box(origin: Origin, from: &Operand, output: usize, to: &Operand, spans: &[Span]) -> Vec<Move> {
    let (source, target) = (Lens::of(from), Lens::of(to));
    let mut start = Move {
        origin,
        output,
        from: 0,
        to: 0,
        axes: vec![],
        size: to.dtype.size(),
    };
    let mut in_blocks = vec![];
    for (axis, span) in spans.iter().enumerate() {
        let blocked = (span.axis == Some(1) && source.block.is_some()) || (axis == 1 && target.block.is_some());
        if blocked {
            in_blocks.push((axis, *span));
            continue;
        }
        let stride = span.axis.map_or(0, |a| source.strides[a]);
        start.from += span.from * stride;
        start.to += span.to * target.strides[axis];
        start.axes.push(Axis {
            size: span.size,
            from: span.step * stride,
            to: target.strides[axis],
        });
    }
    in_blocks.into_iter().fold(vec![start], |moves, (axis, span)| {
        split(moves, &source, &target, axis, span)
    })
}

/// Splits copies along an axis that lies in blocks of channels on one side or both.
fn split(moves: Vec<Move>, source: &Lens, target: &Lens, axis: usize, span: Span) -> Vec<Move> {
    let from_at = |i: usize| {
        let place = span.from + i as isize * span.step;
        match span.axis {
            Some(1) => source.channel(place),
            Some(a) => place * source.strides[a],
            None => 0,
        }
    };
    let to_at = |i: usize| {
        let place = span.to + i as isize;
        if axis == 1 {
            target.channel(place)
        } else {
            place * target.strides[axis]
        }
    };
    let pieces = pieces(span.size, &from_at, &to_at);
    let each = |one: &Move| {
        let place = |p: &Piece| {
            let mut placed = one.clone();
            placed.from += p.from;
            placed.to += p.to;
            placed.axes.extend([p.outer, p.inner]);
            placed
        };
        pieces.iter().map(place).collect::<Vec<_>>()
    };
    moves.iter().flat_map(each).collect()
}

/// A part of an axis that is even in both source and target: equal runs, evenly spaced.
struct Piece {
    from: isize,
    to: isize,
    outer: Axis,
    inner: Axis,
}

fn pieces(size: usize, from_at: &dyn Fn(usize) -> isize, to_at: &dyn Fn(usize) -> isize) -> Vec<Piece> {
    // Runs along which both sides step evenly.
    let mut runs: Vec<(usize, Axis)> = vec![];
    for i in 0..size {
        let step = |axis: &Axis, start: usize| {
            let at = (i - start) as isize;
            from_at(i) == from_at(start) + at * axis.from && to_at(i) == to_at(start) + at * axis.to
        };
        let whole_block = |axis: &Axis| axis.size >= BLOCK;
        match runs.last_mut() {
            Some((start, axis)) if axis.size == 1 => {
                axis.from = from_at(i) - from_at(*start);
                axis.to = to_at(i) - to_at(*start);
                axis.size = 2;
            }
            Some((start, axis)) if !whole_block(axis) && step(axis, *start) => axis.size += 1,
            _ => runs.push((
                i,
                Axis {
                    size: 1,
                    from: 0,
                    to: 0,
                },
            )),
        }
    }
    // Equal runs, evenly spaced.
    let mut pieces: Vec<Piece> = vec![];
    for (start, inner) in runs {
        let (from, to) = (from_at(start), to_at(start));
        if let Some(last) = pieces.last_mut().filter(|p| p.inner == inner) {
            let count = last.outer.size as isize;
            let even = |first: isize, step: isize, now: isize| count == 1 || first + count * step == now;
            if even(last.from, last.outer.from, from) && even(last.to, last.outer.to, to) {
                if count == 1 {
                    last.outer.from = from - last.from;
                    last.outer.to = to - last.to;
                }
                last.outer.size += 1;
                continue;
            }
        }
        let outer = Axis {
            size: 1,
            from: 0,
            to: 0,
        };
        pieces.push(Piece { from, to, outer, inner });
    }
    pieces
}

/// A copy that fills a box of the target with one value.
pub fn fill_box(value: &Array, output: usize, to: &Operand, starts: &[usize], sizes: &[usize]) -> Vec<Move> {
    let span = |(&start, &size): (&usize, &usize)| Span {
        axis: None,
        from: 0,
        step: 0,
        to: start as isize,
        size,
    };
    let spans: Vec<Span> = starts.iter().zip(sizes).map(span).collect();
    let scalar = Operand::dense(value.dtype(), vec![1; sizes.len()], Layout::Plain);
    copy_box(Origin::Kept(value.clone()), &scalar, output, to, &spans)
}

/// A copy that zeroes what lies beyond the last channel of a target in blocks.
pub fn zero_padding(output: usize, to: &Operand) -> Vec<Move> {
    let channels = to.shape.get(1).copied().unwrap_or(0);
    let missing = to.layout.padded_channels(channels) - channels;
    if to.layout != Layout::Blocked16 || missing == 0 {
        return vec![];
    }
    let mut starts = vec![0; to.shape.len()];
    let mut sizes = to.shape.clone();
    starts[1] = channels;
    sizes[1] = missing;
    fill_box(&Array::scalar(to.dtype, 0.0), output, to, &starts, &sizes)
}
