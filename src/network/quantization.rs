//! How a tensor of 8 bits as a whole stands for numbers.

use crate::network::dtype::DType;
use crate::network::{Layer, Network};

/// How a tensor of 8 bits stands for numbers: `scale * (q - zero)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scheme {
    /// The scale.
    pub scale: f32,
    /// The zero point.
    pub zero: i32,
    /// int8 or uint8.
    pub dtype: DType,
}

impl Scheme {
    /// Of a QuantizeLinear or DequantizeLinear layer with one scale and one zero point, both constant, between float32 and 8 bits.
    pub fn of(network: &Network, layer: &Layer) -> Option<Self> {
        let (x, y) = (layer.inputs.first().copied().flatten()?, layer.outputs[0]);
        let (quantized, float) = match layer.op.name {
            "QuantizeLinear" => (y, x),
            "DequantizeLinear" => (x, y),
            _ => return None,
        };
        let dtype = network[quantized].ty.dtype;
        let plain = matches!(dtype, DType::Int8 | DType::UInt8)
            && network[float].ty.dtype == DType::Float32
            && network[x].ty.shape == network[y].ty.shape;
        let number = |at: usize| network[layer.inputs.get(at).copied().flatten()?].constant()?.uniform();
        let scale = number(1)? as f32;
        let zero = match layer.inputs.get(2).copied().flatten() {
            Some(_) => number(2)? as i32,
            None => 0,
        };
        (plain && scale.is_normal() && scale > 0.0).then_some(Self { scale, zero, dtype })
    }

    /// The least and the greatest number that 8 bits stand for, in scales.
    pub fn ends(&self) -> (f32, f32) {
        let (low, high) = match self.dtype {
            DType::UInt8 => (0, 255),
            _ => (-128, 127),
        };
        ((low - self.zero) as f32, (high - self.zero) as f32)
    }
}
