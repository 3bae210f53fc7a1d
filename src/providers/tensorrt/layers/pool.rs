//! Pooling.

use super::Family;
use super::convolution::{along, is_auto, padding, widened};
use crate::error::{Error, Result};
use crate::network::Layer;
use crate::network::attr::Read;
use crate::network::ops::pool;
use crate::providers::tensorrt::handle::{Spec, Tensor};
use crate::providers::tensorrt::writer::Writer;

/// See [`super::FAMILIES`].
pub const FAMILY: Family = Family {
    ops: &["MaxPool", "AveragePool"],
    write,
};

fn write(w: &mut Writer, layer: &Layer) -> Result<Vec<Tensor>> {
    let window = pool::window(&layer.attrs)?;
    if window.dilations.iter().any(|&d| d != 1) {
        return Err(Error::unsupported("TensorRT has no dilated pooling"));
    }
    let (x, y) = (w.ty(layer, 0)?, &w.network[layer.outputs[0]].ty);
    let (begin, end) = padding(&window, is_auto(layer), &x.shape[2..], &y.shape[2..])?;
    let input = w.input(layer, 0)?;
    let (input, wide) = widened(w, input, x)?;
    let average = layer.op.name == "AveragePool";
    let spec = Spec::new("Pooling")
        .input(input)
        .word("type", if average { "AVERAGE" } else { "MAX" })
        .ints("kernel", along(window.kernel, wide, 1))
        .ints("strides", along(window.strides, wide, 1))
        .ints("pre_padding", along(begin, wide, 0))
        .ints("post_padding", along(end, wide, 0))
        .int("round_up", layer.attrs.flag("ceil_mode"))
        .int("count_padding", average && layer.attrs.flag("count_include_pad"));
    let output = w.one(spec)?;
    Ok(vec![match wide {
        true => w.reshape(output, &y.shape)?,
        false => output,
    }])
}
