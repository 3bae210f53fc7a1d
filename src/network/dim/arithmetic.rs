//! Sums, products, quotients and the rest, kept in the normal form.

use super::{Atom, Call, Dim, Function, MOST_ATOMS, Monomial};

impl Dim {
    /// `floor(self / divisor)`.
    pub fn floordiv(&self, divisor: &Dim) -> Dim {
        if self.is_too_long() {
            return Self::too_long();
        }
        let Some(c) = divisor.as_const().filter(|&c| c > 0) else {
            return self
                .quotient(divisor)
                .unwrap_or_else(|| Self::call(Function::FloorDiv, self.clone(), divisor.clone()));
        };
        let (mut whole, mut rest) = (Dim::default(), Dim::default());
        for (monomial, &factor) in &self.0 {
            if monomial.is_empty() || factor % c == 0 {
                whole = whole + Self::term(monomial.clone(), factor.div_euclid(c));
                rest = rest + Self::term(monomial.clone(), factor.rem_euclid(c));
            } else {
                rest = rest + Self::term(monomial.clone(), factor);
            }
        }
        match rest.as_const() {
            Some(_) => whole,
            None => whole + rest.nested_floordiv(c),
        }
    }

    /// `floordiv(floordiv(x, a) + k, c)` is `floordiv(x + k * a, a * c)`.
    fn nested_floordiv(self, c: i64) -> Dim {
        let constant = self.0.get(&vec![]).copied().unwrap_or(0);
        let inner = self.clone() - constant.into();
        if let Some((monomial, 1)) = inner.0.iter().next().map(|(m, &f)| (m, f))
            && let ([Atom::Call(call)], 1) = (monomial.as_slice(), inner.0.len())
            && let Call {
                function: Function::FloorDiv,
                a: x,
                b: a,
                ..
            } = &**call
            && let Some(a) = a.as_const()
            && let (Some(shift), Some(divisor)) = (constant.checked_mul(a), a.checked_mul(c))
        {
            return (x.clone() + shift.into()).floordiv(&divisor.into());
        }
        Self::call(Function::FloorDiv, self, c.into())
    }

    /// `ceil(self / divisor)`.
    pub fn ceildiv(&self, divisor: &Dim) -> Dim {
        match divisor.as_const() {
            Some(c) if c > 0 => (self.clone() + (c - 1).into()).floordiv(divisor),
            _ => self
                .quotient(divisor)
                .unwrap_or_else(|| Self::call(Function::CeilDiv, self.clone(), divisor.clone())),
        }
    }

    /// `self mod divisor`, in `0..divisor`.
    pub fn modulo(&self, divisor: &Dim) -> Dim {
        self.clone() - self.floordiv(divisor) * divisor.clone()
    }

    /// The lesser of two.
    pub fn least(&self, other: &Dim) -> Dim {
        match (self.clone() - other.clone()).as_const() {
            Some(d) => if d <= 0 { self } else { other }.clone(),
            None => Self::call(Function::Min, self.min_of(other).clone(), self.max_ord(other).clone()),
        }
    }

    /// The greater of two.
    pub fn greatest(&self, other: &Dim) -> Dim {
        match (self.clone() - other.clone()).as_const() {
            Some(d) => if d >= 0 { self } else { other }.clone(),
            None => Self::call(Function::Max, self.min_of(other).clone(), self.max_ord(other).clone()),
        }
    }

    /// What broadcasting two dimensions gives of which either may be 1. They must be equal otherwise, which a guard says.
    pub fn broadcast_with(&self, other: &Dim) -> Dim {
        let mut operands = self.operands();
        operands.extend(other.operands());
        operands.retain(|dim| !dim.is(1));
        if let Some(number) = operands.iter().find(|dim| dim.as_const().is_some()) {
            return number.clone();
        }
        operands.sort();
        operands.dedup();
        let last = operands.pop().unwrap_or_else(|| 1i64.into());
        let one_more = |rest, dim| Self::call(Function::Broadcast, dim, rest);
        operands.into_iter().rev().fold(last, one_more)
    }

    /// The dimensions that are broadcast to give this one: itself alone, unless [`Dim::broadcast_with`] gave it.
    pub fn operands(&self) -> Vec<Dim> {
        let mut found = vec![];
        let mut rest = self.clone();
        while let Some((first, further)) = rest.broadcast_call() {
            found.push(first);
            rest = further;
        }
        found.push(rest);
        found
    }

    fn broadcast_call(&self) -> Option<(Dim, Dim)> {
        let (monomial, 1) = self.0.iter().next().filter(|_| self.0.len() == 1)? else {
            return None;
        };
        match monomial.as_slice() {
            [Atom::Call(call)] if call.function == Function::Broadcast => Some((call.a.clone(), call.b.clone())),
            _ => None,
        }
    }

    /// The one of two that sorts first: a stable choice between equals.
    pub fn min_of<'a>(&'a self, other: &'a Dim) -> &'a Dim {
        if self <= other { self } else { other }
    }

    fn max_ord<'a>(&'a self, other: &'a Dim) -> &'a Dim {
        if self <= other { other } else { self }
    }

    /// The exact quotient by a one-term divisor, when every term is divisible by it.
    pub fn quotient(&self, divisor: &Dim) -> Option<Dim> {
        if self.is_too_long() || divisor.is_too_long() {
            return None;
        }
        let (by, &factor) = divisor.0.iter().next().filter(|_| divisor.0.len() == 1)?;
        let mut result = Dim::default();
        for (monomial, &f) in &self.0 {
            let mut rest = monomial.clone();
            for atom in by {
                rest.remove(rest.iter().position(|a| a == atom)?);
            }
            if f % factor != 0 {
                return None;
            }
            result = result + Self::term(rest, f / factor);
        }
        Some(result)
    }
}

impl std::ops::Add for Dim {
    type Output = Dim;
    fn add(mut self, other: Dim) -> Dim {
        if self.is_too_long() || other.is_too_long() {
            return Dim::too_long();
        }
        for (monomial, factor) in other.0 {
            self.add_term(monomial, factor);
        }
        self.bounded()
    }
}

impl std::ops::Neg for Dim {
    type Output = Dim;
    fn neg(mut self) -> Dim {
        self.0.values_mut().for_each(|f| *f = f.saturating_neg());
        self
    }
}

impl std::ops::Sub for Dim {
    type Output = Dim;
    fn sub(self, other: Dim) -> Dim {
        self + -other
    }
}

impl std::ops::Mul for Dim {
    type Output = Dim;
    fn mul(self, other: Dim) -> Dim {
        // What cancels out again may take some more on the way.
        const MOST_BETWEEN: usize = 64 * MOST_ATOMS;
        let [(terms, atoms), (others, further)] = [&self, &other].map(|dim| (dim.0.len(), dim.atoms()));
        if self.is_too_long() || other.is_too_long() || terms * further + others * atoms > MOST_BETWEEN {
            return Dim::too_long();
        }
        let terms = self
            .0
            .iter()
            .flat_map(|left| other.0.iter().map(move |right| (left, right)));
        let mut product = Dim::default();
        for ((left, &f), (right, &g)) in terms {
            let mut monomial: Monomial = left.iter().chain(right).cloned().collect();
            monomial.sort();
            product.add_term(monomial, f.saturating_mul(g));
        }
        product.bounded()
    }
}
