//! How a tensor of 8 bits as a whole stands for numbers.

use crate::network::attr::Read;
use crate::network::dtype::DType;
use crate::network::{Layer, Network, TensorId};

/// How a tensor of 8 bits stands for numbers: `scale * (q - zero)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scheme {
    /// The scale.
    pub scale: f32,
    /// The zero point.
    pub zero: i32,
    /// int8, uint8, or float8_e4m3fn, whose zero point is 0.
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
        // Out of range is the nearest end, as integers have it.
        let saturates = || layer.op.name != "QuantizeLinear" || layer.attrs.flag("saturate");
        let has_8_bits = match dtype {
            DType::Int8 | DType::UInt8 => true,
            DType::Float8E4M3FN => saturates(),
            _ => false,
        };
        let plain =
            has_8_bits && network[float].ty.dtype == DType::Float32 && network[x].ty.shape == network[y].ty.shape;
        let number = |at: usize| network[layer.inputs.get(at).copied().flatten()?].constant()?.uniform();
        let scale = number(1)? as f32;
        let zero = match layer.inputs.get(2).copied().flatten() {
            Some(_) => number(2)?,
            None => 0.0,
        };
        let scheme = Self {
            scale,
            zero: zero as i32,
            dtype,
        };
        let centred = scheme.is_int() || zero == 0.0;
        (plain && centred && scale.is_normal() && scale > 0.0).then_some(scheme)
    }

    /// What products of such tensors are called in reports: those of integers count as int8, whatever their signs.
    pub fn products(&self) -> DType {
        if self.is_int() { DType::Int8 } else { self.dtype }
    }

    /// The word for it in the names of kernels.
    pub fn word(&self) -> &'static str {
        if self.is_int() { "int8" } else { "fp8" }
    }

    /// Whether the 8 bits are an integer.
    pub fn is_int(&self) -> bool {
        self.dtype.is_int()
    }

    /// The least and the greatest number of the dtype.
    pub fn limits(&self) -> [i32; 2] {
        match self.dtype {
            DType::UInt8 => [0, 255],
            DType::Float8E4M3FN => [-448, 448],
            _ => [-128, 127],
        }
    }

    /// The least and the greatest number that 8 bits stand for, in scales.
    pub fn ends(&self) -> (f32, f32) {
        let [low, high] = self.limits();
        ((low - self.zero) as f32, (high - self.zero) as f32)
    }
}

/// The scales of a DequantizeLinear layer that stands for int8 by a scale for each token, which another layer finds at each call.
pub fn scales_of_tokens(network: &Network, layer: &Layer) -> Option<TensorId> {
    let (x, scales) = (
        layer.inputs.first().copied().flatten()?,
        layer.inputs.get(1).copied().flatten()?,
    );
    let zero = layer.inputs.get(2).copied().flatten();
    let (ty, of_tokens) = (&network[x].ty, &network[scales].ty);
    let (_, tokens) = ty.shape.split_last()?;
    let each = of_tokens
        .shape
        .split_last()
        .is_some_and(|(one, others)| one.is(1) && others == tokens);
    let dtypes = ty.dtype == DType::Int8 && of_tokens.dtype == DType::Float32;
    let found = layer.op.name == "DequantizeLinear" && dtypes && zero.is_none() && network[scales].constant().is_none();
    (found && each).then_some(scales)
}
