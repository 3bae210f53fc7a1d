//! Tile.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::dim::Dim;
use crate::network::op::{Evaluate, Infer, Lowering, Movement, OpDef, TensorType};
use crate::network::ops::{indexing, values};

/// The input repeated along each axis (ONNX Tile).
pub static DEF: OpDef = OpDef {
    name: "Tile",
    doc: "The input repeated along each axis (ONNX Tile)",
    inputs: &["x", "repeats"],
    attrs: &[],
    infer,
    evaluate,
    lowering: Lowering::COMPUTES,
    movement: Movement::Pick,
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let x = infer.input(0)?;
    if !infer.input(1)?.elements().is(x.rank() as i64) {
        return Err(Error::shape("repeats does not fit")
            .expected(format!("{} integers", x.rank()))
            .got(infer.input(1)?.describe()));
    }
    let repeated = |(axis, dim): (usize, &Dim)| match infer.value(1) {
        Some(repeats) => dim.clone() * repeats[axis].clone(),
        None => infer.fresh(axis),
    };
    let shape: Vec<_> = x.shape.iter().enumerate().map(repeated).collect();
    let outputs = vec![TensorType::new(x.dtype, shape)];
    Ok(values::moved(infer, &[0], outputs, evaluate))
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let x = e.input(0)?;
    let sizes = x.shape().iter().zip(e.input(1)?.to_i64());
    let along: Vec<Vec<_>> = sizes
        .map(|(&size, times)| (0..size * times.max(0) as usize).map(|i| i % size).collect())
        .collect();
    let shape = along.iter().map(Vec::len).collect();
    Ok(vec![indexing::pick(x, shape, &indexing::grid(x.shape(), &along))?])
}
