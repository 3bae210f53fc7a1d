//! Col2Im.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attr, Attrs};
use crate::network::dim::Dim;
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType, Uint64};
use crate::network::ops::spatial::{self, Window};
use crate::network::ops::{gather, indexing, strides, values};

/// Columns added up to the image that they were taken from (ONNX Col2Im).
pub static DEF: OpDef = OpDef {
    name: "Col2Im",
    doc: "Columns x [N, C * block, L], one per place of the block, added up to an image [N, C, image...] (ONNX Col2Im)",
    inputs: &["x", "image_shape", "block_shape"],
    attrs: &[spatial::DILATIONS, spatial::PADS, spatial::STRIDES],
    infer,
    evaluate,
    lowering: Lowering::WIDE,
    uint64: Uint64::Exact,
    ..OpDef::PLAIN
};

fn window(attrs: &Attrs, block: Vec<i64>) -> Result<Window> {
    let mut attrs = attrs.clone();
    attrs.insert("auto_pad".into(), Attr::Text("NOTSET".into()));
    Window::read(&attrs, block)
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (x, image, block) = (
        infer.input(0)?,
        gather::index_tensor(infer, 1)?,
        gather::index_tensor(infer, 2)?,
    );
    if x.rank() != 3 || image.rank() != 1 || image.shape != block.shape {
        return Err(Error::shape("the columns, the image or the block do not fit")
            .expected("[N, C * block, L], and two vectors of one length")
            .got(format!(
                "{}, {} and {}",
                x.describe(),
                image.describe(),
                block.describe()
            )));
    }
    let mut shape = vec![x.shape[0].clone()];
    let image = values::target(infer, 1)?;
    let Some(block) = infer.value(2) else {
        shape.push(infer.fresh(image.len()));
        shape.extend(image);
        return Ok(vec![TensorType::new(x.dtype, shape)]);
    };
    let numbers = infer.numbers(2)?;
    let window = window(infer.attrs, numbers)?;
    let count = block.iter().fold(Dim::from(1i64), |n, d| n * d.clone());
    let rest = x.shape[1].modulo(&count);
    infer.require_equal(&rest, &Dim::default(), "the columns divide into blocks")?;
    let places = (0..image.len()).fold(Dim::from(1i64), |n, a| n * window.output(a, &image[a], false));
    if infer.value(1).is_some() {
        infer.require_equal(&places, &x.shape[2], "there is one column per place of the block")?;
    }
    shape.push(x.shape[1].floordiv(&count));
    shape.extend(image);
    Ok(vec![TensorType::new(x.dtype, shape)])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (x, shape) = (e.input(0)?, &e.outputs[0].1);
    let window = window(e.attrs, e.input(2)?.to_i64())?;
    let (image, steps) = (&shape[2..], strides(shape));
    let outputs: Vec<usize> = (0..image.len())
        .map(|a| window.output(a, &image[a].into(), false).as_const())
        .map(|n| n.and_then(|n| usize::try_from(n).ok()).unwrap_or(0))
        .collect();
    let kernel: Vec<usize> = window.kernel.iter().map(|&k| k as usize).collect();
    let (taps, places) = (indexing::positions(&kernel), indexing::positions(&outputs));
    if shape[1] * taps.len() != x.shape()[1] || places.len() != x.shape()[2] {
        return Err(Error::shape("the columns do not fit the image and the block")
            .expected(format!("[N, {}, {}]", shape[1] * taps.len(), places.len()))
            .got(format!("{:?}", x.shape())));
    }
    let each = |add: &mut dyn FnMut(usize, usize)| {
        let from = (0..x.len()).step_by(places.len().max(1));
        let taps = (0..shape[0] * shape[1]).flat_map(|plane| taps.iter().map(move |tap| (plane, tap)));
        for (from, (plane, tap)) in from.zip(taps) {
            for (column, place) in places.iter().enumerate() {
                let at = (0..image.len()).try_fold(plane * steps[1], |at, a| {
                    let i = place[a] as i64 * window.strides[a] - window.begin[a] + tap[a] as i64 * window.dilations[a];
                    let i = usize::try_from(i).ok().filter(|&i| i < image[a])?;
                    Some(at + i * steps[a + 2])
                });
                if let Some(at) = at {
                    add(at, from + column);
                }
            }
        }
    };
    let count = shape.iter().product();
    if x.dtype().is_int() {
        let (data, mut out) = (x.to_i64(), vec![0i64; count]);
        each(&mut |to, from| out[to] = out[to].wrapping_add(data[from]));
        return Ok(vec![Array::from_i64(x.dtype(), shape.clone(), &out)?]);
    }
    let (data, mut out) = (x.to_f64(), vec![0.0; count]);
    each(&mut |to, from| out[to] += data[from]);
    e.output(&out)
}
