//! What broadcasting gives, and what has to be assumed for it.

use crate::error::{Error, Result};
use crate::network::dim::Dim;
use crate::network::op::Infer;

/// Why two dimensions must be equal that meet in a broadcast.
pub(super) const TAKEN_TO_BE_EQUAL: &str = "broadcast of two symbolic dimensions, taken to be equal";

impl Infer<'_> {
    /// The dimension that two broadcast dimensions give (numpy's rule). Either of two symbols may turn out to be 1, of up to eight
    /// that meet, unless the network takes them to be equal; other expressions that differ are always taken to be equal, as sizes
    /// are that a network computes from one another.
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
            (None, None) if !self.equal_broadcasts && may_be_ones(a, b) => Ok(self.either(a, b)),
            (None, None) => {
                self.guard(a, b, false, TAKEN_TO_BE_EQUAL);
                Ok(a.min_of(b).clone())
            }
        }
    }

    /// What two dimensions give that are equal, or one of which is 1.
    fn either(&self, a: &Dim, b: &Dim) -> Dim {
        let both = a.broadcast_with(b);
        // What is all of them was broadcast before, and has its guards.
        if ![a, b].contains(&&both) {
            for side in [a, b] {
                self.guard(side, &both, true, "broadcast");
            }
        }
        both
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

/// Whether two dimensions are symbols, or broadcast from symbols, and there are few of these: expressions stay short.
fn may_be_ones(a: &Dim, b: &Dim) -> bool {
    const MOST: usize = 8;
    let symbols = a.broadcast_with(b).operands();
    symbols.len() <= MOST && symbols.iter().all(|dim| dim.as_symbol().is_some())
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

#[cfg(test)]
mod tests {
    use crate::network::attr::Attrs;
    use crate::network::dim::{Binding, Dim, Symbols};
    use crate::network::op::Infer;

    #[test]
    fn either_of_two_symbols_may_be_1() {
        let infer = Infer {
            layer: "Add_0",
            attrs: &Attrs::new(),
            inputs: &[],
            constants: &[],
            symbols: &Symbols::new(),
            equal_broadcasts: false,
            guards: Default::default(),
        };
        let [n, m] = ["n", "m"].map(Dim::symbol);
        let both = infer.broadcast_dim(&n, &m).unwrap();
        assert_eq!(both.to_string(), "broadcast(m, n)");
        let guards = infer.guards.take();
        let fails = |n: i64, m: i64| {
            let binding = Binding::from([("n".into(), n), ("m".into(), m)]);
            guards.iter().find_map(|guard| guard.check(&binding).err())
        };
        for (n, m) in [(5, 5), (5, 1), (1, 5), (1, 1), (0, 1), (1, 0)] {
            assert!(fails(n, m).is_none(), "{n} and {m}");
        }
        for (n, m) in [(5, 4), (0, 5)] {
            assert!(fails(n, m).unwrap().to_string().contains("m and n that are equal or 1"));
        }
        // A symbol that becomes a number leaves the other one bound.
        let five = |name: &str| (name == "n").then(|| Dim::from(5i64));
        let pair = |guard: &crate::network::op::Guard| [guard.left.substitute(&five), guard.right.substitute(&five)];
        assert!(guards.iter().any(|guard| pair(guard) == [m.clone(), 5i64.into()]));
        // What was broadcast from both is not broadcast again.
        assert_eq!(infer.broadcast_dim(&both, &n).unwrap(), both);
        assert!(infer.guards.borrow().is_empty());
        // What is computed from sizes is no size that may be 1.
        let longer = m.clone() + 1i64.into();
        assert_eq!(infer.broadcast_dim(&n, &longer).unwrap(), n.min_of(&longer).clone());
        assert!(!infer.guards.borrow()[0].or_one);
    }
}
