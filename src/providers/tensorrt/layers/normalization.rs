//! Normalization over the spatial or the last axes.

use super::Family;
use crate::error::Result;
use crate::network::Layer;
use crate::network::array::Array;
use crate::network::attr::Read;
use crate::network::dim::Dim;
use crate::providers::tensorrt::handle::{Spec, Tensor};
use crate::providers::tensorrt::writer::{Writer, signed};

/// See [`super::FAMILIES`].
pub const FAMILY: Family = Family {
    ops: &[
        "LayerNormalization",
        "InstanceNormalization",
        "GroupNormalization",
        "LRN",
    ],
    write,
};

fn write(w: &mut Writer, layer: &Layer) -> Result<Vec<Tensor>> {
    let (x, attrs) = (w.input(layer, 0)?, &layer.attrs);
    Ok(vec![match layer.op.name {
        "LayerNormalization" => layer_norm(w, layer, x)?,
        "InstanceNormalization" => by_channel(w, layer, x, 2, 1)?,
        "GroupNormalization" => match attrs.int("num_groups") {
            // No groups are what TensorRT has by default: the channels are axes like others.
            1 => by_channel(w, layer, x, 1, 1)?,
            groups => by_channel(w, layer, x, 2, groups)?,
        },
        _ => {
            let spec = Spec::new("LRN").input(x).int("window", attrs.int("size"));
            let spec = spec
                .float("alpha", attrs.float("alpha"))
                .float("beta", attrs.float("beta"));
            w.one(spec.float("k", attrs.float("bias")))?
        }
    }])
}

/// Normalizes over axes, with scale and bias of these shapes.
fn normalize(w: &mut Writer, layer: &Layer, x: Tensor, axes: &[usize], shape: &[Dim], groups: i64) -> Result<Tensor> {
    let scale = w.input(layer, 1)?;
    let scale = w.reshape(scale, shape)?;
    let bias = match layer.inputs.get(2).copied().flatten() {
        Some(bias) => w.tensor(bias)?,
        None => {
            let ty = w.ty(layer, 1)?;
            let extents = ty.concrete().unwrap_or_default();
            w.constant(&Array::full(ty.dtype, extents, 0.0)?)?
        }
    };
    let bias = w.reshape(bias, shape)?;
    let spec = Spec::new("Normalization").input(x).input(scale).input(bias);
    let spec = spec.ints("axes", signed(axes)).int("groups", groups);
    w.one(spec.float("epsilon", layer.attrs.float("epsilon")))
}

fn layer_norm(w: &mut Writer, layer: &Layer, x: Tensor) -> Result<Tensor> {
    let ty = w.ty(layer, 0)?;
    let first = ty.axis(layer.attrs.int("axis"))?;
    let scale = &w.ty(layer, 1)?.shape;
    let ones = std::iter::repeat_n(Dim::from(1i64), ty.rank() - scale.len());
    let shape: Vec<Dim> = ones.chain(scale.iter().cloned()).collect();
    let axes: Vec<usize> = (first..ty.rank()).collect();
    normalize(w, layer, x, &axes, &shape, 1)
}

/// Normalizes over the axes from one on, with scale and bias of each channel.
fn by_channel(w: &mut Writer, layer: &Layer, x: Tensor, first: usize, groups: i64) -> Result<Tensor> {
    let ty = w.ty(layer, 0)?;
    let mut shape = vec![Dim::from(1i64); ty.rank()];
    shape[1] = ty.shape[1].clone();
    let axes: Vec<usize> = (first..ty.rank()).collect();
    normalize(w, layer, x, &axes, &shape, groups)
}
