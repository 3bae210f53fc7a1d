//! The same elements elsewhere.

use super::Family;
use crate::error::{Error, Result};
use crate::network::Layer;
use crate::network::attr::Read;
use crate::network::ops::transpose;
use crate::providers::tensorrt::handle::{Spec, Tensor};
use crate::providers::tensorrt::writer::{Writer, signed};

/// See [`super::FAMILIES`].
pub const FAMILY: Family = Family {
    ops: &["Reshape", "Transpose", "Concat", "Identity", "ReverseSequence"],
    write,
};

fn write(w: &mut Writer, layer: &Layer) -> Result<Vec<Tensor>> {
    let x = w.input(layer, 0)?;
    let y = match layer.op.name {
        "Reshape" => w.reshape(x, &w.network[layer.outputs[0]].ty.shape)?,
        "Transpose" => {
            let order = transpose::permutation(&layer.attrs, w.ty(layer, 0)?.rank())?;
            w.one(Spec::new("Shuffle").input(x).ints("order", signed(&order)))?
        }
        "Concat" => concat(w, layer)?,
        "Identity" => w.one(Spec::new("Identity").input(x))?,
        _ => {
            let lengths = w.input(layer, 1)?;
            let spec = Spec::new("ReverseSequence").input(x).input(lengths);
            let spec = spec.int("batch_axis", layer.attrs.int("batch_axis"));
            w.one(spec.int("time_axis", layer.attrs.int("time_axis")))?
        }
    };
    Ok(vec![y])
}

fn concat(w: &mut Writer, layer: &Layer) -> Result<Tensor> {
    let ty = w.ty(layer, 0)?;
    if ty.rank() == 0 {
        return Err(Error::unsupported("TensorRT does not join scalars"));
    }
    let axis = ty.axis(layer.attrs.int("axis"))?;
    let parts = (0..layer.inputs.len()).map(|index| w.input(layer, index));
    let parts = parts.collect::<Result<Vec<_>>>()?;
    let spec = parts.into_iter().fold(Spec::new("Concatenation"), Spec::input);
    w.one(spec.int("axis", axis as i64))
}
