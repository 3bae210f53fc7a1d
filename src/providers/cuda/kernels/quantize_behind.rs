//! Results that a kernel quantizes to 8 bits itself.

use crate::network::dtype::DType;
use crate::network::ops::cast;
use crate::network::quantization::Scheme;
use crate::network::{LayerId, Network, TensorId};

/// A Quantize layer behind another one.
#[derive(Clone)]
pub struct QuantizeBehind {
    /// The layer, and the Cast before it that the precision brought.
    pub layers: Vec<LayerId>,
    /// What it gives.
    pub output: TensorId,
    /// As what.
    pub scheme: Scheme,
    /// Whether others read what is quantized.
    pub kept: bool,
}

impl QuantizeBehind {
    /// That of a tensor whose kernel computes in float.
    pub fn of(network: &Network, y: TensorId) -> Option<Self> {
        let users = &network[y].users;
        if network[y].ty.dtype == DType::Float64 {
            return None;
        }
        users.iter().find_map(|&user| {
            let cast = &network[user];
            let layers = match cast.op.name == "Cast" && !cast::rounds(&cast.attrs) {
                true => vec![user, network.sole_user(cast.outputs[0])?],
                false => vec![user],
            };
            let quantize = &network[*layers.last()?];
            let scheme = Scheme::of(network, quantize).filter(|_| quantize.op.name == "QuantizeLinear")?;
            Some(Self {
                layers,
                output: quantize.outputs[0],
                scheme,
                kept: network.is_output(y) || users.len() > 1,
            })
        })
    }

    /// `QuantizeParams` of `types.cuh`, which nobody reads where nothing is quantized.
    pub fn params(found: Option<&Self>) -> [i64; 4] {
        found.map_or([0; 4], |found| params(found.scheme).map(i64::from))
    }
}

/// `QuantizeParams` of `types.cuh`.
pub fn params(scheme: Scheme) -> [i32; 4] {
    let [low, high] = scheme.limits();
    [(1.0 / scheme.scale).to_bits() as i32, scheme.zero, low, high]
}
