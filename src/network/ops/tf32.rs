//! Leave for products of float32 to round what they multiply to tf32, which has float32's range and 11 bits: faster on
//! GPUs whose tensor cores read it. Sums stay float32.
//!
//! It stands at the layer, so that it is only where it was asked for: layers that decompositions write later, such as
//! the exact products of integers, have none.

use crate::network::Layer;
use crate::network::attr::{AttrDef, Preset, Read, attr};

/// The attribute of ops that are products.
pub const TF32: AttrDef = attr(
    "tf32",
    Preset::Mark,
    "float32 operands of products may be rounded to tf32",
);

/// Whether an op has such products.
pub fn applies(layer: &Layer) -> bool {
    layer.op.attrs.iter().any(|attr| attr.name == TF32.name)
}

/// Whether a layer may round what it multiplies.
pub fn is_allowed(layer: &Layer) -> bool {
    layer.attrs.is_marked(TF32.name)
}
