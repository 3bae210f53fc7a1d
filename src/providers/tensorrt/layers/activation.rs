//! Activations.

use super::Family;
use crate::error::{Error, Result};
use crate::network::Layer;
use crate::network::attr::Read;
use crate::providers::tensorrt::handle::{Spec, Tensor};
use crate::providers::tensorrt::writer::Writer;

/// See [`super::FAMILIES`].
pub const FAMILY: Family = Family {
    ops: &[
        "Relu",
        "Sigmoid",
        "Tanh",
        "LeakyRelu",
        "Elu",
        "Selu",
        "Softsign",
        "Softplus",
        "HardSigmoid",
        "ThresholdedRelu",
        "Gelu",
        "Silu",
        "HardSwish",
        "Mish",
        "PRelu",
        "Clip",
        "LogSoftmax",
        "Softmax",
    ],
    write,
};

fn write(w: &mut Writer, layer: &Layer) -> Result<Vec<Tensor>> {
    let x = w.input(layer, 0)?;
    let attrs = &layer.attrs;
    let kind = |kind: &str| Spec::new("Activation").input(x).word("type", kind);
    let y = match layer.op.name {
        "Relu" => w.activation("RELU", x)?,
        "Sigmoid" => w.activation("SIGMOID", x)?,
        "Tanh" => w.activation("TANH", x)?,
        "Softsign" => w.activation("SOFTSIGN", x)?,
        "Softplus" => w.one(kind("SOFTPLUS").float("alpha", 1.0).float("beta", 1.0))?,
        "LeakyRelu" => w.one(kind("LEAKY_RELU").float("alpha", attrs.float("alpha")))?,
        "Elu" => w.one(kind("ELU").float("alpha", attrs.float("alpha")))?,
        "ThresholdedRelu" => w.one(kind("THRESHOLDED_RELU").float("alpha", attrs.float("alpha")))?,
        "Selu" => w.one(
            kind("SELU")
                .float("alpha", attrs.float("alpha"))
                .float("beta", attrs.float("gamma")),
        )?,
        "HardSigmoid" => hard_sigmoid(w, x, attrs.float("alpha"), attrs.float("beta"))?,
        "Gelu" if attrs.text("approximate") == "tanh" => w.activation("GELU_TANH", x)?,
        "Gelu" => w.activation("GELU_ERF", x)?,
        "Silu" => {
            let gate = w.activation("SIGMOID", x)?;
            w.elementwise("PROD", x, gate)?
        }
        "HardSwish" => {
            let gate = hard_sigmoid(w, x, 1.0 / 6.0, 0.5)?;
            w.elementwise("PROD", x, gate)?
        }
        "Mish" => {
            let soft = w.one(kind("SOFTPLUS").float("alpha", 1.0).float("beta", 1.0))?;
            let gate = w.activation("TANH", soft)?;
            w.elementwise("PROD", x, gate)?
        }
        "PRelu" => {
            let slope = w.raised(layer, 1, w.ty(layer, 0)?.rank())?;
            w.one(Spec::new("ParametricReLU").input(x).input(slope))?
        }
        "Clip" => clip(w, layer, x)?,
        "Softmax" => softmax(w, layer, x)?,
        _ => log_softmax(w, layer, x)?,
    };
    Ok(vec![y])
}

/// `clamp(alpha * x + beta, 0, 1)`.
///
/// # Errors
/// If TensorRT refuses.
pub fn hard_sigmoid(w: &mut Writer, x: Tensor, alpha: f64, beta: f64) -> Result<Tensor> {
    let spec = Spec::new("Activation").input(x).word("type", "HARD_SIGMOID");
    w.one(spec.float("alpha", alpha).float("beta", beta))
}

fn clip(w: &mut Writer, layer: &Layer, x: Tensor) -> Result<Tensor> {
    let ty = w.ty(layer, 0)?;
    let bound = |index: usize, otherwise: f64| match layer.inputs.get(index).copied().flatten() {
        None => Some(otherwise),
        Some(_) => w.constant_of(layer, index).and_then(|array| array.uniform()),
    };
    let greatest = f64::from(f32::MAX);
    if let (true, Some(low), Some(high)) = (ty.dtype.is_float(), bound(1, -greatest), bound(2, greatest)) {
        let spec = Spec::new("Activation").input(x).word("type", "CLIP");
        return w.one(
            spec.float("alpha", low.max(-greatest))
                .float("beta", high.min(greatest)),
        );
    }
    let mut y = x;
    for (index, operation) in [(1, "MAX"), (2, "MIN")] {
        if layer.inputs.get(index).copied().flatten().is_some() {
            let bound = w.raised(layer, index, ty.rank())?;
            y = w.elementwise(operation, y, bound)?;
        }
    }
    Ok(y)
}

fn axis(w: &Writer, layer: &Layer) -> Result<usize> {
    let ty = w.ty(layer, 0)?;
    if ty.rank() == 0 {
        return Err(Error::unsupported("TensorRT has no softmax of a scalar"));
    }
    ty.axis(layer.attrs.int("axis"))
}

fn softmax(w: &mut Writer, layer: &Layer, x: Tensor) -> Result<Tensor> {
    let axis = axis(w, layer)?;
    w.one(Spec::new("SoftMax").input(x).int("axes", axis as i64))
}

/// Not the logarithm of a softmax: that loses what is small.
fn log_softmax(w: &mut Writer, layer: &Layer, x: Tensor) -> Result<Tensor> {
    let axis = axis(w, layer)?;
    let greatest = w.reduce("MAX", x, &[axis], true)?;
    let below = w.elementwise("SUB", x, greatest)?;
    let powers = w.unary("EXP", below)?;
    let sum = w.reduce("SUM", powers, &[axis], true)?;
    let sum = w.unary("LOG", sum)?;
    w.elementwise("SUB", below, sum)
}
