//! Computes an expression elsewhere, step by step.

use super::{Atom, Call, Dim, Function};
use crate::error::Result;

/// An operation on two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum BinaryOp {
    Add,
    Multiply,
    FloorDivide,
    CeilDivide,
    Min,
    Max,
}

/// Where expressions are computed: in layers of another library, say.
pub trait Algebra {
    /// What stands for a number there.
    type Value;

    /// A number.
    ///
    /// # Errors
    /// If it can't be had.
    fn number(&mut self, value: i64) -> Result<Self::Value>;

    /// The value of a symbol.
    ///
    /// # Errors
    /// If it is not known there.
    fn symbol(&mut self, name: &str) -> Result<Self::Value>;

    /// The result of an operation.
    ///
    /// # Errors
    /// If it can't be had.
    fn binary(&mut self, op: BinaryOp, left: Self::Value, right: Self::Value) -> Result<Self::Value>;
}

impl Dim {
    /// Computes the expression in an algebra.
    ///
    /// # Errors
    /// As the algebra.
    pub fn build<A: Algebra>(&self, algebra: &mut A) -> Result<A::Value> {
        let mut sum = None;
        for (monomial, &factor) in &self.0 {
            let mut product = match (factor, monomial.is_empty()) {
                (1, false) => None,
                _ => Some(algebra.number(factor)?),
            };
            for atom in monomial {
                let value = atom.build(algebra)?;
                product = Some(match product {
                    Some(before) => algebra.binary(BinaryOp::Multiply, before, value)?,
                    None => value,
                });
            }
            sum = match (sum, product) {
                (Some(sum), Some(product)) => Some(algebra.binary(BinaryOp::Add, sum, product)?),
                (sum, product) => sum.or(product),
            };
        }
        sum.map_or_else(|| algebra.number(0), Ok)
    }
}

impl Atom {
    fn build<A: Algebra>(&self, algebra: &mut A) -> Result<A::Value> {
        match self {
            Atom::Symbol(name) => algebra.symbol(name),
            Atom::TooLong => Err(super::too_long()),
            Atom::Call(call) => {
                let op = match call.function {
                    Function::FloorDiv => BinaryOp::FloorDivide,
                    Function::CeilDiv => BinaryOp::CeilDivide,
                    Function::Min => BinaryOp::Min,
                    Function::Max => BinaryOp::Max,
                    Function::Broadcast => return broadcast(algebra, call),
                };
                let (a, b) = (call.a.build(algebra)?, call.b.build(algebra)?);
                algebra.binary(op, a, b)
            }
        }
    }
}

/// Of dims that are equal or 1: the greatest one, or 0 where one is 0.
fn broadcast<A: Algebra>(algebra: &mut A, call: &Call) -> Result<A::Value> {
    let (mut greatest, mut least) = (algebra.number(1)?, algebra.number(1)?);
    for dim in [vec![call.a.clone()], call.b.operands()].concat() {
        let (first, second) = (dim.build(algebra)?, dim.build(algebra)?);
        greatest = algebra.binary(BinaryOp::Max, greatest, first)?;
        least = algebra.binary(BinaryOp::Min, least, second)?;
    }
    algebra.binary(BinaryOp::Multiply, greatest, least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::dim::Binding;

    /// Numbers.
    struct Plain(Binding);

    impl Algebra for Plain {
        type Value = i64;

        fn number(&mut self, value: i64) -> Result<i64> {
            Ok(value)
        }

        fn symbol(&mut self, name: &str) -> Result<i64> {
            Ok(self.0[name])
        }

        fn binary(&mut self, op: BinaryOp, left: i64, right: i64) -> Result<i64> {
            Ok(match op {
                BinaryOp::Add => left + right,
                BinaryOp::Multiply => left * right,
                BinaryOp::FloorDivide => left.div_euclid(right),
                BinaryOp::CeilDivide => -(-left).div_euclid(right),
                BinaryOp::Min => left.min(right),
                BinaryOp::Max => left.max(right),
            })
        }
    }

    #[test]
    fn what_is_built_step_by_step_is_what_is_evaluated() {
        let binding = Binding::from([
            ("h".into(), 7),
            ("n".into(), 3),
            ("k".into(), 7),
            ("one".into(), 1),
            ("none".into(), 0),
        ]);
        for text in [
            "0",
            "5",
            "h",
            "3*h*n - 2",
            "floordiv(h + 1, 2)*n",
            "min(h, 4) + max(h, 6)",
            "ceildiv(20, h) - h*h",
            "broadcast(h, broadcast(k, one))",
            "broadcast(none, one)",
        ] {
            let dim: Dim = text.parse().unwrap();
            assert_eq!(
                dim.build(&mut Plain(binding.clone())).unwrap(),
                dim.eval(&binding).unwrap(),
                "{text}"
            );
        }
    }
}
