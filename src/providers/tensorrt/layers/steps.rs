//! Loops of TensorRT: what limits them, what goes in, from step to step, and out.

use crate::error::{Error, Result};
use crate::providers::tensorrt::handle::{LoopId, Spec, Tensor};
use crate::providers::tensorrt::writer::Writer;

/// A loop. What reads its slices and what it carries is inside of it.
#[derive(Clone, Copy)]
pub struct Steps(LoopId);

impl Steps {
    /// A loop without limits, of which it must get one.
    ///
    /// # Errors
    /// If TensorRT gives none.
    pub fn new(w: &mut Writer) -> Result<Self> {
        w.add_loop().map(Self)
    }

    fn boundary(self, kind: &str) -> Spec {
        Spec::new(kind).of_loop(self.0)
    }

    /// It ends after `limit` steps ("COUNT"), or where what it carries is false before a step ("WHILE"): a scalar.
    ///
    /// # Errors
    /// If TensorRT refuses.
    pub fn limit(self, w: &mut Writer, kind: &str, limit: Tensor) -> Result<()> {
        let spec = self.boundary("TripLimit").input(limit);
        w.add(spec.word("limit", kind)).map(drop)
    }

    /// The slice of a tensor along an axis that belongs to the step; `reverse` counts from the last one.
    ///
    /// # Errors
    /// If TensorRT refuses.
    pub fn slice(self, w: &mut Writer, x: Tensor, axis: usize, reverse: bool) -> Result<Tensor> {
        let spec = self.boundary("Iterator").input(x);
        w.one(spec.int("axis", axis as i64).int("reverse", reverse))
    }

    /// What goes from step to step, from this on.
    ///
    /// # Errors
    /// If TensorRT refuses.
    pub fn carry(self, w: &mut Writer, initial: Tensor) -> Result<Tensor> {
        w.one(self.boundary("Recurrence").input(initial))
    }

    /// Says what a carried tensor is in the next step.
    ///
    /// # Errors
    /// If its shape changes.
    pub fn next(self, w: &mut Writer, carried: Tensor, next: Tensor) -> Result<()> {
        let (before, after) = (w.session.describe(carried)?, w.session.describe(next)?);
        let fits = |(a, b): (&i64, &i64)| *a < 0 || *b < 0 || a == b;
        let same = before.shape.len() == after.shape.len() && before.shape.iter().zip(&after.shape).all(fits);
        if !same || before.dtype != after.dtype {
            return Err(Error::unsupported(format!(
                "TensorRT's loops carry tensors of one shape, and here {}{:?} becomes {}{:?}",
                before.dtype, before.shape, after.dtype, after.shape
            )));
        }
        w.session.set_next(carried, next)
    }

    /// What a carried tensor is in the end.
    ///
    /// # Errors
    /// If TensorRT refuses.
    pub fn last(self, w: &mut Writer, carried: Tensor) -> Result<Tensor> {
        let spec = self.boundary("LoopOutput").input(carried);
        w.one(spec.word("output", "LAST_VALUE").int("axis", 0))
    }

    /// What a tensor was in each of `count` steps (a scalar), along a new axis; `reverse` begins with the last.
    ///
    /// # Errors
    /// If TensorRT refuses.
    pub fn stack(self, w: &mut Writer, x: Tensor, count: Tensor, axis: usize, reverse: bool) -> Result<Tensor> {
        let output = if reverse { "REVERSE" } else { "CONCATENATE" };
        let spec = self.boundary("LoopOutput").input(x).input(count);
        w.one(spec.word("output", output).int("axis", axis as i64))
    }
}
