//! Elements and rows that indices name. TensorRT's indices count from the front alone.

use super::Family;
use crate::error::{Error, Result};
use crate::network::Layer;
use crate::network::array::Array;
use crate::network::attr::Read;
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::providers::tensorrt::handle::{Spec, Tensor};
use crate::providers::tensorrt::implemented;
use crate::providers::tensorrt::writer::Writer;

/// See [`super::FAMILIES`].
pub const FAMILY: Family = Family {
    ops: &[
        "Gather",
        "GatherElements",
        "GatherND",
        "ScatterElements",
        "ScatterND",
        "OneHot",
        "NonZero",
    ],
    write,
};

fn write(w: &mut Writer, layer: &Layer) -> Result<Vec<Tensor>> {
    Ok(vec![match layer.op.name {
        "Gather" => gather(w, layer, "DEFAULT")?,
        "GatherElements" => gather(w, layer, "ELEMENT")?,
        "GatherND" => gather_nd(w, layer)?,
        "OneHot" => one_hot(w, layer)?,
        "NonZero" => non_zero(w, layer)?,
        _ => scatter(w, layer)?,
    }])
}

/// The indices of a layer, counted from the front; `limits` has an extent for each of the last entries of an index.
fn indices(w: &mut Writer, layer: &Layer, limits: &[Dim]) -> Result<Tensor> {
    let ty = w.ty(layer, 1)?;
    let known: Option<Vec<i64>> = limits.iter().map(Dim::as_const).collect();
    if let Some(array) = w.constant_of(layer, 1) {
        let values = array.to_i64();
        if values.iter().all(|&index| index >= 0) {
            return w.input(layer, 1);
        }
        if let Some(known) = known {
            let counted = values.iter().enumerate();
            let counted = counted.map(|(at, &i)| if i < 0 { i + known[at % known.len()] } else { i });
            let counted: Vec<i64> = counted.collect();
            return w.constant(&Array::from_i64(array.dtype(), array.shape().to_vec(), &counted)?);
        }
    }
    let given = w.input(layer, 1)?;
    let mut shape = vec![Dim::from(1i64); ty.rank()];
    if let Some(last) = shape.last_mut() {
        *last = limits.len().into();
    }
    let limits = w.dims(limits)?;
    let limits = w.cast(limits, DType::Int64, ty.dtype)?;
    let limits = w.reshape(limits, &shape)?;
    let zero = w.number(ty.dtype, 0.0, ty.rank())?;
    let behind = w.elementwise("LESS", given, zero)?;
    let counted = w.elementwise("SUM", given, limits)?;
    w.one(Spec::new("Select").input(behind).input(counted).input(given))
}

fn gather(w: &mut Writer, layer: &Layer, mode: &str) -> Result<Tensor> {
    let ty = w.ty(layer, 0)?;
    let axis = ty.axis(layer.attrs.int("axis"))?;
    let x = w.input(layer, 0)?;
    let indices = indices(w, layer, std::slice::from_ref(&ty.shape[axis]))?;
    let spec = Spec::new("Gather").input(x).input(indices).word("mode", mode);
    w.one(spec.int("axis", axis as i64))
}

/// The extents that the entries of an index count in, from this axis on.
fn entries<'n>(w: &Writer<'n>, layer: &Layer, first: usize) -> Result<&'n [Dim]> {
    let length = w.ty(layer, 1)?.shape.last().and_then(Dim::as_const);
    let length = length.ok_or_else(|| Error::unsupported("the length of an index comes with a call"))? as usize;
    let limits = w.ty(layer, 0)?.shape.get(first..first + length);
    limits.ok_or_else(|| Error::shape("an index has more entries than there are axes"))
}

fn gather_nd(w: &mut Writer, layer: &Layer) -> Result<Tensor> {
    let batch = layer.attrs.int("batch_dims") as usize;
    let limits = entries(w, layer, batch)?;
    let x = w.input(layer, 0)?;
    let indices = indices(w, layer, limits)?;
    let spec = Spec::new("Gather").input(x).input(indices).word("mode", "ND");
    w.one(spec.int("batch", batch as i64))
}

fn scatter(w: &mut Writer, layer: &Layer) -> Result<Tensor> {
    if layer.attrs.text("reduction") != "none" {
        return Err(Error::unsupported("TensorRT scatters without reduction alone"));
    }
    let ty = w.ty(layer, 0)?;
    let (x, updates) = (w.input(layer, 0)?, w.input(layer, 2)?);
    if layer.op.name == "ScatterElements" {
        let axis = ty.axis(layer.attrs.int("axis"))?;
        let indices = indices(w, layer, std::slice::from_ref(&ty.shape[axis]))?;
        let spec = Spec::new("Scatter").input(x).input(indices).input(updates);
        return w.one(spec.word("mode", "ELEMENT").int("axis", axis as i64));
    }
    let indices = indices(w, layer, entries(w, layer, 0)?)?;
    let spec = Spec::new("Scatter").input(x).input(indices).input(updates);
    w.one(spec.word("mode", "ND"))
}

fn one_hot(w: &mut Writer, layer: &Layer) -> Result<Tensor> {
    let y = &w.network[layer.outputs[0]].ty;
    let axis = y.axis(layer.attrs.int("axis"))?;
    let (x, depth, values) = (w.input(layer, 0)?, w.input(layer, 1)?, w.input(layer, 2)?);
    let depth = w.reshape(depth, &[])?;
    w.one(
        Spec::new("OneHot")
            .input(x)
            .input(values)
            .input(depth)
            .int("axis", axis as i64),
    )
}

fn non_zero(w: &mut Writer, layer: &Layer) -> Result<Tensor> {
    let x = w.input(layer, 0)?;
    let marks = w.cast(x, w.ty(layer, 0)?.dtype, DType::Bool)?;
    let found = w.one(Spec::new("NonZero").input(marks))?;
    implemented::check(w.session.library(), "NonZero")?;
    w.cast(found, DType::Int32, DType::Int64)
}
