//! Padding and repetition: slices that begin or end outside.

use super::Family;
use super::slice::slice;
use crate::error::{Error, Result};
use crate::network::Layer;
use crate::network::attr::Read;
use crate::network::dim::Dim;
use crate::providers::tensorrt::handle::Tensor;
use crate::providers::tensorrt::writer::Writer;

/// See [`super::FAMILIES`].
pub const FAMILY: Family = Family {
    ops: &["Pad", "Tile"],
    write,
};

fn write(w: &mut Writer, layer: &Layer) -> Result<Vec<Tensor>> {
    let (x, y) = (w.input(layer, 0)?, &w.network[layer.outputs[0]].ty);
    let ones = vec![1; y.rank()];
    if layer.op.name == "Tile" {
        return Ok(vec![slice(
            w,
            x,
            &vec![Dim::from(0i64); y.rank()],
            &y.shape,
            &ones,
            "WRAP",
            None,
        )?]);
    }
    let pads = w
        .value(layer, 1)
        .ok_or_else(|| Error::unsupported("what is padded comes with a call"))?;
    let axes: Vec<usize> = match layer.inputs.get(3).copied().flatten() {
        None => (0..y.rank()).collect(),
        Some(_) => {
            let axes = w.value(layer, 3).unwrap_or_default().iter().map(Dim::as_const);
            let axes = axes.collect::<Option<Vec<i64>>>();
            let axes = axes.ok_or_else(|| Error::unsupported("the axes to pad come with a call"))?;
            axes.into_iter().map(|axis| y.axis(axis)).collect::<Result<_>>()?
        }
    };
    let mut start = vec![Dim::from(0i64); y.rank()];
    for (&axis, before) in axes.iter().zip(pads) {
        start[axis] = -before.clone();
    }
    let (mode, fill) = match layer.attrs.text("mode") {
        "constant" => {
            let fill = match layer.inputs.get(2).copied().flatten() {
                Some(value) => {
                    let value = w.tensor(value)?;
                    w.reshape(value, &[])?
                }
                None => w.number(y.dtype, 0.0, 0)?,
            };
            ("FILL", Some(fill))
        }
        "reflect" => ("REFLECT", None),
        "edge" => ("CLAMP", None),
        _ => ("WRAP", None),
    };
    Ok(vec![slice(w, x, &start, &y.shape, &ones, mode, fill)?])
}
