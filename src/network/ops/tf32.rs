//! TF32 eligibility: float32 products may round their operands to TF32, which has float32's range and 11 bits and is faster on
//! the tensor cores of GPUs. Sums stay float32.
//!
//! The mark is an attribute of the layer. Layers that decompositions write later, such as the exact products of integers, are
//! not eligible.

use crate::network::Layer;
use crate::network::attr::{AttrDef, Preset, Read, attr};

/// The attribute of ops that are products.
pub const TF32: AttrDef = attr(
    "tf32",
    Preset::Mark,
    "float32 operands of products may be rounded to tf32",
);

/// Whether a layer has products that can be marked so.
pub fn applies(layer: &Layer) -> bool {
    layer.op.attrs.iter().any(|attr| attr.name == TF32.name)
}

/// Whether a layer is TF32-eligible.
pub fn is_allowed(layer: &Layer) -> bool {
    layer.attrs.is_marked(TF32.name)
}
