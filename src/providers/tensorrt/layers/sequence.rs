//! Numbers in a row, sums of them, and triangles of matrices.

use super::Family;
use crate::error::{Error, Result};
use crate::network::Layer;
use crate::network::array::Array;
use crate::network::attr::Read;
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::providers::tensorrt::handle::{Spec, Tensor, dtype_name};
use crate::providers::tensorrt::writer::Writer;

/// See [`super::FAMILIES`].
pub const FAMILY: Family = Family {
    ops: &["Range", "CumSum", "Trilu"],
    write,
};

fn write(w: &mut Writer, layer: &Layer) -> Result<Vec<Tensor>> {
    Ok(vec![match layer.op.name {
        "Range" => range(w, layer)?,
        "CumSum" => cumulative(w, layer)?,
        _ => trilu(w, layer)?,
    }])
}

/// `start + delta * i`, with a delta for each axis.
///
/// # Errors
/// If an extent can't be told at a call.
pub fn linspace(w: &mut Writer, shape: &[Dim], dtype: DType, start: Tensor, delta: Tensor) -> Result<Tensor> {
    let shape = w.dims(shape)?;
    let spec = Spec::new("Linspace").input(shape).input(start).input(delta);
    w.one(spec.word("dtype", dtype_name(dtype)?))
}

fn range(w: &mut Writer, layer: &Layer) -> Result<Tensor> {
    let y = &w.network[layer.outputs[0]].ty;
    let (start, delta) = (w.input(layer, 0)?, w.input(layer, 2)?);
    let start = w.reshape(start, &[])?;
    let delta = w.reshape(delta, &[Dim::from(1i64)])?;
    linspace(w, &y.shape, y.dtype, start, delta)
}

fn cumulative(w: &mut Writer, layer: &Layer) -> Result<Tensor> {
    let ty = w.ty(layer, 0)?;
    let axis = w.value(layer, 1).and_then(|axis| axis.first()).and_then(Dim::as_const);
    let axis = ty.axis(axis.ok_or_else(|| Error::unsupported("the axis comes with a call"))?)?;
    let x = w.input(layer, 0)?;
    let axis = w.constant(&Array::from_i64(DType::Int64, vec![], &[axis as i64])?)?;
    let spec = Spec::new("Cumulative").input(x).input(axis);
    w.one(
        spec.int("exclusive", layer.attrs.flag("exclusive"))
            .int("reverse", layer.attrs.flag("reverse")),
    )
}

/// What stands right or left of the diagonal, by comparing the numbers of columns and rows.
fn trilu(w: &mut Writer, layer: &Layer) -> Result<Tensor> {
    let ty = w.ty(layer, 0)?;
    let k = match layer.inputs.get(1).copied().flatten() {
        None => Some(0),
        Some(_) => w.value(layer, 1).and_then(|k| k.first()).and_then(Dim::as_const),
    };
    let k = k.ok_or_else(|| Error::unsupported("the diagonal comes with a call"))?;
    let matrix = &ty.shape[ty.rank() - 2..];
    let x = w.input(layer, 0)?;
    let zero = w.constant(&Array::from_i64(DType::Int64, vec![], &[0])?)?;
    let along = [[0, 1], [1, 0]].map(|delta| {
        let delta = w.ints(&delta)?;
        linspace(w, matrix, DType::Int64, zero, delta)
    });
    let [columns, rows] = along;
    let distance = w.elementwise("SUB", columns?, rows?)?;
    // Strictly above the diagonal before, or strictly below the one behind.
    let (operation, limit) = if layer.attrs.flag("upper") {
        ("GREATER", k - 1)
    } else {
        ("LESS", k + 1)
    };
    let limit = w.number(DType::Int64, limit as f64, 2)?;
    let inside = w.elementwise(operation, distance, limit)?;
    let inside = w.raise(inside, matrix, ty.rank())?;
    let nothing = w.number(ty.dtype, 0.0, ty.rank())?;
    w.one(Spec::new("Select").input(inside).input(x).input(nothing))
}
