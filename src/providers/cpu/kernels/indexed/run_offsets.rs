//! The offsets, in a row-major tensor, of the runs of elements that indices select.

use crate::error::Result;
use crate::network::dtype::DType;
use crate::network::ops::{indexing, strides};
use crate::plan::layout::Operand;
use crate::providers::common::indexed::Rule;
use crate::providers::cpu::simd::convert;

/// The offsets of all runs, for one set of shapes; they are computed into the workspace, as a `usize` each.
pub struct RunOffsets {
    dtype: DType,
    /// Elements of a run.
    pub run: usize,
    /// How often the same offsets repeat, and the distance of one repetition to the next.
    pub repeats: [usize; 2],
    /// The number of starts.
    pub count: usize,
    /// Extents and strides by which the runs go on where their indices are 0; empty: each starts at 0.
    base: Vec<[usize; 2]>,
    /// Extent and stride of the dimensions that the numbers of one index count along.
    along: Vec<[usize; 2]>,
}

/// Walks through a tensor of some extents, and by these strides through another one.
struct Walk<'a> {
    outer: &'a [[usize; 2]],
    last: [usize; 2],
    index: Vec<usize>,
    /// Steps to the end of the last axis.
    left: usize,
    at: usize,
}

impl<'a> Walk<'a> {
    fn new(base: &'a [[usize; 2]]) -> Self {
        let (&last, outer) = base.split_last().unwrap_or((&[usize::MAX, 0], &[]));
        Self {
            outer,
            last,
            index: vec![0; outer.len()],
            left: last[0],
            at: 0,
        }
    }

    #[inline(always)]
    fn step(&mut self) {
        (self.left, self.at) = (self.left - 1, self.at + self.last[1]);
        if self.left == 0 {
            self.carry();
        }
    }

    fn carry(&mut self) {
        (self.left, self.at) = (self.last[0], self.at - self.last[0] * self.last[1]);
        for (index, &[extent, stride]) in self.index.iter_mut().zip(self.outer).rev() {
            (*index, self.at) = (*index + 1, self.at + stride);
            if *index < extent {
                return;
            }
            (*index, self.at) = (0, self.at - stride * extent);
        }
    }
}

/// Indices that are read at a time.
const BLOCK: usize = 512;

impl RunOffsets {
    /// Prepares for these shapes.
    pub fn new(rule: Rule, x: &Operand, indices: &Operand) -> RunOffsets {
        let (shape, steps) = (x.shape.as_slice(), strides(&x.shape));
        let inside = |axis: usize| shape[axis..].iter().product::<usize>();
        let (dtype, count) = (indices.dtype, indices.elements());
        match rule {
            Rule::Axis(axis) => RunOffsets {
                dtype,
                run: inside(axis + 1),
                repeats: [shape[..axis].iter().product(), inside(axis)],
                count,
                base: vec![],
                along: vec![[shape[axis], steps[axis]]],
            },
            Rule::Elements(axis) => RunOffsets {
                dtype,
                run: 1,
                repeats: [1, 0],
                count,
                base: (0..shape.len())
                    .map(|a| [indices.shape[a], if a == axis { 0 } else { steps[a] }])
                    .collect(),
                along: vec![[shape[axis], steps[axis]]],
            },
            Rule::Vectors(batch) => {
                let (&length, vectors) = indices.shape.split_last().unwrap_or((&1, &[]));
                RunOffsets {
                    dtype,
                    run: inside(batch + length),
                    repeats: [1, 0],
                    count: vectors.iter().product(),
                    base: vec![
                        [vectors[..batch].iter().product(), inside(batch)],
                        [vectors[batch..].iter().product(), 0],
                    ],
                    along: (batch..batch + length).map(|a| [shape[a], steps[a]]).collect(),
                }
            }
        }
    }

    /// Bytes of the starts.
    pub fn workspace(&self) -> usize {
        self.count * size_of::<usize>()
    }

    /// Computes the offsets that these indices select.
    ///
    /// # Safety
    /// The indices of the operand must be readable, and the bytes of [`RunOffsets::workspace`] be there, aligned for a `usize`,
    /// and nobody else's as long as the starts are used.
    ///
    /// # Errors
    /// If one is out of range.
    pub unsafe fn resolve<'a>(&self, indices: *const u8, workspace: *mut u8) -> Result<&'a [usize]> {
        if self.count == 0 {
            return Ok(&[]);
        }
        let (starts, length) = (workspace.cast::<usize>(), self.along.len());
        let mut walk = Walk::new(&self.base);
        let mut numbers = [0i64; BLOCK];
        let at_once = (BLOCK / length.max(1)).max(1);
        for first in (0..self.count).step_by(at_once) {
            let count = at_once.min(self.count - first);
            let numbers = &mut numbers[..count * length];
            // SAFETY: the caller's promise.
            unsafe {
                let from = indices.add(first * length * self.dtype.size());
                convert::to_i64(self.dtype, from, numbers.as_mut_ptr(), numbers.len());
            }
            for i in 0..count {
                let mut start = walk.at;
                for (&number, &[size, stride]) in numbers[i * length..].iter().zip(&self.along) {
                    start += indexing::index(number, size)? * stride;
                }
                // SAFETY: the caller's promise.
                unsafe { starts.add(first + i).write(start) };
                walk.step();
            }
        }
        // SAFETY: the caller's promise; each start was written.
        Ok(unsafe { std::slice::from_raw_parts(starts, self.count) })
    }
}
