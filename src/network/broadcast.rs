//! What broadcasting gives, and what has to be assumed for it.

use crate::error::{Error, Result};
use crate::network::dim::Dim;
use crate::network::op::Infer;

impl Infer<'_> {
    /// The dimension that two broadcast dimensions give (numpy's rule).
    pub fn broadcast_dim(&self, a: &Dim, b: &Dim) -> Result<Dim> {
        if a == b || b.is(1) {
            return Ok(a.clone());
        }
        if a.is(1) {
            return Ok(b.clone());
        }
        match (a.as_const(), b.as_const()) {
            (Some(_), Some(_)) => Err(Error::shape("shapes can't be broadcast together")
                .expected(a.to_string())
                .got(b.to_string())),
            (Some(_), None) => {
                self.guard(b, a, true, "broadcast");
                Ok(a.clone())
            }
            (None, Some(_)) => {
                self.guard(a, b, true, "broadcast");
                Ok(b.clone())
            }
            (None, None) => {
                self.guard(a, b, false, "broadcast of two symbolic dimensions, taken to be equal");
                Ok(a.min_of(b).clone())
            }
        }
    }

    /// The shape that broadcast shapes give.
    pub fn broadcast(&self, shapes: &[&[Dim]]) -> Result<Vec<Dim>> {
        let rank = shapes.iter().map(|s| s.len()).max().unwrap_or(0);
        let mut result = vec![Dim::from(1i64); rank];
        for shape in shapes {
            for (slot, dim) in result[rank - shape.len()..].iter_mut().zip(*shape) {
                *slot = self.broadcast_dim(slot, dim)?;
            }
        }
        Ok(result)
    }

    /// The shape of `to` with `side` broadcast to it: `to` itself never grows, whatever its symbols turn out to be.
    pub fn broadcast_onto(&self, to: &[Dim], side: &[Dim]) -> Result<Vec<Dim>> {
        let lead = to.len().checked_sub(side.len()).ok_or_else(|| grown(to, side))?;
        let mut result = to.to_vec();
        for (slot, dim) in result[lead..].iter_mut().zip(side) {
            if dim.is(1) || dim == slot {
                continue;
            }
            match (slot.as_const(), dim.as_const()) {
                (Some(_), Some(_)) | (Some(1), None) => return Err(grown(to, side)),
                (Some(_), None) => self.guard(dim, slot, true, "broadcast"),
                (None, _) => {
                    self.guard(
                        slot,
                        dim,
                        false,
                        "an input is broadcast to the first one, which has its extents",
                    );
                    *slot = match dim.as_const() {
                        Some(_) => dim.clone(),
                        None => slot.min_of(dim).clone(),
                    };
                }
            }
        }
        Ok(result)
    }
}

fn grown(to: &[Dim], side: &[Dim]) -> Error {
    let shown = |shape: &[Dim]| {
        let dims: Vec<_> = shape.iter().map(Dim::to_string).collect();
        format!("[{}]", dims.join(", "))
    };
    Error::shape("an input can't be broadcast to the tensor that it is to go with")
        .expected(format!("{}, with 1 in any place, or fewer dimensions", shown(to)))
        .got(shown(side))
}
