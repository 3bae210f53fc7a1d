//! Matrix products.

use super::Family;
use crate::error::Result;
use crate::network::Layer;
use crate::network::attr::Read;
use crate::providers::tensorrt::handle::{Spec, Tensor};
use crate::providers::tensorrt::writer::Writer;

/// See [`super::FAMILIES`].
pub const FAMILY: Family = Family {
    ops: &["MatMul"],
    write,
};

fn write(w: &mut Writer, layer: &Layer) -> Result<Vec<Tensor>> {
    let ranks = [w.ty(layer, 0)?.rank(), w.ty(layer, 1)?.rank()];
    let batch = ranks.map(|rank| rank.max(2) - 2).into_iter().max().unwrap_or(0);
    let side = |w: &mut Writer, index: usize, flag: &str| -> Result<(Tensor, &str)> {
        // A vector has one dimension less than a matrix.
        let (rank, operation) = match ranks[index] {
            1 => (batch + 1, "VECTOR"),
            _ if layer.attrs.flag(flag) => (batch + 2, "TRANSPOSE"),
            _ => (batch + 2, "NONE"),
        };
        Ok((w.raised(layer, index, rank)?, operation))
    };
    let ((a, left), (b, right)) = (side(w, 0, "transA")?, side(w, 1, "transB")?);
    let spec = Spec::new("MatrixMultiply").input(a).input(b);
    Ok(vec![w.one(spec.word("left", left).word("right", right))?])
}
