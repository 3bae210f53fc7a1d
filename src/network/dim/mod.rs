//! Symbolic dimensions: integer expressions over named symbols, kept in a normal form.
//!
//! A [`Dim`] is a polynomial with integer coefficients over atoms; an atom is a symbol or one of
//! floordiv, ceildiv, min, max, broadcast of two dims. `a mod b` is `a - b * floordiv(a, b)`, and a ceildiv by a
//! constant is a floordiv, so equal expressions meet in one form more often.

mod arithmetic;
pub mod build;
mod text;

use crate::error::{Error, Result};
use crate::network::array::LARGEST;
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

/// What a symbol without a range may be: no tensor has a greater dimension.
const ANY: Range = Range {
    min: 0,
    opt: 1,
    max: LARGEST as i64,
};

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
    /// The second where the first is 1, else the first.
    Broadcast,
}

impl Function {
    const ALL: [(Function, &'static str); 5] = [
        (Function::FloorDiv, "floordiv"),
        (Function::CeilDiv, "ceildiv"),
        (Function::Min, "min"),
        (Function::Max, "max"),
        (Function::Broadcast, "broadcast"),
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
            Function::Broadcast => Some(if a == 1 { b } else { a }),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Atom {
    Symbol(Arc<str>),
    Call(Arc<Call>),
    /// Stands for an expression beyond [`MOST_ATOMS`] or [`MOST_DEPTH`], and for all that would be computed from one.
    TooLong,
}

/// A function of two dims, shared by all expressions that it stands in.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Call {
    function: Function,
    a: Dim,
    b: Dim,
    /// The symbols and functions in it, itself among them.
    atoms: usize,
    /// How many functions stand in one another, itself among them.
    depth: usize,
}

impl Atom {
    fn atoms(&self) -> usize {
        match self {
            Atom::Symbol(_) | Atom::TooLong => 1,
            Atom::Call(call) => call.atoms,
        }
    }

    fn depth(&self) -> usize {
        match self {
            Atom::Symbol(_) | Atom::TooLong => 0,
            Atom::Call(call) => call.depth,
        }
    }
}

/// The symbols and functions that an expression may have, each counted as often as it stands there: more than any real
/// one has, and few enough that each can be walked through.
pub const MOST_ATOMS: usize = 1 << 12;
/// How many functions may stand in one another: shallow enough for the stack.
const MOST_DEPTH: usize = 64;

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
        if let (Some(x), Some(y)) = (a.as_const(), b.as_const())
            && let Some(value) = function.apply(x, y)
        {
            return value.into();
        }
        let (atoms, depth) = (1 + a.atoms() + b.atoms(), 1 + a.depth().max(b.depth()));
        if a.is_too_long() || b.is_too_long() || atoms > MOST_ATOMS || depth > MOST_DEPTH {
            return Self::too_long();
        }
        Self::atom(Atom::Call(Arc::new(Call {
            function,
            a,
            b,
            atoms,
            depth,
        })))
    }

    fn too_long() -> Self {
        Self::atom(Atom::TooLong)
    }

    /// Whether the expression was too long and was given up: it has no value.
    pub fn is_too_long(&self) -> bool {
        let first = self.0.keys().next().and_then(|monomial| monomial.first());
        matches!(first, Some(Atom::TooLong))
    }

    /// Gives the expression up if it is too long.
    fn bounded(self) -> Self {
        if self.atoms() > MOST_ATOMS {
            return Self::too_long();
        }
        self
    }

    fn add_term(&mut self, monomial: Monomial, factor: i64) {
        let sum = self.0.get(&monomial).copied().unwrap_or(0).saturating_add(factor);
        match sum {
            0 => self.0.remove(&monomial),
            sum => self.0.insert(monomial, sum),
        };
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

    /// The least and greatest value over the ranges of its symbols; one without a range is any dimension.
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
                Atom::Call(call) => {
                    call.a.visit_symbols(visit);
                    call.b.visit_symbols(visit);
                }
                Atom::TooLong => {}
            }
        }
    }

    /// The number of symbols and functions in the expression, each as often as it stands there.
    pub fn atoms(&self) -> usize {
        self.0.keys().flatten().map(Atom::atoms).sum()
    }

    fn depth(&self) -> usize {
        self.0.keys().flatten().map(Atom::depth).max().unwrap_or(0)
    }

    /// The names of the symbols in the expression.
    pub fn symbols(&self) -> Vec<Arc<str>> {
        let mut found = vec![];
        self.visit_symbols(&mut |name| found.push(name.clone()));
        found
    }

    /// The expression with symbols replaced wherever `replace` gives something else for a name.
    pub fn substitute(&self, replace: &dyn Fn(&str) -> Option<Dim>) -> Dim {
        self.rebuilt(replace, &Dim::broadcast_with)
    }

    /// The expression where dimensions that meet in a broadcast are equal: one of them stands for all.
    pub fn with_equal_broadcasts(&self) -> Dim {
        self.rebuilt(&|_| None, &|a, b| a.min_of(b).clone())
    }

    fn rebuilt(&self, replace: &dyn Fn(&str) -> Option<Dim>, broadcast: &dyn Fn(&Dim, &Dim) -> Dim) -> Dim {
        self.0.iter().fold(Dim::default(), |sum, (monomial, &factor)| {
            let product = monomial
                .iter()
                .fold(Dim::from(factor), |p, atom| p * atom.rebuilt(replace, broadcast));
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
            Atom::Call(call) => {
                let (a, b) = (call.a.eval(binding)?, call.b.eval(binding)?);
                call.function.apply(a, b).ok_or_else(|| {
                    Error::shape(format!("{}({a}, {b}) has no value", call.function.name()))
                        .expected("a divisor above zero")
                })
            }
            Atom::TooLong => Err(too_long()),
        }
    }

    fn bounds(&self, symbols: &Symbols) -> (i64, i64) {
        match self {
            Atom::Symbol(name) => {
                let range = symbols.get(name).copied().unwrap_or(ANY);
                (range.min, range.max)
            }
            Atom::Call(call) => call_bounds(call.function, call.a.bounds(symbols), call.b.bounds(symbols)),
            Atom::TooLong => (i64::MIN, i64::MAX),
        }
    }

    fn rebuilt(&self, replace: &dyn Fn(&str) -> Option<Dim>, broadcast: &dyn Fn(&Dim, &Dim) -> Dim) -> Dim {
        match self {
            Atom::Symbol(name) => replace(name).unwrap_or_else(|| Dim::symbol(name.clone())),
            Atom::TooLong => Dim::too_long(),
            Atom::Call(call) => {
                let [a, b] = [&call.a, &call.b].map(|dim| dim.rebuilt(replace, broadcast));
                match call.function {
                    Function::FloorDiv => a.floordiv(&b),
                    Function::CeilDiv => a.ceildiv(&b),
                    Function::Min => a.least(&b),
                    Function::Max => a.greatest(&b),
                    Function::Broadcast => broadcast(&a, &b),
                }
            }
        }
    }
}

/// What a dimension whose expression was given up leads to.
pub fn too_long() -> Error {
    Error::shape("the expression of a dimension is too long")
        .expected(format!(
            "at most {MOST_ATOMS} symbols and functions in it, {MOST_DEPTH} in one another"
        ))
        .hint("give numbers for the dimensions of the inputs that need not change")
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
        Function::Broadcast => (a.0.min(b.0), a.1.max(b.1)),
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

#[cfg(test)]
mod tests;
