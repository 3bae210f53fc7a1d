//! The elements of a reduction as strided grids: those that are kept, and those that meet in one.

use crate::plan::layout::{Layout, Operand};
use crate::providers::cpu::kernels::operand_strides::{self, BLOCK};
use std::ops::Range;

/// Places in memory along some axes, in elements.
#[derive(Debug, Clone)]
pub struct Grid {
    /// The first place in the source.
    pub from: usize,
    /// The first place in the target (0 throughout for axes that are reduced).
    pub to: usize,
    /// Extent, and strides in source and target; the innermost axis comes last, and there is at least one.
    pub axes: Vec<[usize; 3]>,
}

impl Grid {
    /// The number of places.
    pub fn len(&self) -> usize {
        self.axes.iter().map(|[size, ..]| size).product()
    }

    /// The innermost axis.
    pub fn inner(&self) -> [usize; 3] {
        self.axes.last().copied().unwrap_or([1; 3])
    }

    /// The places along all axes but the innermost one.
    pub fn outer(&self) -> usize {
        self.axes[..self.axes.len() - 1].iter().map(|[size, ..]| size).product()
    }

    /// Source and target of a place by its number, counted along all axes but the innermost one.
    pub fn at(&self, mut number: usize) -> (usize, usize) {
        let (mut from, mut to) = (self.from, self.to);
        for [size, s, t] in self.axes[..self.axes.len() - 1].iter().rev() {
            let i = number % size;
            number /= size;
            from += i * s;
            to += i * t;
        }
        (from, to)
    }

    /// The part of the grid that lies in this range of its longest axis.
    pub fn part(&self, range: Range<usize>) -> Grid {
        let mut part = self.clone();
        let longest = self.longest();
        let [size, s, t] = &mut part.axes[longest];
        part.from += range.start * *s;
        part.to += range.start * *t;
        *size = range.len();
        part
    }

    /// The number of the longest axis.
    fn longest(&self) -> usize {
        let by_size = |&i: &usize| self.axes[i][0];
        (0..self.axes.len()).rev().max_by_key(by_size).unwrap_or(0)
    }

    /// The extent of the longest axis.
    pub fn length(&self) -> usize {
        self.axes[self.longest()][0]
    }

    /// Makes the innermost axis one of a single place, unless it is dense in the source already.
    pub fn end_dense(&mut self) {
        if self.inner()[1] != 1 {
            self.axes.push([1; 3]);
        }
    }
}

/// The grids of kept elements, and those whose elements meet in each of them.
pub fn split(from: &Operand, to: &Operand, reduced: &[usize], keeps: bool) -> (Vec<Grid>, Vec<Grid>) {
    let is_reduced = |axis: &usize| reduced.contains(axis);
    let all = 0..from.shape.len();
    let kept: Vec<usize> = all.filter(|a| !is_reduced(a)).collect();
    let (source, target) = (Side::of(from), Side::of(to));
    let along_kept = kept.iter().enumerate().map(|(i, &axis)| {
        let out = if keeps { axis } else { i };
        pieces(from.shape[axis], source.steps(axis), target.steps(out))
    });
    let along_reduced = reduced
        .iter()
        .map(|&axis| pieces(from.shape[axis], source.steps(axis), [0, 0]));
    (product(along_kept), product(along_reduced))
}

/// One operand of a reduction.
struct Side {
    axes: operand_strides::Axes,
    blocked: bool,
}

impl Side {
    fn of(operand: &Operand) -> Side {
        Side {
            axes: operand_strides::axes(operand),
            blocked: operand.layout == Layout::Blocked16,
        }
    }

    /// From one element to the next along an axis, and from one block of 16 to the next.
    fn steps(&self, axis: usize) -> [usize; 2] {
        let stride = self.axes.strides[axis];
        let block = if self.blocked && axis == 1 {
            self.axes.block
        } else {
            BLOCK * stride
        };
        [stride, block]
    }
}

/// One axis as grids that are even on both sides: whole, or whole blocks of channels and what is left.
fn pieces(size: usize, from: [usize; 2], to: [usize; 2]) -> Vec<Grid> {
    let even = |steps: [usize; 2]| steps[1] == BLOCK * steps[0];
    let grid = |from, to, axes| Grid { from, to, axes };
    if even(from) && even(to) {
        return vec![grid(0, 0, vec![[size, from[0], to[0]]])];
    }
    let (blocks, rest) = (size / BLOCK, size % BLOCK);
    let whole = grid(0, 0, vec![[blocks, from[1], to[1]], [BLOCK, from[0], to[0]]]);
    let rest = grid(blocks * from[1], blocks * to[1], vec![[rest, from[0], to[0]]]);
    [whole, rest].into_iter().filter(|g| g.len() > 0).collect()
}

/// Every combination of the pieces of several axes, with their axes in the order of memory and joined.
fn product(axes: impl Iterator<Item = Vec<Grid>>) -> Vec<Grid> {
    let nothing = Grid {
        from: 0,
        to: 0,
        axes: vec![],
    };
    let grids = axes.fold(vec![nothing], |grids, pieces| {
        let both = |a: &Grid, b: &Grid| Grid {
            from: a.from + b.from,
            to: a.to + b.to,
            axes: [a.axes.as_slice(), &b.axes].concat(),
        };
        grids
            .iter()
            .flat_map(|a| pieces.iter().map(move |b| both(a, b)))
            .collect()
    });
    grids.into_iter().filter(|g| g.len() > 0).map(joined).collect()
}

fn joined(mut grid: Grid) -> Grid {
    grid.axes.sort_by_key(|[_, from, _]| std::cmp::Reverse(*from));
    let column = |i: usize| grid.axes.iter().map(|axis| axis[i]).collect::<Vec<_>>();
    let (sizes, strides) = operand_strides::coalesce(&column(0), &[&column(1), &column(2)]);
    let axes = (0..sizes.len()).map(|i| [sizes[i], strides[0][i], strides[1][i]]);
    grid.axes = axes.collect();
    grid
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::dtype::DType;

    type Axes = Vec<Vec<[usize; 3]>>;

    fn axes(layout: Layout, channels: usize, reduced: &[usize]) -> (Axes, Axes) {
        let from = Operand::dense(DType::Float32, vec![2, channels, 3, 5], layout);
        let shape = (0..4).map(|a| if reduced.contains(&a) { 1 } else { from.shape[a] });
        let to = Operand::dense(DType::Float32, shape.collect(), layout);
        let (kept, reduced) = split(&from, &to, reduced, true);
        let axes = |grids: Vec<Grid>| grids.into_iter().map(|g| g.axes).collect();
        (axes(kept), axes(reduced))
    }

    #[test]
    fn spatial_axes_are_one_axis_in_every_layout() {
        assert_eq!(
            axes(Layout::Plain, 20, &[2, 3]),
            (vec![vec![[40, 15, 1]]], vec![vec![[15, 1, 0]]])
        );
        let (kept, reduced) = axes(Layout::ChannelsLast, 20, &[2, 3]);
        assert_eq!(
            (kept, reduced),
            (vec![vec![[2, 300, 20], [20, 1, 1]]], vec![vec![[15, 20, 0]]])
        );
        let (kept, reduced) = axes(Layout::Blocked16, 20, &[2, 3]);
        assert_eq!(reduced, [[[15, 16, 0]]]);
        assert_eq!(kept, [[[2, 480, 32], [16, 1, 1]], [[2, 480, 32], [4, 1, 1]]]);
    }

    #[test]
    fn channels_in_blocks_are_reduced_without_their_padding() {
        let (_, reduced) = axes(Layout::Blocked16, 20, &[1, 2, 3]);
        assert_eq!(reduced, [vec![[240, 1, 0]], vec![[15, 16, 0], [4, 1, 0]]]);
    }
}
