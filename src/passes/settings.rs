//! What a build tells the passes.

use crate::network::Layer;
use crate::network::dtype::DType;
use std::collections::HashSet;

/// What the passes may do.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The dtype that float32 layers compute in; float32 leaves the graph as it is.
    pub compute: DType,
    /// Whether products of float32 may round what they multiply to tf32.
    pub tf32: bool,
    /// The layers, by name, that keep their precision whatever `compute` and `tf32` say.
    pub lifted: HashSet<String>,
    /// dtypes in which no arithmetic is available: such layers compute in float32 between Casts.
    pub unsupported: Vec<DType>,
    /// Whether the providers at hand have kernels for products of 8 bits between Quantize and Dequantize layers.
    pub quantized: bool,
    /// The dtypes of 8 bits that the preferred provider multiplies: products of such tensors stay float32 whatever `compute` says.
    pub eight_bits: Vec<DType>,
    /// Whether the providers at hand have kernels for products of floats with weights of few bits.
    pub packed_weights: bool,
    /// Whether no kernel at hand rounds activations where a model lets them be rounded.
    pub exact_activations: bool,
    /// Whether a product by channel is faster than a convolution that does the same, as on a GPU; oneDNN adds residuals behind these.
    pub channel_products: bool,
    /// Whether weights may get new values later by their own names: those of distinct names are then never merged.
    pub refittable: bool,
    /// A folded constant may be this many bytes larger than what it was computed from.
    pub fold_bytes: usize,
    /// A layer is folded only if that takes at most so many multiplications or moves of elements.
    pub fold_work: u64,
}

impl Settings {
    /// Whether a layer keeps its precision.
    pub(super) fn keeps(&self, layer: &Layer) -> bool {
        self.lifted.contains(&layer.name)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            compute: DType::Float32,
            tf32: false,
            lifted: HashSet::new(),
            unsupported: vec![],
            quantized: false,
            eight_bits: vec![],
            packed_weights: false,
            exact_activations: false,
            channel_products: false,
            refittable: true,
            fold_bytes: 64 << 20,
            fold_work: 1 << 28,
        }
    }
}
