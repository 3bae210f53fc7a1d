//! Dims as text: `2*width + 1`, as files and users have them.

use super::{Atom, Dim, MOST_DEPTH};
use crate::error::{Error, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("0");
        }
        // Constants sort first as keys but read better last.
        let (constants, terms): (Vec<_>, Vec<_>) = self.0.iter().partition(|(m, _)| m.is_empty());
        for (i, (monomial, &factor)) in terms.into_iter().chain(constants).enumerate() {
            f.write_str(match (i, factor < 0) {
                (0, false) => "",
                (0, true) => "-",
                (_, false) => " + ",
                (_, true) => " - ",
            })?;
            let mut parts: Vec<String> = monomial.iter().map(Atom::to_string).collect();
            if factor.unsigned_abs() != 1 || parts.is_empty() {
                parts.insert(0, factor.unsigned_abs().to_string());
            }
            f.write_str(&parts.join("*"))?;
        }
        Ok(())
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Symbol(name) if is_plain(name) => f.write_str(name),
            Atom::Symbol(name) => write!(f, "'{name}'"),
            Atom::Call(call) => write!(f, "{}({}, {})", call.function.name(), call.a, call.b),
            Atom::TooLong => f.write_str("..."),
        }
    }
}

fn is_plain(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && chars.all(|c| c.is_alphanumeric() || "_.".contains(c))
}

impl Serialize for Dim {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self.as_const() {
            Some(value) => serializer.serialize_i64(value),
            None => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Dim {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(i64),
            Text(String),
        }
        match Form::deserialize(deserializer)? {
            Form::Number(value) => Ok(value.into()),
            Form::Text(text) => {
                let dim: Dim = text
                    .parse()
                    .map_err(|e: Error| serde::de::Error::custom(e.to_string()))?;
                // What was written has each atom in it: a short text never stands for much.
                match dim.atoms() <= text.len() {
                    true => Ok(dim),
                    false => Err(serde::de::Error::custom(format!(
                        "dimension {text:?} is not in its normal form"
                    ))),
                }
            }
        }
    }
}

impl std::str::FromStr for Dim {
    type Err = Error;
    /// Reads what `Display` writes: sums and products of integers, symbols and the functions.
    fn from_str(text: &str) -> Result<Self> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        let dim = parser.sum()?;
        parser.skip_space();
        if parser.at < text.len() {
            Err(parser.error("end of text"))
        } else {
            Ok(dim)
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn error(&self, expected: &str) -> Error {
        Error::shape(format!(
            "dimension {:?} can't be read at character {}",
            self.text, self.at
        ))
        .expected(expected)
        .hint("write for example 8, 'batch' or '2*width + 1'")
    }

    fn skip_space(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn accept(&mut self, token: char) -> bool {
        self.skip_space();
        let found = self.text[self.at..].starts_with(token);
        self.at += if found { token.len_utf8() } else { 0 };
        found
    }

    fn take(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let rest = &self.text[self.at..];
        let end = rest.find(|c| !wanted(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// A short text may stand for a long expression: mod has its first argument twice.
    fn require_short(&self, dim: Dim) -> Result<Dim> {
        match dim.is_too_long() {
            false => Ok(dim),
            true => Err(self.error("a shorter expression")),
        }
    }

    fn sum(&mut self) -> Result<Dim> {
        self.depth += 1;
        if self.depth > MOST_DEPTH + 1 {
            return Err(self.error("an expression less deep"));
        }
        let negative = self.accept('-');
        let mut total = self.product()?;
        if negative {
            total = -total;
        }
        loop {
            if self.accept('+') {
                let further = self.product()?;
                total = self.require_short(total + further)?;
            } else if self.accept('-') {
                let further = self.product()?;
                total = self.require_short(total - further)?;
            } else {
                self.depth -= 1;
                return Ok(total);
            }
        }
    }

    fn product(&mut self) -> Result<Dim> {
        let mut total = self.factor()?;
        while self.accept('*') {
            let factor = self.factor()?;
            total = self.require_short(total * factor)?;
        }
        Ok(total)
    }

    fn factor(&mut self) -> Result<Dim> {
        self.skip_space();
        if self.accept('\'') {
            let name = self.take(|c| c != '\'');
            return if self.accept('\'') {
                Ok(Dim::symbol(name))
            } else {
                Err(self.error("a closing quote"))
            };
        }
        let digits = self.take(|c| c.is_ascii_digit());
        if !digits.is_empty() {
            return digits
                .parse::<i64>()
                .map(Dim::from)
                .map_err(|_| self.error("a number of 64 bits"));
        }
        let name = self.take(|c| c.is_alphanumeric() || "_.".contains(c));
        if name.is_empty() {
            return Err(self.error("a number or a name"));
        }
        if !self.accept('(') {
            return Ok(Dim::symbol(name));
        }
        let a = self.sum()?;
        let comma = self.accept(',');
        let b = self.sum()?;
        if !(comma && self.accept(')')) {
            return Err(self.error("two arguments in parentheses"));
        }
        let called = match name {
            "floordiv" => a.floordiv(&b),
            "ceildiv" => a.ceildiv(&b),
            "mod" => a.modulo(&b),
            "min" => a.least(&b),
            "max" => a.greatest(&b),
            "broadcast" => a.broadcast_with(&b),
            _ => return Err(self.error("floordiv, ceildiv, mod, min, max or broadcast")),
        };
        self.require_short(called)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::dim::Binding;

    fn dim(text: &str) -> Dim {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_printed_is_read_back() {
        for text in [
            "0",
            "-n",
            "2*h*w + n - 3",
            "floordiv(h - 1, 2) + 1",
            "max(a, 'p2o.Dim 0')",
            "floordiv(a, b)",
            "broadcast(a, broadcast(b, c)) + 1",
        ] {
            assert_eq!(dim(text), dim(&dim(text).to_string()), "{text}");
        }
    }

    #[test]
    fn a_file_has_dimensions_in_full() {
        let sum = "a+b+c+d+e+f+g+h+i+j+k+l";
        let product = format!("floordiv({sum}, 1)*floordiv({sum}, 1)");
        let mods = format!("{}n{}", "mod(".repeat(8), ", m)".repeat(8));
        for text in [product, mods] {
            let written = serde_json::to_string(&dim(&text)).unwrap();
            assert_eq!(serde_json::from_str::<Dim>(&written).unwrap(), dim(&text));
            let short = serde_json::from_str::<Dim>(&format!("{text:?}"));
            assert!(short.unwrap_err().to_string().contains("normal form"), "{text}");
        }
    }

    #[test]
    fn the_longest_and_deepest_expressions_are_read_back() {
        let (mut deep, mut long) = (Dim::symbol("n"), Dim::symbol("n"));
        for i in 0.. {
            let next = (deep.clone() + 1i64.into()).least(&Dim::symbol(format!("m{i}")));
            if next.is_too_long() {
                break;
            }
            deep = next;
        }
        for i in 0..super::super::MOST_ATOMS - 1 {
            long = long + Dim::symbol(format!("n{i}"));
        }
        for dim in [deep, long] {
            assert!(!dim.is_too_long());
            assert_eq!(dim.to_string().parse::<Dim>().unwrap(), dim);
        }
    }

    #[test]
    fn hostile_text_is_refused() {
        for text in [
            "",
            "n +",
            "9999999999999999999",
            "f(1, 2)",
            "min(1",
            "'n",
            &"min(1,".repeat(1000),
            &format!("{}n{}", "mod(".repeat(40), ", m)".repeat(40)),
            &"n*".repeat(100_000),
        ] {
            assert!(text.parse::<Dim>().is_err(), "{text}");
        }
        assert!(dim("h").eval(&Binding::new()).is_err());
        assert!(dim("floordiv(8, h)").eval(&Binding::from([("h".into(), 0)])).is_err());
    }
}
