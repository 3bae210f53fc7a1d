//! How layers of the network become layers of TensorRT: one family of ops a file.

mod activation;
mod body;
mod cell;
mod conditional;
mod convolution;
mod elementwise;
mod gather;
mod loop_;
mod movement;
mod nms;
mod normalization;
mod pad;
mod plugin;
mod pool;
mod product;
mod quantize;
mod recurrent;
mod reduce;
mod resize;
mod scalar;
mod scan;
mod sequence;
mod slice;
mod steps;

use super::handle::{Tensor, dtype_name};
use super::writer::Writer;
use crate::error::{Error, Result};
use crate::network::dim::Dim;
use crate::network::{Layer, LayerId, TensorId};

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
    conditional::FAMILY,
    convolution::CONV,
    convolution::TRANSPOSE,
    elementwise::UNARY,
    elementwise::BINARY,
    elementwise::MANY,
    elementwise::OTHER,
    gather::FAMILY,
    loop_::FAMILY,
    movement::FAMILY,
    nms::FAMILY,
    normalization::FAMILY,
    pad::FAMILY,
    plugin::FAMILY,
    pool::FAMILY,
    product::FAMILY,
    quantize::FAMILY,
    recurrent::FAMILY,
    reduce::FAMILY,
    reduce::INDEX,
    resize::FAMILY,
    scan::FAMILY,
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

/// Writes a layer of the network that is written.
///
/// # Errors
/// If TensorRT does not take it, or makes something else of it than the network says.
pub fn write(writer: &mut Writer, id: LayerId) -> Result<()> {
    let network = writer.network;
    let layer = &network[id];
    let write =
        find(layer.op.name).ok_or_else(|| Error::unsupported("Neurenix does not write it in layers of TensorRT"))?;
    let ids = layer.inputs.iter().flatten().chain(&layer.outputs);
    for tensor in ids.map(|&id| &network[id]) {
        dtype_name(tensor.ty.dtype).map_err(|e| e.tensor(&tensor.name))?;
    }
    writer.begin_layer(layer);
    let outputs = write(writer, layer)?;
    for (&ours, theirs) in layer.outputs.iter().zip(outputs) {
        agree(writer, ours, theirs)?;
        writer.put(ours, theirs);
    }
    Ok(())
}

/// TensorRT's own rules have to give the dtype and the extents that the network states.
fn agree(writer: &Writer, ours: TensorId, theirs: Tensor) -> Result<()> {
    let (ty, found) = (&writer.network[ours].ty, writer.session.describe(theirs)?);
    let fits = |(dim, extent): (&Dim, &i64)| dim.as_const().is_none_or(|known| *extent < 0 || *extent == known);
    let same = found.shape.len() == ty.rank() && ty.shape.iter().zip(&found.shape).all(fits);
    match same && found.dtype == dtype_name(ty.dtype)? {
        true => Ok(()),
        false => Err(Error::unsupported(format!(
            "TensorRT gives {}{:?} where the network has {}",
            found.dtype,
            found.shape,
            ty.describe()
        ))),
    }
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
