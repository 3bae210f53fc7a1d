//! Trilu.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::op::{Evaluate, Infer, Lowering, Movement, OpDef, TensorType};
use crate::network::ops::indexing;

/// The upper or lower triangle of matrices, 0 elsewhere (ONNX Trilu).
pub static DEF: OpDef = OpDef {
    name: "Trilu",
    doc: "The upper or lower triangle of the matrices in the last two dimensions, 0 elsewhere; k moves the diagonal to \
          the right (ONNX Trilu)",
    inputs: &["x", "k?"],
    attrs: &[attr("upper", Preset::Int(1), "the upper triangle instead of the lower")],
    infer,
    evaluate,
    lowering: Lowering::COMPUTES,
    movement: Movement::Fill,
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let x = infer.input(0)?;
    if x.rank() < 2 {
        return Err(Error::shape("a triangle is part of a matrix")
            .expected("a tensor of rank 2 or more")
            .got(x.describe()));
    }
    if let Some(k) = infer.optional(1).filter(|k| !k.dtype.is_int() || !k.elements().is(1)) {
        return Err(Error::shape("k must be one integer").got(k.describe()));
    }
    Ok(vec![TensorType::new(x.dtype, x.shape.clone())])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (x, upper) = (e.input(0)?, e.attrs.flag("upper"));
    let k = e.optional(1).map_or(0, |k| k.to_i64()[0]);
    let [.., rows, columns] = *x.shape() else {
        return Err(Error::shape("a triangle is part of a matrix"));
    };
    let kept = |&at: &usize| {
        let (row, column) = ((at / columns % rows) as i64, (at % columns) as i64);
        if upper { column - row >= k } else { column - row <= k }
    };
    let places: Vec<_> = (0..x.len()).filter(kept).collect();
    let zero = Array::full(x.dtype(), x.shape().to_vec(), 0.0)?;
    let part = indexing::pick(x, vec![places.len()], &places)?;
    Ok(vec![indexing::put(&zero, &places, &part)?])
}
