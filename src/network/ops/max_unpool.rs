//! MaxUnpool.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::Attrs;
use crate::network::dtype::DType;
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType};
use crate::network::ops::spatial::Window;
use crate::network::ops::{indexing, pool, spatial, strides, values};

/// Elements put back where MaxPool found them (ONNX MaxUnpool).
pub static DEF: OpDef = OpDef {
    name: "MaxUnpool",
    doc: "Zeros with the elements of x [N, C, spatial...] where MaxPool found them; indices count over the whole tensor \
          that was pooled (ONNX MaxUnpool)",
    inputs: &["x", "indices", "output_shape?"],
    attrs: &[pool::KERNEL_SHAPE, spatial::PADS, spatial::STRIDES],
    infer,
    evaluate,
    lowering: Lowering::WIDE,
    ..OpDef::PLAIN
};

fn window(attrs: &Attrs) -> Result<Window> {
    let mut attrs = attrs.clone();
    attrs.insert("auto_pad".into(), crate::network::attr::Attr::Text("NOTSET".into()));
    attrs.insert("dilations".into(), crate::network::attr::Attr::Ints(vec![]));
    pool::window(&attrs)
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (x, indices) = (infer.input(0)?, infer.input(1)?);
    let window = window(infer.attrs)?;
    if x.rank() != window.kernel.len() + 2 || indices.rank() != x.rank() || indices.dtype != DType::Int64 {
        return Err(Error::shape("x, indices and kernel_shape do not fit")
            .expected(format!(
                "[N, C, and {} spatial dimensions], and int64 indices of that shape",
                window.kernel.len()
            ))
            .got(format!("{} and {}", x.describe(), indices.describe())));
    }
    for (a, b) in x.shape.iter().zip(&indices.shape) {
        infer.require_equal(a, b, "there is one index per element")?;
    }
    if let Some(given) = infer.optional(2) {
        if given.rank() != 1 || !given.elements().is(x.rank() as i64) {
            return Err(Error::shape("output_shape does not fit")
                .expected(format!("{} integers", x.rank()))
                .got(given.describe()));
        }
        return Ok(vec![TensorType::new(x.dtype, values::target(infer, 2)?)]);
    }
    let mut shape = x.shape.clone();
    for (axis, size) in shape[2..].iter_mut().enumerate() {
        let rest = window.kernel[axis] - window.strides[axis] - window.begin[axis] - window.end[axis];
        *size = size.clone() * window.strides[axis].into() + rest.into();
    }
    Ok(vec![TensorType::new(x.dtype, shape)])
}

/// The shape that was pooled, over which the indices count.
fn pooled(window: &Window, x: &[usize]) -> Vec<i64> {
    let mut shape: Vec<i64> = x.iter().map(|&d| d as i64).collect();
    for (axis, size) in shape[2..].iter_mut().enumerate() {
        let pads = window.begin[axis] + window.end[axis];
        *size = (*size - 1) * window.strides[axis] + window.kernel[axis] - pads;
    }
    shape
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (x, shape) = (e.input(0)?, &e.outputs[0].1);
    let mut counted: Vec<usize> = shape.clone();
    if e.optional(2).is_some() {
        let pooled = pooled(&window(e.attrs)?, x.shape());
        counted = pooled.iter().map(|&d| usize::try_from(d).unwrap_or(0)).collect();
    }
    let (from, to) = (strides(&counted), strides(shape));
    let place = |index: i64| {
        let index = usize::try_from(index).ok().filter(|&i| i < counted.iter().product())?;
        let along = |a: usize| Some(index / from[a] % counted[a]).filter(|&i| i < shape[a]);
        (0..shape.len()).try_fold(0, |at, a| Some(at + along(a)? * to[a]))
    };
    let places = e.input(1)?.to_i64().into_iter().map(|index| {
        place(index).ok_or_else(|| {
            Error::shape("an index is out of range")
                .expected(format!("a place in {counted:?} that is in {shape:?} too"))
                .got(index.to_string())
        })
    });
    let places = places.collect::<Result<Vec<_>>>()?;
    let zeros = Array::full(x.dtype(), shape.clone(), 0.0)?;
    Ok(vec![indexing::put(&zeros, &places, x)?])
}
