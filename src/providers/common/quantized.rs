//! What stands around a product of 8 bits: Dequantize layers in front of it and a Quantize layer behind it whose scales and zero points
//! are known at build time.

use crate::network::array::Array;
use crate::network::dtype::DType;
use crate::network::ops::pointwise::broadcast_places;
use crate::network::quantization::{self, Scheme};
use crate::network::{Layer, LayerId, Network, TensorId, reference};

/// A tensor of 8 bits behind a Dequantize layer that one layer alone reads.
#[derive(Debug, Clone, Copy)]
pub struct Dequantized {
    /// The layer.
    pub layer: LayerId,
    /// The tensor of 8 bits.
    pub tensor: TensorId,
    /// What it stands for.
    pub scheme: Scheme,
}

impl Dequantized {
    /// What a tensor is made of, if these are integers.
    pub fn integers(network: &Network, tensor: TensorId) -> Option<Self> {
        Self::of(network, tensor).filter(|found| found.scheme.is_int())
    }

    /// What a tensor is made of.
    pub fn of(network: &Network, tensor: TensorId) -> Option<Self> {
        let (id, layer) = network
            .producer(tensor)
            .filter(|(_, l)| l.op.name == "DequantizeLinear")?;
        network.sole_user(tensor)?;
        Some(Self {
            layer: id,
            tensor: layer.inputs[0]?,
            scheme: Scheme::of(network, layer)?,
        })
    }
}

/// A tensor of int8 behind a Dequantize layer with a scale for each token, a vector along the last axis, which one layer alone reads.
#[derive(Debug, Clone, Copy)]
pub struct PerToken {
    /// The layer.
    pub layer: LayerId,
    /// The tensor of int8.
    pub tensor: TensorId,
    /// The scales.
    pub scales: TensorId,
}

impl PerToken {
    /// What a tensor is made of, if it is such a tensor.
    pub fn of(network: &Network, tensor: TensorId) -> Option<Self> {
        let (id, layer) = network.producer(tensor)?;
        network.sole_user(tensor)?;
        Some(Self {
            layer: id,
            tensor: layer.inputs[0]?,
            scales: quantization::scales_of_tokens(network, layer)?,
        })
    }

    /// The integers without their scales.
    pub fn integers(self) -> Dequantized {
        Dequantized {
            layer: self.layer,
            tensor: self.tensor,
            scheme: Scheme {
                scale: 1.0,
                zero: 0,
                dtype: DType::Int8,
            },
        }
    }
}

/// Whether a Dequantize layer of tokens had better be left to the product behind it, which alone reads it.
pub fn claims_tokens(network: &Network, layer: &Layer) -> bool {
    let reader = || network.sole_user(layer.outputs[0]).map(|id| network[id].op.name);
    PerToken::of(network, layer.outputs[0]).is_some() && reader() == Some("MatMul")
}

/// Whether what a Dequantize layer gives is added to another product of 8 bits. That one reads it in 8 bits and does the sum; done
/// with the product that was quantized, the sum would read the other one in floats.
pub fn is_added_to_product(network: &Network, dequantize: LayerId) -> bool {
    let given = network[dequantize].outputs[0];
    let other = || {
        let add = &network[network.sole_user(given)?];
        let mut others = add.inputs.iter().flatten().filter(|&&t| t != given);
        others.next().copied().filter(|_| add.op.name == "Add")
    };
    let product = |tensor: TensorId| {
        network.sole_user(tensor)?;
        let (_, layer) = network.producer(tensor)?;
        let multiplies = matches!(layer.op.name, "Conv" | "MatMul");
        multiplies.then(|| Dequantized::of(network, layer.inputs[0]?)).flatten()
    };
    other().and_then(product).is_some()
}

/// Constant weights of 8 bits, with a scale for each place along one axis, or one for all.
#[derive(Clone)]
pub struct Weights {
    /// The Dequantize layer.
    pub layer: LayerId,
    /// Integers less their zero points, as int8; or float8_e4m3fn.
    pub array: Array,
    /// One scale, or one for each place along the axis.
    pub scales: Vec<f32>,
}

impl Weights {
    /// The weights that a tensor is made of, of the kind that they are multiplied with: integers that int8 holds, or float8_e4m3fn.
    /// `axis` counts the channels of the output.
    pub fn of(network: &Network, tensor: TensorId, axis: usize, left: Scheme) -> Option<Self> {
        let (id, layer) = network
            .producer(tensor)
            .filter(|(_, l)| l.op.name == "DequantizeLinear")?;
        network.sole_user(tensor)?;
        let constant = |at: usize| network[layer.inputs.get(at).copied().flatten()?].constant();
        let (stored, scale) = (constant(0)?, constant(1)?);
        let alike = match stored.dtype() {
            DType::Int8 | DType::UInt8 | DType::Int4 | DType::UInt4 => left.is_int(),
            dtype => dtype == left.dtype,
        };
        let fits = alike && scale.dtype() == DType::Float32 && !stored.is_empty();
        if !fits {
            return None;
        }
        let none = Array::scalar(stored.dtype(), 0.0);
        let zero = match layer.inputs.get(2).copied().flatten() {
            Some(_) => constant(2)?,
            None => &none,
        };
        Some(Self {
            layer: id,
            array: match left.is_int() {
                true => signed(stored, zero)?,
                false => zero.f64s().all(|zero| zero == 0.0).then(|| stored.clone())?,
            },
            scales: scales(scale, stored.shape(), axis)?,
        })
    }
}

/// Whether a Dequantize layer of such a scheme had better be left to one of these products, which alone reads it.
pub fn claims(network: &Network, layer: &Layer, products: &[&str], takes: impl Fn(&Scheme) -> bool) -> bool {
    let reader = || network.sole_user(layer.outputs[0]).map(|id| network[id].op.name);
    layer.op.name == "DequantizeLinear"
        && reader().is_some_and(|reader| products.contains(&reader))
        && Scheme::of(network, layer).as_ref().is_some_and(takes)
}

/// The Quantize layer to integers that alone reads a tensor.
pub fn end(network: &Network, tensor: TensorId) -> Option<(LayerId, Scheme)> {
    let id = network.sole_user(tensor)?;
    let layer = &network[id];
    let to_integers = |scheme: &Scheme| layer.op.name == "QuantizeLinear" && scheme.is_int();
    let scheme = Scheme::of(network, layer).filter(to_integers)?;
    (layer.inputs[0] == Some(tensor)).then_some((id, scheme))
}

/// Integers less their zero points, if int8 holds them.
pub fn signed(stored: &Array, zero: &Array) -> Option<Array> {
    let mut values = stored.to_i64();
    let places = broadcast_places(zero.shape(), stored.shape());
    let zero = zero.to_i64();
    values.iter_mut().zip(places).for_each(|(value, at)| *value -= zero[at]);
    let fits = values.iter().all(|value| i8::try_from(*value).is_ok());
    fits.then(|| Array::from_i64(DType::Int8, stored.shape().to_vec(), &values).ok())?
}

/// The scales along an axis of a tensor of this shape; none where they differ along another one.
fn scales(scale: &Array, shape: &[usize], axis: usize) -> Option<Vec<f32>> {
    let lead = shape.len().checked_sub(scale.shape().len())?;
    let along = |at: usize| at + lead == axis;
    let one = (0..scale.shape().len()).all(|at| scale.shape()[at] == 1 || along(at));
    let scales: Vec<f32> = scale.to_f64().iter().map(|&s| s as f32).collect();
    let usable = scales.iter().all(|s| s.is_finite());
    (one && usable && (scales.len() == 1 || scales.len() == shape[axis])).then_some(scales)
}

/// A constant, or what a Dequantize layer that one layer alone reads makes of constants, with that layer.
pub fn constant(network: &Network, tensor: TensorId) -> Option<(Array, Option<LayerId>)> {
    if let Some(array) = network[tensor].constant() {
        return Some((array.clone(), None));
    }
    let (id, layer) = network
        .producer(tensor)
        .filter(|(_, l)| l.op.name == "DequantizeLinear")?;
    network.sole_user(tensor)?;
    let inputs = layer.inputs.iter().map(|input| match input {
        None => Some(None),
        Some(input) => network[*input].constant().map(|array| Some(array.clone())),
    });
    let inputs: Option<Vec<_>> = inputs.collect();
    let mut arrays = reference::evaluate_op(layer.op, &layer.attrs, &inputs?).ok()?;
    Some((arrays.pop()?, Some(id)))
}
