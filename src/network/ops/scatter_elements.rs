//! ScatterElements.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::op::{Evaluate, Infer, Lowering, Movement, OpDef, TensorType, Uint64};
use crate::network::ops::{gather, gather_elements, scatter};

/// The input with updates at the places that indices along one axis name (ONNX ScatterElements).
pub static DEF: OpDef = OpDef {
    name: "ScatterElements",
    doc: "The input with each update at its place, but with the index along one axis (ONNX ScatterElements)",
    inputs: &["x", "indices", "updates"],
    attrs: &[
        attr("axis", Preset::Int(0), "the axis along which the indices count"),
        scatter::REDUCTION,
    ],
    infer,
    evaluate,
    lowering: Lowering::COMPUTES,
    movement: Movement::Fill,
    uint64: Uint64::Exact,
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (x, indices, updates) = (infer.input(0)?, gather::index_tensor(infer, 1)?, infer.input(2)?);
    scatter::check(infer)?;
    gather_elements::check_indices(infer, x, indices)?;
    if indices.rank() != updates.rank() {
        return Err(Error::shape("indices and updates differ in rank")
            .expected(indices.describe())
            .got(updates.describe()));
    }
    for (a, b) in indices.shape.iter().zip(&updates.shape) {
        infer.require_equal(a, b, "there is one update per index")?;
    }
    Ok(vec![TensorType::new(x.dtype, x.shape.clone())])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (x, indices) = (e.input(0)?, e.input(1)?);
    let places = gather_elements::element_places(x, indices, e.attrs.int("axis"))?;
    Ok(vec![scatter::scatter(e.attrs, x, &places, e.input(2)?)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::network::reference::evaluate_op;

    #[test]
    fn updates_replace_or_add() {
        let run = |reduction: &str| {
            let attrs = attrs([("axis", Attr::Int(0)), ("reduction", Attr::Text(reduction.into()))]);
            let inputs = [[1, 2, 3].as_slice(), &[0, -1, 0], &[10, 20, 30]].map(|v| Some(Array::ints(v)));
            evaluate_op(&DEF, &attrs, &inputs).unwrap()[0].to_i64()
        };
        assert_eq!([run("none"), run("add")], [[30, 2, 20], [41, 2, 23]]);
    }
}
