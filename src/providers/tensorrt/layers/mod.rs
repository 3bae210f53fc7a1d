//! How layers of the network become layers of TensorRT: one family of ops a file.

mod activation;
mod convolution;
mod elementwise;
mod gather;
mod movement;
mod normalization;
mod pad;
mod plugin;
mod pool;
mod product;
mod quantize;
mod reduce;
mod resize;
mod sequence;
mod slice;

use super::handle::Tensor;
use super::writer::Writer;
use crate::error::Result;
use crate::network::Layer;

/// Writes a layer; gives its outputs.
pub type Write = fn(&mut Writer, &Layer) -> Result<Vec<Tensor>>;

/// Ops that are written in the same way.
pub struct Family {
    /// The ops, by name.
    pub ops: &'static [&'static str],
    /// Writes one of them.
    pub write: Write,
}

/// Every family.
pub static FAMILIES: &[Family] = &[
    activation::FAMILY,
    convolution::CONV,
    convolution::TRANSPOSE,
    elementwise::UNARY,
    elementwise::BINARY,
    elementwise::MANY,
    elementwise::OTHER,
    gather::FAMILY,
    movement::FAMILY,
    normalization::FAMILY,
    pad::FAMILY,
    plugin::FAMILY,
    pool::FAMILY,
    product::FAMILY,
    quantize::FAMILY,
    reduce::FAMILY,
    reduce::INDEX,
    resize::FAMILY,
    sequence::FAMILY,
    slice::FAMILY,
];

/// What writes an op; none where TensorRT has no layer for it.
pub fn find(op: &str) -> Option<Write> {
    FAMILIES
        .iter()
        .find(|family| family.ops.contains(&op))
        .map(|family| family.write)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::ops;
    use std::collections::BTreeSet;

    #[test]
    fn every_op_of_a_family_is_one_of_ours_and_has_one_family() {
        let mut seen = BTreeSet::new();
        for op in FAMILIES.iter().flat_map(|family| family.ops) {
            assert!(ops::find(op).is_ok(), "{op}");
            assert!(seen.insert(op), "{op} has two families");
        }
        assert!(seen.len() > 90, "{}", seen.len());
    }
}
