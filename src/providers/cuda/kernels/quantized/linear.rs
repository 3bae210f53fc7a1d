//! What follows a product of 8 bits where that is linear but for its last rounding: a residual of 8 bits, Relu, Quantize. Its
//! factors are multiplied once, with those of the product.

use crate::network::dtype::DType;
use crate::network::quantization::Scheme;
use crate::network::{LayerId, Network, TensorId};
use std::collections::HashMap;

/// What the types of [`Linear::text`] are.
pub const SOURCE: &str = include_str!("../../../../../kernels/linear.cuh");

/// `code(sum * scale + shift + (residual - zero) * scale)`, each scale divided by that of the result.
#[derive(Debug, Clone, PartialEq)]
pub struct Linear {
    /// What the sums of the product are multiplied by besides: the scale of the result, inverted.
    pub inverse: f64,
    /// What is added.
    pub residual: Option<Scheme>,
    /// The zero point of the result, and between which numbers it lies.
    zero: i32,
    limits: [i32; 2],
}

impl Linear {
    /// What these layers, which come in an order of execution, do behind a tensor.
    pub fn of(network: &Network, product: TensorId, layers: &[LayerId]) -> Option<Self> {
        let (last, others) = layers.split_last()?;
        let mut codes: HashMap<TensorId, Scheme> = HashMap::new();
        let (mut x, mut residual, mut relu) = (product, None, false);
        for &id in others {
            let layer = &network[id];
            let inputs: Vec<TensorId> = layer.inputs.iter().copied().flatten().collect();
            match layer.op.name {
                "DequantizeLinear" => {
                    codes.insert(layer.outputs[0], Scheme::of(network, layer).filter(Scheme::is_int)?);
                    continue;
                }
                "Add" if residual.is_none() && !relu => {
                    let other = inputs.iter().find(|&&input| input != x)?;
                    residual = Some(*codes.get(other).filter(|_| inputs.contains(&x))?);
                }
                "Relu" if inputs == [x] => relu = true,
                _ => return None,
            }
            x = layer.outputs[0];
        }
        let scheme = Scheme::of(network, &network[*last]).filter(|scheme| scheme.is_int())?;
        let quantizes = network[*last].op.name == "QuantizeLinear" && network[*last].inputs[0] == Some(x);
        let [low, high] = scheme.limits();
        quantizes.then(|| Self {
            inverse: 1.0 / f64::from(scheme.scale),
            residual,
            zero: scheme.zero,
            limits: [if relu { low.max(scheme.zero) } else { low }, high],
        })
    }

    /// What the residual is multiplied by.
    pub fn numbers(&self) -> Vec<f32> {
        let scale = |residual: &Scheme| (f64::from(residual.scale) * self.inverse) as f32;
        self.residual.iter().map(scale).collect()
    }

    /// The type of `linear.cuh` that it is, and what it is made of; the types of results and residual stand in `Tail`.
    pub fn text(&self) -> [String; 2] {
        let Self { zero, limits, .. } = self;
        let code = format!("Coder<{zero}, {}, {}>", limits[0], limits[1]);
        let Some(residual) = &self.residual else {
            return [format!("Bare<{code}>"), format!("Bare<{code}>{{}}")];
        };
        // Codes are read as if they began at zero.
        let begin = if residual.dtype == DType::Int8 { 128 } else { 0 };
        let ty = format!("WithResidual<{code}, {begin}, {}>", residual.zero + begin);
        [ty.clone(), format!("{ty}{{n.at[0]}}")]
    }
}
