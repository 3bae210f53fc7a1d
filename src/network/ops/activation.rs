//! The functions that LSTM, GRU and RNN name in `activations`.

use crate::error::{Error, Result};

/// A function's name in ONNX.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Function {
    Relu,
    Tanh,
    Sigmoid,
    Softsign,
    Softplus,
    Affine,
    LeakyRelu,
    ThresholdedRelu,
    ScaledTanh,
    HardSigmoid,
    Elu,
}

/// A function with its numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Activation {
    /// Which.
    pub function: Function,
    /// Its alpha, if it has one.
    pub alpha: f64,
    /// Its beta, if it has one.
    pub beta: f64,
}

/// How a function takes alpha and beta: not at all, with a default, or only when given.
type Takes = [Option<Option<f64>>; 2];

impl Function {
    const ALL: [(&'static str, Function, Takes); 11] = [
        ("Relu", Function::Relu, [None, None]),
        ("Tanh", Function::Tanh, [None, None]),
        ("Sigmoid", Function::Sigmoid, [None, None]),
        ("Softsign", Function::Softsign, [None, None]),
        ("Softplus", Function::Softplus, [None, None]),
        ("Affine", Function::Affine, [Some(None), Some(None)]),
        ("LeakyRelu", Function::LeakyRelu, [Some(Some(0.01)), None]),
        ("ThresholdedRelu", Function::ThresholdedRelu, [Some(Some(1.0)), None]),
        ("ScaledTanh", Function::ScaledTanh, [Some(None), Some(None)]),
        ("HardSigmoid", Function::HardSigmoid, [Some(Some(0.2)), Some(Some(0.5))]),
        ("Elu", Function::Elu, [Some(Some(1.0)), None]),
    ];

    fn find(name: &str) -> Result<(&'static str, Function, Takes)> {
        let found = Self::ALL.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name));
        found.copied().ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|(known, ..)| *known).collect();
            Error::unsupported("an activation is unknown")
                .expected(names.join(", "))
                .got(name)
        })
    }
}

/// The numbers for each function: in order for those that take one, or one for each function.
fn numbers(which: usize, functions: &[(&str, Function, Takes)], given: &[f64]) -> Result<Vec<f64>> {
    let takers = functions.iter().filter(|(.., takes)| takes[which].is_some()).count();
    let letter = ["alpha", "beta"][which];
    if given.len() > takers && given.len() != functions.len() {
        return Err(Error::invalid(format!("attribute \"activation_{letter}\" is too long"))
            .expected(format!("{takers} numbers, or {}", functions.len()))
            .got(given.len().to_string()));
    }
    let each = given.len() > takers;
    let mut rest = given.iter();
    let number = |(name, _, takes): &(&str, Function, Takes)| {
        let Some(default) = takes[which] else {
            if each {
                rest.next();
            }
            return Ok(0.0);
        };
        rest.next().copied().or(default).ok_or_else(|| {
            Error::invalid(format!("{name} lacks its {letter}")).hint(format!("give activation_{letter}"))
        })
    };
    functions.iter().map(number).collect()
}

impl Activation {
    /// The functions of these names.
    ///
    /// # Errors
    /// If a name is unknown, or there are too few or too many numbers.
    pub fn read(names: &[&str], alpha: &[f64], beta: &[f64]) -> Result<Vec<Self>> {
        let functions = names
            .iter()
            .map(|name| Function::find(name))
            .collect::<Result<Vec<_>>>()?;
        let (alpha, beta) = (numbers(0, &functions, alpha)?, numbers(1, &functions, beta)?);
        let functions = functions.iter().zip(alpha).zip(beta);
        let whole = functions.map(|((&(_, function, _), alpha), beta)| Self { function, alpha, beta });
        Ok(whole.collect())
    }

    /// The function of one number.
    pub fn apply(&self, x: f64) -> f64 {
        let (a, b) = (self.alpha, self.beta);
        match self.function {
            Function::Relu if x < 0.0 => 0.0,
            Function::Relu => x,
            Function::Tanh => x.tanh(),
            Function::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Function::Softsign => x / (1.0 + x.abs()),
            Function::Softplus if x > 0.0 => x + (-x).exp().ln_1p(),
            Function::Softplus => x.exp().ln_1p(),
            Function::Affine => a * x + b,
            Function::LeakyRelu if x < 0.0 => a * x,
            Function::LeakyRelu => x,
            Function::ThresholdedRelu if x < a => 0.0,
            Function::ThresholdedRelu => x,
            Function::ScaledTanh => a * (b * x).tanh(),
            Function::HardSigmoid => (a * x + b).clamp(0.0, 1.0),
            Function::Elu if x < 0.0 => a * x.exp_m1(),
            Function::Elu => x,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_to_those_that_take_them() {
        let read = |alpha: &[f64]| Activation::read(&["tanh", "LeakyRelu", "Elu"], alpha, &[]);
        let alphas = |alpha: &[f64]| read(alpha).unwrap().iter().map(|a| a.alpha).collect::<Vec<_>>();
        assert_eq!(alphas(&[]), [0.0, 0.01, 1.0]);
        assert_eq!(alphas(&[0.3]), [0.0, 0.3, 1.0]);
        assert_eq!(alphas(&[9.0, 0.3, 0.4]), [0.0, 0.3, 0.4]);
        assert!(read(&[1.0; 4]).is_err());
        assert!(Activation::read(&["Affine"], &[1.0], &[]).is_err());
        assert!(Activation::read(&["Swish"], &[], &[]).is_err());
    }
}
