//! Strided copies: what every kernel that only moves data comes down to.

use super::parallel::{self, Shared};
use super::transpose_tile::transpose_tile;
use crate::error::Result;
use crate::network::array::Array;
use crate::plan::{Call, Launcher};
use std::ops::Range;

/// One axis of a copy, in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    /// Number of steps.
    pub size: usize,
    /// From one element to the next in the source.
    pub from: isize,
    /// The same in the target.
    pub to: isize,
}

/// What a copy reads.
#[derive(Clone)]
pub enum Origin {
    /// An input of the kernel.
    Input(usize),
    /// What the instance keeps itself.
    Kept(Array),
}

/// A copy of a grid of elements.
#[derive(Clone)]
pub struct Move {
    /// What is read.
    pub origin: Origin,
    /// The output that is written.
    pub output: usize,
    /// The first element in the source.
    pub from: isize,
    /// The first element in the target.
    pub to: isize,
    /// The grid.
    pub axes: Vec<Axis>,
    /// Bytes of an element.
    pub size: usize,
}

/// How the innermost axes are copied.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Inner {
    /// Runs of bytes.
    Run(usize),
    /// Element by element along one axis.
    Steps(Axis),
    /// Two axes that change places: the one that is dense in the source, the one that is dense in the target.
    Turn(Axis, Axis),
}

/// Edge of the tiles in which two axes change places.
const EDGE: usize = 16;
/// Bytes that a thread should at least move.
const GRAIN: usize = 32 << 10;

/// A copy, ready to run.
struct Prepared {
    origin: Origin,
    output: usize,
    from: isize,
    to: isize,
    size: usize,
    outer: Vec<Axis>,
    inner: Inner,
    units: usize,
    grain: usize,
}

impl Move {
    fn prepare(self) -> Option<Prepared> {
        let elements: usize = self.axes.iter().map(|a| a.size).product();
        if elements == 0 {
            return None;
        }
        let mut outer = join(self.axes);
        let (inner, unit) = take_inner(&mut outer, self.size);
        let tiles = match inner {
            Inner::Turn(dense_from, dense_to) => dense_from.size.div_ceil(EDGE) * dense_to.size.div_ceil(EDGE),
            _ => 1,
        };
        let units = outer.iter().map(|a| a.size).product::<usize>() * tiles;
        Some(Prepared {
            origin: self.origin,
            output: self.output,
            from: self.from,
            to: self.to,
            size: self.size,
            outer,
            inner,
            units,
            grain: (GRAIN / (unit / tiles).max(1)).max(1),
        })
    }
}

/// Axes in the order of the target, neighbours that are even in both joined; at least one.
fn join(mut axes: Vec<Axis>) -> Vec<Axis> {
    axes.retain(|a| a.size != 1);
    axes.sort_by_key(|a| std::cmp::Reverse(a.to.unsigned_abs()));
    let mut joined: Vec<Axis> = vec![];
    for axis in axes {
        match joined.last_mut() {
            Some(last) if last.from == axis.from * axis.size as isize && last.to == axis.to * axis.size as isize => {
                *last = Axis {
                    size: last.size * axis.size,
                    ..axis
                };
            }
            _ => joined.push(axis),
        }
    }
    if joined.is_empty() {
        joined.push(Axis {
            size: 1,
            from: 1,
            to: 1,
        });
    }
    joined
}

/// Takes the axes of the inner copy away; gives it, and the bytes that it moves.
fn take_inner(axes: &mut Vec<Axis>, size: usize) -> (Inner, usize) {
    let last = axes.pop().unwrap_or(Axis {
        size: 1,
        from: 1,
        to: 1,
    });
    if (last.from, last.to) == (1, 1) {
        return (Inner::Run(last.size * size), last.size * size);
    }
    let dense = axes.iter().position(|a| a.from == 1 && a.to > 0);
    match dense.filter(|_| last.to == 1 && last.from > 1) {
        Some(at) => {
            let turned = axes.remove(at);
            (Inner::Turn(turned, last), turned.size * last.size * size)
        }
        None => (Inner::Steps(last), last.size * size),
    }
}

impl Prepared {
    /// Runs the units of a range.
    ///
    /// # Safety
    /// The grid must lie within the memory at both addresses.
    unsafe fn run(&self, source: *const u8, target: *mut u8, range: Range<usize>) {
        let tiles = match self.inner {
            Inner::Turn(a, b) => (a.size.div_ceil(EDGE), b.size.div_ceil(EDGE)),
            _ => (1, 1),
        };
        let per_outer = tiles.0 * tiles.1;
        let mut unit = range.start;
        while unit < range.end {
            let (outer, tile) = (unit / per_outer, unit % per_outer);
            let (from, to) = self.offsets(outer);
            let scale = self.size as isize;
            // SAFETY: the caller's promise; the offsets are those of elements of the grid.
            unsafe {
                let (from, to) = (source.offset(from * scale), target.offset(to * scale));
                match self.inner {
                    Inner::Run(bytes) => std::ptr::copy_nonoverlapping(from, to, bytes),
                    Inner::Steps(axis) => steps(self.size, axis, from, to),
                    Inner::Turn(rows, columns) => {
                        let end = per_outer.min(tile + range.end - unit);
                        (tile..end).for_each(|t| turn(self.size, rows, columns, t / tiles.1, t % tiles.1, from, to));
                        unit += end - tile - 1;
                    }
                }
            }
            unit += 1;
        }
    }

    fn offsets(&self, mut outer: usize) -> (isize, isize) {
        let (mut from, mut to) = (self.from, self.to);
        for axis in self.outer.iter().rev() {
            let at = (outer % axis.size) as isize;
            outer /= axis.size;
            from += at * axis.from;
            to += at * axis.to;
        }
        (from, to)
    }
}

unsafe fn steps(size: usize, axis: Axis, from: *const u8, to: *mut u8) {
    unsafe fn typed<T: Copy>(axis: Axis, from: *const u8, to: *mut u8) {
        let (from, to) = (from.cast::<T>(), to.cast::<T>());
        // SAFETY: the caller's promise.
        unsafe {
            if axis.from == 0 && axis.to == 1 {
                std::slice::from_raw_parts_mut(to, axis.size).fill(*from);
            } else {
                (0..axis.size as isize).for_each(|i| to.offset(i * axis.to).write(*from.offset(i * axis.from)));
            }
        }
    }
    // SAFETY: the caller's promise.
    unsafe {
        match size {
            1 => typed::<u8>(axis, from, to),
            2 => typed::<u16>(axis, from, to),
            4 => typed::<u32>(axis, from, to),
            _ => typed::<u64>(axis, from, to),
        }
    }
}

/// Turns one tile: `rows` is dense in the source, `columns` in the target.
unsafe fn turn(size: usize, rows: Axis, columns: Axis, row: usize, column: usize, from: *const u8, to: *mut u8) {
    let (r, c) = (row * EDGE, column * EDGE);
    let extent = ((rows.size - r).min(EDGE), (columns.size - c).min(EDGE));
    let scale = size as isize;
    let (r, c) = (r as isize, c as isize);
    // SAFETY: the caller's promise; the tile lies within both axes.
    unsafe {
        let from = from.offset((r + c * columns.from) * scale);
        let to = to.offset((r * rows.to + c) * scale);
        transpose_tile(size, extent, from, columns.from, to, rows.to);
    }
}

/// What only moves data.
pub struct Mover {
    moves: Vec<Prepared>,
    bytes: usize,
}

impl Mover {
    /// What does these copies, which write different elements.
    pub fn new(moves: Vec<Move>) -> Self {
        let moves: Vec<_> = moves.into_iter().filter_map(Move::prepare).collect();
        let bytes = |m: &Prepared| {
            let inner = match m.inner {
                Inner::Run(bytes) => bytes,
                Inner::Steps(axis) => axis.size * m.size,
                Inner::Turn(..) => EDGE * EDGE * m.size,
            };
            inner * m.units
        };
        Self {
            bytes: moves.iter().map(bytes).sum(),
            moves,
        }
    }
}

impl Launcher for Mover {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let call = Shared(call);
        for one in &self.moves {
            let work = |range: Range<usize>| {
                let call = call.get();
                let source = match &one.origin {
                    Origin::Input(i) => call.inputs[*i],
                    Origin::Kept(array) => array.bytes().as_ptr(),
                };
                // SAFETY: the planner gives addresses that hold the operands for which the grids were made.
                unsafe { one.run(source, call.outputs[one.output], range) }
            };
            let grain = if self.bytes <= GRAIN { one.units } else { one.grain };
            parallel::over(one.units, grain, work)?;
        }
        Ok(())
    }
}
