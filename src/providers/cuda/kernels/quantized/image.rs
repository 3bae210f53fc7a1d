//! Images of floats that the kernel for few channels quantizes as it reads them.

use super::found::Found;
use super::{Operation, stem};
use crate::network::dtype::DType;
use crate::network::quantization::Scheme;
use crate::network::{LayerId, Network, TensorId};
use crate::providers::common::cast::cast_before;

/// What a Quantize layer makes the pixels of, which this product alone reads.
#[derive(Clone)]
pub struct Image {
    /// The Quantize layer, and behind it a Cast of 16 bits in front of it.
    pub layers: Vec<LayerId>,
    /// The pixels.
    pub tensor: TensorId,
    /// Their dtype.
    pub dtype: DType,
}

impl Image {
    /// That of a product, if the kernel is for it.
    pub fn of(network: &Network, found: &Found) -> Option<Self> {
        let Operation::Conv(geometry) = &found.operation else {
            return None;
        };
        let terms = geometry.weights[1..].iter().map(|dim| dim.as_const());
        let terms: i64 = terms.product::<Option<i64>>()?;
        if !stem::fits(geometry, terms as usize) {
            return None;
        }
        network.sole_user(found.left.tensor)?;
        let (quantize, layer) = network.producer(found.left.tensor)?;
        // What is padded is zero, which the layers have to agree about.
        let alike = layer.op.name == "QuantizeLinear" && Scheme::of(network, layer) == Some(found.left.scheme);
        let quantized = layer.inputs[0].filter(|_| alike)?;
        // A Cast to other floats than float32 rounds.
        let widened = cast_before(network, quantized, &[DType::Float16, DType::BFloat16])
            .filter(|_| network[quantized].ty.dtype == DType::Float32);
        let (layers, tensor) = match widened {
            Some((cast, narrow)) => (vec![quantize, cast], narrow),
            None => (vec![quantize], quantized),
        };
        let dtype = network[tensor].ty.dtype;
        Some(Self { layers, tensor, dtype })
    }
}
