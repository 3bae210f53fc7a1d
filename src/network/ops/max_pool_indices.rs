//! MaxPoolIndices.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::dtype::DType;
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType};
use crate::network::ops::{indexing, pool, spatial, strides};

/// Where MaxPool finds the greatest element of each window: its second output.
pub static DEF: OpDef = OpDef {
    name: "MaxPoolIndices",
    doc: "Where in x [N, C, spatial...] the greatest element of each window is, counted over the whole tensor; the first \
          of equal ones, -1 for a window of padding (ONNX MaxPool's output Indices)",
    inputs: &["x"],
    attrs: &[
        pool::KERNEL_SHAPE,
        spatial::STRIDES,
        spatial::DILATIONS,
        spatial::PADS,
        spatial::AUTO_PAD,
        pool::CEIL_MODE,
        attr(
            "storage_order",
            Preset::Int(0),
            "0: the last spatial axis counts fastest; 1: the first one does",
        ),
    ],
    infer,
    evaluate,
    lowering: Lowering::WIDE,
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let order = infer.attrs.int("storage_order");
    if !(0..=1).contains(&order) {
        return Err(Error::invalid("attribute \"storage_order\" is unknown")
            .expected("0 or 1")
            .got(order.to_string()));
    }
    let mut types = pool::infer(infer)?;
    types[0].dtype = DType::Int64;
    Ok(types)
}

/// Element strides by which places are counted.
fn counting(shape: &[usize], columns_first: bool) -> Vec<usize> {
    let mut steps = strides(shape);
    if columns_first {
        let mut step = 1;
        for (axis, &size) in shape.iter().enumerate().skip(2) {
            steps[axis] = step;
            step *= size;
        }
    }
    steps
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (x, window) = (e.input(0)?, pool::window(e.attrs)?);
    let (shape, steps, data) = (&e.outputs[0].1, strides(x.shape()), x.to_f64());
    let counting = counting(x.shape(), e.attrs.flag("storage_order"));
    let sizes = &x.shape()[2..];
    let pads: Vec<_> = (0..sizes.len())
        .map(|a| window.padding(a, sizes[a] as i64, shape[a + 2] as i64).0)
        .collect();
    let kernel: Vec<_> = window.kernel.iter().map(|&k| k as usize).collect();
    let (taps, positions) = (indexing::positions(&kernel), indexing::positions(&shape[2..]));
    let mut found = Vec::with_capacity(shape.iter().product());
    for plane in 0..shape[0] * shape[1] {
        for position in &positions {
            let (mut best, mut index) = (f64::NEG_INFINITY, -1);
            for tap in &taps {
                let along = |a: usize| {
                    let at = position[a] as i64 * window.strides[a] - pads[a] + tap[a] as i64 * window.dilations[a];
                    usize::try_from(at).ok().filter(|&at| at < sizes[a])
                };
                let places = (0..sizes.len()).try_fold([0, 0], |[at, count], a| {
                    let i = along(a)?;
                    Some([at + i * steps[a + 2], count + i * counting[a + 2]])
                });
                let Some([at, count]) = places else { continue };
                let value = data[plane * steps[1] + at];
                // MaxPool gives NaN where one is.
                if index < 0 || value > best || (value.is_nan() && !best.is_nan()) {
                    (best, index) = (value, (plane * steps[1] + count) as i64);
                }
            }
            found.push(index);
        }
    }
    Ok(vec![Array::from_i64(DType::Int64, shape.clone(), &found)?])
}
