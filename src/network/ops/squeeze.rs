//! Squeeze.

use crate::error::Result;
use crate::network::attr::{Preset, Read, attr};
use crate::network::op::{Decomposition, Infer, Lowering, Movement, OpDef, TensorType};
use crate::network::ops::{reduce, reshape};

/// The input without dimensions of extent 1 (ONNX Squeeze).
pub static DEF: OpDef = OpDef {
    name: "Squeeze",
    doc: "The input without dimensions of extent 1 (ONNX Squeeze)",
    inputs: &["x"],
    attrs: &[attr(
        "axes",
        Preset::Ints(&[]),
        "the axes to leave out; empty: all that are known to be 1 when the network is built",
    )],
    infer,
    evaluate: reshape::evaluate,
    lowering: Lowering::COMPUTES,
    movement: Movement::View,
    narrow: true,
    decomposition: Decomposition::Always(reshape::decompose),
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let x = infer.input(0)?;
    let mut axes = reduce::distinct(infer.attrs.ints("axes"), x)?;
    for &axis in &axes {
        infer.require_equal(&1i64.into(), &x.shape[axis], "only a dimension of 1 can be left out")?;
    }
    if axes.is_empty() {
        axes = (0..x.rank()).filter(|&axis| x.shape[axis].is(1)).collect();
        // The rank of the output depends on it, so a call may not bring another answer than this.
        for kept in x.shape.iter().filter(|d| d.as_const().is_none()) {
            infer.require_at_most(
                &2i64.into(),
                kept,
                "without axes, a symbolic dimension is taken not to be 1",
            )?;
        }
    }
    Ok(vec![reshape::same(x, reduce::reduced(&x.shape, &axes, false))])
}
