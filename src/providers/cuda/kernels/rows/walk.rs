//! What a reduction walks over: its kept and its reduced axes, in the order of memory.

use crate::error::{Error, Result};
use crate::plan::layout::{Layout, Operand};
use crate::providers::common::operand_strides::axes;

/// Axes of each kind that `Walk` of `reduce.cu` has.
const AXES: usize = 4;

/// One axis, or several that lie as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    /// Its extent.
    pub size: usize,
    /// From one element to the next in the input.
    pub from: usize,
    /// From one element to the next in the result; 0 where it is reduced.
    pub to: usize,
}

/// The axes of a reduction, those of each kind in the order of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    /// Those of the result.
    pub kept: Vec<Axis>,
    /// Those whose elements come together.
    pub reduced: Vec<Axis>,
    /// Whether a reduced axis is the innermost one.
    pub rows: bool,
}

impl Walk {
    /// The walk of a reduction of some axes, which the result keeps as 1 or not at all.
    ///
    /// # Errors
    /// If the axes are too scattered.
    pub fn of(x: &Operand, y: &Operand, reduced: &[usize], keeps: bool) -> Result<Self> {
        let (from, to) = (axes(x).strides, axes(y).strides);
        let mut order: Vec<usize> = (0..x.shape.len()).collect();
        if x.layout == Layout::ChannelsLast {
            let channels = order.remove(1);
            order.push(channels);
        }
        let mut walk = Self {
            kept: vec![],
            reduced: vec![],
            rows: true,
        };
        // Whether the axis outside of this one was of its kind, and is followed by it.
        let mut last = None;
        for axis in order.into_iter().filter(|&axis| x.shape[axis] != 1) {
            let is_reduced = reduced.contains(&axis);
            let gone = if keeps {
                0
            } else {
                reduced.iter().filter(|&&r| r < axis).count()
            };
            let new = Axis {
                size: x.shape[axis],
                from: from[axis],
                to: if is_reduced { 0 } else { to[axis - gone] },
            };
            let list = if is_reduced { &mut walk.reduced } else { &mut walk.kept };
            let even = |outer: &Axis| outer.from == new.from * new.size && outer.to == new.to * new.size;
            match list.last_mut().filter(|outer| last == Some(is_reduced) && even(outer)) {
                Some(outer) => {
                    *outer = Axis {
                        size: outer.size * new.size,
                        ..new
                    }
                }
                None => list.push(new),
            }
            last = Some(is_reduced);
            walk.rows = is_reduced;
        }
        if walk.kept.len() > AXES || walk.reduced.len() > AXES {
            return Err(Error::unsupported("the reduced axes are too scattered for one kernel")
                .expected(format!("{AXES} runs of neighbouring axes"))
                .got(format!("axes {reduced:?} of {}", x.describe())));
        }
        Ok(walk)
    }

    /// How many results there are.
    pub fn results(&self) -> usize {
        self.kept.iter().map(|axis| axis.size).product()
    }

    /// How many elements come together in each.
    pub fn length(&self) -> usize {
        self.reduced.iter().map(|axis| axis.size).product()
    }

    /// What must be whole packs of elements: the innermost axis, and the steps of all others.
    pub fn packed(&self) -> impl Iterator<Item = usize> {
        let inner = if self.rows { &self.reduced } else { &self.kept };
        let innermost = inner.last().copied();
        let all = self.kept.iter().chain(&self.reduced);
        let others = all.filter(move |axis| Some(**axis) != innermost).map(|axis| axis.from);
        // Of one element there are no packs.
        others.chain([innermost.map_or(1, |axis| axis.size)])
    }

    /// The columns that lie next to each other.
    pub fn width(&self) -> usize {
        self.kept.last().map_or(1, |axis| axis.size)
    }

    /// The last fields of `Walk` of `reduce.cu`.
    pub fn fields(&self) -> impl Iterator<Item = usize> {
        let list = |axes: &[Axis], of: fn(&Axis) -> usize, filler: usize| {
            let missing = std::iter::repeat_n(filler, AXES - axes.len());
            missing.chain(axes.iter().map(of)).collect::<Vec<_>>()
        };
        [
            list(&self.kept, |axis| axis.size, 1),
            list(&self.kept, |axis| axis.from, 0),
            list(&self.kept, |axis| axis.to, 0),
            list(&self.reduced, |axis| axis.size, 1),
            list(&self.reduced, |axis| axis.from, 0),
        ]
        .into_iter()
        .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::dtype::DType;

    fn walk(shape: &[usize], layout: Layout, reduced: &[usize], keeps: bool) -> Walk {
        let kept = |axis: &usize| !reduced.contains(axis);
        let all = 0..shape.len();
        let to = match keeps {
            true => all.map(|axis| if kept(&axis) { shape[axis] } else { 1 }).collect(),
            false => all.filter(kept).map(|axis| shape[axis]).collect(),
        };
        let out = if keeps { layout } else { Layout::Plain };
        let (x, y) = (
            Operand::dense(DType::Float16, shape.to_vec(), layout),
            Operand::dense(DType::Float16, to, out),
        );
        Walk::of(&x, &y, reduced, keeps).unwrap()
    }

    fn axis(size: usize, from: usize, to: usize) -> Axis {
        Axis { size, from, to }
    }

    #[test]
    fn neighbouring_axes_are_one() {
        let found = walk(&[2, 3, 5, 7], Layout::Plain, &[2, 3], true);
        assert_eq!(
            found,
            Walk {
                kept: vec![axis(6, 35, 1)],
                reduced: vec![axis(35, 1, 0)],
                rows: true
            }
        );
        let found = walk(&[2, 64, 5, 7], Layout::ChannelsLast, &[2, 3], true);
        assert_eq!(
            found,
            Walk {
                kept: vec![axis(2, 64 * 35, 64), axis(64, 1, 1)],
                reduced: vec![axis(35, 64, 0)],
                rows: false
            }
        );
        assert_eq!(found.packed().fold(16, |bits, n| bits | n).trailing_zeros(), 4);
    }

    #[test]
    fn scattered_axes_stay_apart() {
        let found = walk(&[2, 3, 5, 7], Layout::Plain, &[0, 2], false);
        assert_eq!(
            found,
            Walk {
                kept: vec![axis(3, 35, 7), axis(7, 1, 1)],
                reduced: vec![axis(2, 105, 0), axis(5, 7, 0)],
                rows: false
            }
        );
        assert_eq!((found.results(), found.length()), (21, 10));
        assert_eq!(found.fields().count(), 20);
    }

    #[test]
    fn nothing_is_kept_or_reduced() {
        let all = walk(&[2, 3], Layout::Plain, &[0, 1], false);
        assert_eq!((all.results(), all.length(), all.rows), (1, 6, true));
        let none = walk(&[2, 3], Layout::Plain, &[], true);
        assert_eq!((none.results(), none.length(), none.rows), (6, 1, false));
        let scalar = walk(&[], Layout::Plain, &[], true);
        assert_eq!((scalar.results(), scalar.length(), scalar.rows), (1, 1, true));
        assert_eq!(scalar.packed().collect::<Vec<_>>(), [1]);
    }
}
