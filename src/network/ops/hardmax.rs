//! Hardmax.

use crate::error::Result;
use crate::network::array::Array;
use crate::network::attr::Read;
use crate::network::op::{Evaluate, Lowering, OpDef};
use crate::network::ops::{arg, reduce, softmax};

/// 1 at the first greatest element along an axis, 0 elsewhere (ONNX Hardmax).
pub static DEF: OpDef = OpDef {
    name: "Hardmax",
    doc: "1 at the first greatest element along an axis, 0 elsewhere (ONNX Hardmax)",
    inputs: &["x"],
    attrs: &[softmax::AXIS],
    infer: softmax::infer,
    evaluate,
    lowering: Lowering::BOUNDED,
    ..OpDef::PLAIN
};

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let axis = crate::network::constant_type(e.input(0)?).axis(e.attrs.int("axis"))?;
    reduce::map(e, &[axis], |group| {
        let best = arg::ranked(group, true).first().copied();
        group.fill(0.0);
        best.into_iter().for_each(|at| group[at] = 1.0);
    })
}
