//! One step of LSTM, GRU or RNN on matrices [batch, hidden].

use super::activation::hard_sigmoid;
use crate::error::Result;
use crate::network::dtype::DType;
use crate::network::ops::activation::{Activation, Function};
use crate::network::ops::recurrent::{Kind, Spec as Recurrent};
use crate::providers::tensorrt::handle::{Spec, Tensor};
use crate::providers::tensorrt::writer::Writer;
use std::ops::Range;

/// Cuts some gates out of a matrix.
pub type Cut<'a> = dyn Fn(&mut Writer, Tensor, Range<usize>) -> Result<Tensor> + 'a;

/// What a step reads that no step changes.
pub struct Cell<'a> {
    /// What the attributes say.
    pub spec: &'a Recurrent,
    /// The direction.
    pub direction: usize,
    /// The dtype of everything.
    pub dtype: DType,
    /// Recurrent weights [gates * hidden, hidden].
    pub weights: Tensor,
    /// GRU with a product before the reset: the recurrent bias [1, gates * hidden], which is not in the input's product.
    pub bias: Option<Tensor>,
    /// LSTM: the peepholes of input, output and forget gate [1, hidden].
    pub peepholes: Option<[Tensor; 3]>,
    /// Cuts some gates out of a matrix [batch, gates * hidden].
    pub columns: &'a Cut<'a>,
    /// Cuts the rows of some gates out of the recurrent weights.
    pub rows: &'a Cut<'a>,
}

impl Cell<'_> {
    /// The next states (h, and c of an LSTM) out of the input's product with its weights, bias included, and the states.
    ///
    /// # Errors
    /// If TensorRT refuses.
    pub fn step(&self, w: &mut Writer, x: Tensor, states: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(match self.spec.kind {
            Kind::Lstm => self.lstm(w, x, states[0], states[1])?,
            Kind::Gru => vec![self.gru(w, x, states[0])?],
            Kind::Rnn => {
                let product = product(w, states[0], self.weights)?;
                let sum = w.elementwise("SUM", x, product)?;
                vec![self.apply(w, 0, sum)?]
            }
        })
    }

    fn lstm(&self, w: &mut Writer, x: Tensor, h: Tensor, c: Tensor) -> Result<Vec<Tensor>> {
        let product = product(w, h, self.weights)?;
        let sums = w.elementwise("SUM", x, product)?;
        let gate = |w: &mut Writer, at: usize| (self.columns)(w, sums, at..at + 1);
        let take = gate(w, 0)?;
        let take = self.watched(w, take, 0, c)?;
        let take = self.apply(w, 0, take)?;
        let keep = if self.spec.input_forget {
            let one = w.number(self.dtype, 1.0, 2)?;
            w.elementwise("SUB", one, take)?
        } else {
            let keep = gate(w, 2)?;
            let keep = self.watched(w, keep, 2, c)?;
            self.apply(w, 0, keep)?
        };
        let new = gate(w, 3)?;
        let new = self.apply(w, 1, new)?;
        let kept = w.elementwise("PROD", keep, c)?;
        let taken = w.elementwise("PROD", take, new)?;
        let c = w.elementwise("SUM", kept, taken)?;
        let give = gate(w, 1)?;
        let give = self.watched(w, give, 1, c)?;
        let give = self.apply(w, 0, give)?;
        let shown = self.apply(w, 2, c)?;
        Ok(vec![w.elementwise("PROD", give, shown)?, c])
    }

    /// A gate with what its peephole sees of the cell.
    fn watched(&self, w: &mut Writer, gate: Tensor, which: usize, c: Tensor) -> Result<Tensor> {
        let Some(peepholes) = self.peepholes else {
            return Ok(gate);
        };
        let seen = w.elementwise("PROD", peepholes[which], c)?;
        w.elementwise("SUM", gate, seen)
    }

    fn gru(&self, w: &mut Writer, x: Tensor, h: Tensor) -> Result<Tensor> {
        let sums = (self.columns)(w, x, 0..2)?;
        let fresh = (self.columns)(w, x, 2..3)?;
        // With a product before the reset one product has all gates.
        let (of_gates, of_state) = if self.spec.linear_before_reset {
            let mut product = product(w, h, self.weights)?;
            if let Some(bias) = self.bias {
                product = w.elementwise("SUM", product, bias)?;
            }
            (
                (self.columns)(w, product, 0..2)?,
                Some((self.columns)(w, product, 2..3)?),
            )
        } else {
            let rows = (self.rows)(w, self.weights, 0..2)?;
            (product(w, h, rows)?, None)
        };
        let sums = w.elementwise("SUM", sums, of_gates)?;
        let sums = self.apply(w, 0, sums)?;
        let (update, reset) = ((self.columns)(w, sums, 0..1)?, (self.columns)(w, sums, 1..2)?);
        let state = match of_state {
            Some(product) => w.elementwise("PROD", reset, product)?,
            None => {
                let kept = w.elementwise("PROD", reset, h)?;
                let rows = (self.rows)(w, self.weights, 2..3)?;
                product(w, kept, rows)?
            }
        };
        let fresh = w.elementwise("SUM", fresh, state)?;
        let fresh = self.apply(w, 1, fresh)?;
        let one = w.number(self.dtype, 1.0, 2)?;
        let rest = w.elementwise("SUB", one, update)?;
        let fresh = w.elementwise("PROD", rest, fresh)?;
        let kept = w.elementwise("PROD", update, h)?;
        w.elementwise("SUM", fresh, kept)
    }

    /// One of the functions of the direction, of what is clipped before.
    fn apply(&self, w: &mut Writer, which: usize, x: Tensor) -> Result<Tensor> {
        let clip = self.spec.clip;
        let x = match clip.is_finite() {
            true => {
                let spec = Spec::new("Activation").input(x).word("type", "CLIP");
                w.one(spec.float("alpha", -clip).float("beta", clip))?
            }
            false => x,
        };
        function(w, &self.spec.activations[self.direction][which], self.dtype, x)
    }
}

/// A product with transposed weights.
///
/// # Errors
/// If TensorRT refuses.
pub fn product(w: &mut Writer, x: Tensor, weights: Tensor) -> Result<Tensor> {
    let spec = Spec::new("MatrixMultiply").input(x).input(weights);
    w.one(spec.word("left", "NONE").word("right", "TRANSPOSE"))
}

fn function(w: &mut Writer, activation: &Activation, dtype: DType, x: Tensor) -> Result<Tensor> {
    let (alpha, beta) = (activation.alpha, activation.beta);
    let kind = |kind: &str| Spec::new("Activation").input(x).word("type", kind);
    match activation.function {
        Function::Relu => w.activation("RELU", x),
        Function::Tanh => w.activation("TANH", x),
        Function::Sigmoid => w.activation("SIGMOID", x),
        Function::Softsign => w.activation("SOFTSIGN", x),
        Function::Softplus => w.one(kind("SOFTPLUS").float("alpha", 1.0).float("beta", 1.0)),
        Function::LeakyRelu => w.one(kind("LEAKY_RELU").float("alpha", alpha)),
        Function::ThresholdedRelu => w.one(kind("THRESHOLDED_RELU").float("alpha", alpha)),
        Function::ScaledTanh => w.one(kind("SCALED_TANH").float("alpha", alpha).float("beta", beta)),
        Function::Elu => w.one(kind("ELU").float("alpha", alpha)),
        Function::HardSigmoid => hard_sigmoid(w, x, alpha, beta),
        Function::Affine => {
            let (alpha, beta) = (w.number(dtype, alpha, 2)?, w.number(dtype, beta, 2)?);
            let scaled = w.elementwise("PROD", x, alpha)?;
            w.elementwise("SUM", scaled, beta)
        }
    }
}
