//! Symbolic dimensions: integer expressions over named symbols, kept in a normal form.
//!
//! A [`Dim`] is a polynomial with integer coefficients over atoms; an atom is a symbol or one of
//! floordiv, ceildiv, min, max of two dims. `a mod b` is `a - b * floordiv(a, b)`, and a ceildiv by a
//! constant is a floordiv, so equal expressions meet in one form more often.

pub mod build;
mod text;

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The values of symbols at run time.
pub type Binding = BTreeMap<Arc<str>, i64>;

/// What is known of a symbol: its least, expected and greatest value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// Least value.
    pub min: i64,
    /// The value to optimise for.
    pub opt: i64,
    /// Greatest value.
    pub max: i64,
}

/// The greatest dimension that is taken for granted where nothing is known.
pub const UNBOUNDED: i64 = i32::MAX as i64;

impl Default for Range {
    fn default() -> Self {
        Self {
            min: 0,
            opt: 1,
            max: UNBOUNDED,
        }
    }
}

/// The symbols of a network and their ranges.
pub type Symbols = BTreeMap<Arc<str>, Range>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Function {
    FloorDiv,
    CeilDiv,
    Min,
    Max,
}

impl Function {
    const ALL: [(Function, &'static str); 4] = [
        (Function::FloorDiv, "floordiv"),
        (Function::CeilDiv, "ceildiv"),
        (Function::Min, "min"),
        (Function::Max, "max"),
    ];

    fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    fn apply(self, a: i64, b: i64) -> Option<i64> {
        match self {
            Function::FloorDiv if b > 0 => Some(a.div_euclid(b)),
            Function::CeilDiv if b > 0 => a.checked_neg()?.div_euclid(b).checked_neg(),
            Function::Min => Some(a.min(b)),
            Function::Max => Some(a.max(b)),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Atom {
    Symbol(Arc<str>),
    Call(Function, Dim, Dim),
}

type Monomial = Vec<Atom>;

/// A dimension: an integer expression over named symbols, in normal form.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Dim(BTreeMap<Monomial, i64>);

impl From<i64> for Dim {
    fn from(value: i64) -> Self {
        Self::term(vec![], value)
    }
}

impl From<usize> for Dim {
    fn from(value: usize) -> Self {
        Self::from(value as i64)
    }
}

impl Dim {
    /// The dimension that a symbol names.
    pub fn symbol(name: impl Into<Arc<str>>) -> Self {
        Self::atom(Atom::Symbol(name.into()))
    }

    fn atom(atom: Atom) -> Self {
        Self::term(vec![atom], 1)
    }

    fn term(monomial: Monomial, factor: i64) -> Self {
        Self(if factor == 0 {
            BTreeMap::new()
        } else {
            BTreeMap::from([(monomial, factor)])
        })
    }

    fn call(function: Function, a: Dim, b: Dim) -> Self {
        match (a.as_const(), b.as_const()) {
            (Some(x), Some(y)) if function.apply(x, y).is_some() => function.apply(x, y).unwrap_or_default().into(),
            _ => Self::atom(Atom::Call(function, a, b)),
        }
    }

    /// The value, when no symbol is in it.
    pub fn as_const(&self) -> Option<i64> {
        match self.0.len() {
            0 => Some(0),
            1 => self.0.get(&vec![]).copied(),
            _ => None,
        }
    }

    /// Whether the value is known to be `value`.
    pub fn is(&self, value: i64) -> bool {
        self.as_const() == Some(value)
    }

    /// The name, when this is one bare symbol.
    pub fn as_symbol(&self) -> Option<&Arc<str>> {
        match self.0.iter().next() {
            Some((monomial, 1)) if self.0.len() == 1 => match monomial.as_slice() {
                [Atom::Symbol(name)] => Some(name),
                _ => None,
            },
            _ => None,
        }
    }

    /// `floor(self / divisor)`.
    pub fn floordiv(&self, divisor: &Dim) -> Dim {
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
            && let ([Atom::Call(Function::FloorDiv, x, a)], 1) = (monomial.as_slice(), inner.0.len())
            && let Some(a) = a.as_const()
        {
            return (x.clone() + (constant * a).into()).floordiv(&(a * c).into());
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

    /// The one of two that sorts first: a stable choice between equals.
    pub fn min_of<'a>(&'a self, other: &'a Dim) -> &'a Dim {
        if self <= other { self } else { other }
    }

    fn max_ord<'a>(&'a self, other: &'a Dim) -> &'a Dim {
        if self <= other { other } else { self }
    }

    /// The exact quotient by a one-term divisor, when every term is divisible by it.
    pub fn quotient(&self, divisor: &Dim) -> Option<Dim> {
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

    /// The value under a binding.
    ///
    /// # Errors
    /// If a symbol has no value, the arithmetic overflows, or a divisor is not positive.
    pub fn eval(&self, binding: &Binding) -> Result<i64> {
        if let Some(value) = self.as_const() {
            return Ok(value);
        }
        let mut sum = 0i64;
        for (monomial, &factor) in &self.0 {
            let mut product = factor;
            for atom in monomial {
                product = product
                    .checked_mul(atom.eval(binding)?)
                    .ok_or_else(|| self.overflow())?;
            }
            sum = sum.checked_add(product).ok_or_else(|| self.overflow())?;
        }
        Ok(sum)
    }

    fn overflow(&self) -> Error {
        Error::shape("dimension does not fit 64 bits").got(self.to_string())
    }

    /// The least and greatest value over the ranges of its symbols.
    pub fn bounds(&self, symbols: &Symbols) -> (i64, i64) {
        let mut total = (0i64, 0i64);
        for (monomial, &factor) in &self.0 {
            let mut product = (factor, factor);
            for atom in monomial {
                product = multiply_bounds(product, atom.bounds(symbols));
            }
            total = (total.0.saturating_add(product.0), total.1.saturating_add(product.1));
        }
        total
    }

    /// Calls `visit` with the name of every symbol in the expression.
    pub fn visit_symbols(&self, visit: &mut dyn FnMut(&Arc<str>)) {
        for atom in self.0.keys().flatten() {
            match atom {
                Atom::Symbol(name) => visit(name),
                Atom::Call(_, a, b) => {
                    a.visit_symbols(visit);
                    b.visit_symbols(visit);
                }
            }
        }
    }

    /// The number of symbols and functions in the expression, each as often as it stands there.
    pub fn atoms(&self) -> usize {
        let inside = |atom: &Atom| match atom {
            Atom::Symbol(_) => 1,
            Atom::Call(_, a, b) => 1 + a.atoms() + b.atoms(),
        };
        self.0.keys().flatten().map(inside).sum()
    }

    /// The names of the symbols in the expression.
    pub fn symbols(&self) -> Vec<Arc<str>> {
        let mut found = vec![];
        self.visit_symbols(&mut |name| found.push(name.clone()));
        found
    }

    /// The expression with symbols replaced wherever `replace` gives something else for a name.
    pub fn substitute(&self, replace: &dyn Fn(&str) -> Option<Dim>) -> Dim {
        self.0.iter().fold(Dim::default(), |sum, (monomial, &factor)| {
            let product = monomial
                .iter()
                .fold(Dim::from(factor), |p, atom| p * atom.substitute(replace));
            sum + product
        })
    }
}

impl Atom {
    fn eval(&self, binding: &Binding) -> Result<i64> {
        match self {
            Atom::Symbol(name) => binding.get(name).copied().ok_or_else(|| {
                Error::shape(format!("dimension {name:?} has no value yet")).hint("give the shape of every input")
            }),
            Atom::Call(function, a, b) => {
                let (a, b) = (a.eval(binding)?, b.eval(binding)?);
                function.apply(a, b).ok_or_else(|| {
                    Error::shape(format!("{}({a}, {b}) has no value", function.name())).expected("a divisor above zero")
                })
            }
        }
    }

    fn bounds(&self, symbols: &Symbols) -> (i64, i64) {
        match self {
            Atom::Symbol(name) => {
                let range = symbols.get(name).copied().unwrap_or_default();
                (range.min, range.max)
            }
            Atom::Call(function, a, b) => call_bounds(*function, a.bounds(symbols), b.bounds(symbols)),
        }
    }

    fn substitute(&self, replace: &dyn Fn(&str) -> Option<Dim>) -> Dim {
        match self {
            Atom::Symbol(name) => replace(name).unwrap_or_else(|| Dim::symbol(name.clone())),
            Atom::Call(function, a, b) => {
                let (a, b) = (a.substitute(replace), b.substitute(replace));
                match function {
                    Function::FloorDiv => a.floordiv(&b),
                    Function::CeilDiv => a.ceildiv(&b),
                    Function::Min => a.least(&b),
                    Function::Max => a.greatest(&b),
                }
            }
        }
    }
}

fn multiply_bounds(a: (i64, i64), b: (i64, i64)) -> (i64, i64) {
    let products = [
        a.0.saturating_mul(b.0),
        a.0.saturating_mul(b.1),
        a.1.saturating_mul(b.0),
        a.1.saturating_mul(b.1),
    ];
    products
        .into_iter()
        .fold((i64::MAX, i64::MIN), |(low, high), p| (low.min(p), high.max(p)))
}

fn call_bounds(function: Function, a: (i64, i64), b: (i64, i64)) -> (i64, i64) {
    match function {
        Function::Min => (a.0.min(b.0), a.1.min(b.1)),
        Function::Max => (a.0.max(b.0), a.1.max(b.1)),
        Function::FloorDiv | Function::CeilDiv => {
            let divisors = [b.0.max(1), b.1.max(1)];
            let ends = divisors.map(|d| [a.0, a.1].map(|x| function.apply(x, d).unwrap_or(x)));
            let ends = ends.as_flattened();
            (
                ends.iter().copied().min().unwrap_or(i64::MIN),
                ends.iter().copied().max().unwrap_or(i64::MAX),
            )
        }
    }
}

impl std::ops::Add for Dim {
    type Output = Dim;
    fn add(mut self, other: Dim) -> Dim {
        for (monomial, factor) in other.0 {
            let sum = self.0.get(&monomial).copied().unwrap_or(0).saturating_add(factor);
            if sum == 0 {
                self.0.remove(&monomial)
            } else {
                self.0.insert(monomial, sum)
            };
        }
        self
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
        let terms = self
            .0
            .iter()
            .flat_map(|left| other.0.iter().map(move |right| (left, right)));
        terms
            .map(|((left, &f), (right, &g))| {
                let mut monomial: Monomial = left.iter().chain(right).cloned().collect();
                monomial.sort();
                Dim::term(monomial, f.saturating_mul(g))
            })
            .fold(Dim::default(), std::ops::Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dim(text: &str) -> Dim {
        text.parse().unwrap()
    }

    #[test]
    fn equal_expressions_meet_in_one_form() {
        for (a, b) in [
            ("2*(n)", "n + n"),
            ("floordiv(2*n + 4, 2)", "n + 2"),
            ("floordiv(floordiv(h, 2), 2)", "floordiv(h, 4)"),
            ("ceildiv(h, 2)", "floordiv(h + 1, 2)"),
            ("mod(4*n + 3, 4)", "3"),
            ("max(n, n + 1)", "n + 1"),
            ("min(a, b)", "min(b, a)"),
            ("floordiv(n*h, h)", "n"),
        ] {
            let (a, b) = (a.replace("(n)", "n"), b);
            assert_eq!(dim(&a), dim(b), "{a} = {b}");
        }
        assert_ne!(dim("floordiv(h, 2)*2"), dim("h"));
    }

    #[test]
    fn evaluation_and_bounds_agree() {
        let symbols = Symbols::from([("h".into(), Range { min: 1, opt: 5, max: 9 })]);
        for text in [
            "3*h - 2",
            "floordiv(h + 1, 2)",
            "h*h - h",
            "min(h, 4) + max(h, 6)",
            "ceildiv(20, h)",
        ] {
            let (low, high) = dim(text).bounds(&symbols);
            for h in 1..=9 {
                let value = dim(text).eval(&Binding::from([("h".into(), h)])).unwrap();
                assert!(
                    low <= value && value <= high,
                    "{text} at {h}: {low} <= {value} <= {high}"
                );
            }
        }
    }
}
