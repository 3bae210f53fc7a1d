//! Where in a row-major tensor the runs start that indices name.

use crate::error::Result;
use crate::network::array::Buffer;
use crate::network::dtype::DType;
use crate::network::ops::{indexing, strides};
use crate::plan::layout::Operand;
use crate::providers::common::indexed::Rule;
use crate::providers::cpu::simd::convert;

/// The starts of all runs, for one set of shapes.
pub struct Places {
    dtype: DType,
    /// Elements of a run.
    pub run: usize,
    /// How often the same places come again, and how far on each time.
    pub repeats: [usize; 2],
    /// Where each would start if its indices were 0; empty: all at 0.
    bases: Vec<usize>,
    /// Extent and stride of the dimensions that the numbers of one index count along.
    along: Vec<[usize; 2]>,
    indices: Vec<i64>,
    /// The starts that [`Places::resolve`] found.
    pub starts: Vec<usize>,
}

impl Places {
    /// Prepares for these shapes.
    ///
    /// # Errors
    /// If there is not enough memory for as many places as there are indices.
    pub fn new(rule: Rule, x: &Operand, indices: &Operand) -> Result<Places> {
        /// Vectors that are as long as there are indices.
        const TABLES: usize = 3;
        // Asked as a whole before the vectors are made, which end the process where there is no memory.
        Buffer::try_zeroed(TABLES * size_of::<usize>() * indices.elements())?;
        let (shape, strides) = (x.shape.as_slice(), strides(&x.shape));
        let inside = |axis: usize| shape[axis..].iter().product::<usize>();
        let mut places = Places {
            dtype: indices.dtype,
            run: 1,
            repeats: [1, 0],
            bases: vec![],
            along: vec![],
            indices: vec![0; indices.elements()],
            starts: vec![],
        };
        match rule {
            Rule::Axis(axis) => {
                places.run = inside(axis + 1);
                places.repeats = [shape[..axis].iter().product(), inside(axis)];
                places.along = vec![[shape[axis], strides[axis]]];
            }
            Rule::Elements(axis) => {
                let mut own = strides.clone();
                own[axis] = 0;
                places.bases = crate::network::ops::places(&indices.shape, &own);
                places.along = vec![[shape[axis], strides[axis]]];
            }
            Rule::Vectors(batch) => {
                let length = indices.shape.last().copied().unwrap_or(1);
                let per_batch: usize = indices.shape[batch..indices.shape.len() - 1].iter().product();
                let count: usize = indices.shape[..indices.shape.len() - 1].iter().product();
                places.run = inside(batch + length);
                places.bases = (0..count).map(|i| i / per_batch * inside(batch)).collect();
                places.along = (batch..batch + length).map(|a| [shape[a], strides[a]]).collect();
            }
        }
        Ok(places)
    }

    /// Finds the starts that these indices name.
    ///
    /// # Safety
    /// The indices of the operand must be readable.
    ///
    /// # Errors
    /// If one is out of range.
    pub unsafe fn resolve(&mut self, indices: *const u8) -> Result<()> {
        // SAFETY: the caller's promise; the buffer was made for as many.
        unsafe { convert::to_i64(self.dtype, indices, self.indices.as_mut_ptr(), self.indices.len()) };
        self.starts.clear();
        for (i, index) in self.indices.chunks_exact(self.along.len()).enumerate() {
            let mut start = self.bases.get(i).copied().unwrap_or(0);
            for (&number, &[size, stride]) in index.iter().zip(&self.along) {
                start += indexing::index(number, size)? * stride;
            }
            self.starts.push(start);
        }
        Ok(())
    }
}
