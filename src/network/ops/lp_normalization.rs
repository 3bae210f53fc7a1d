//! LpNormalization.

use crate::error::{Error, Result};
use crate::network::attr::{Preset, Read, attr};
use crate::network::op::{Decomposition, Infer, Lowering, OpDef, TensorType};
use crate::network::ops::rewrite::Rewrite;
use crate::network::ops::{add, div, equal, reduce, reduce_l1, reduce_l2, softmax};
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// `x` divided by its norm along an axis (ONNX LpNormalization).
pub static DEF: OpDef = OpDef {
    name: "LpNormalization",
    doc: "x divided by its norm along an axis; where the norm is 0, so is the result (ONNX LpNormalization)",
    inputs: &["x"],
    attrs: &[
        softmax::AXIS,
        attr("p", Preset::Int(2), "the order of the norm, 1 or 2"),
    ],
    infer,
    evaluate: |e| {
        let axis = crate::network::constant_type(e.input(0)?).axis(e.attrs.int("axis"))?;
        let power = e.attrs.int("p") as f64;
        reduce::map(e, &[axis], |group| {
            let norm = group.iter().map(|v| v.abs().powf(power)).sum::<f64>().powf(1.0 / power);
            let divisor = if norm == 0.0 { 1.0 } else { norm };
            group.iter_mut().for_each(|v| *v /= divisor);
        })
    },
    lowering: Lowering::BOUNDED,
    decomposition: Decomposition::WithoutKernel(decompose),
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    match infer.attrs.int("p") {
        1 | 2 => softmax::infer(infer),
        other => Err(Error::invalid("the order of the norm is unknown")
            .expected("1 or 2")
            .got(other.to_string())),
    }
}

/// LpNormalization => x / (norm + (norm == 0)).
fn decompose(network: &Network, id: LayerId) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let x = rewrite.input(0)?;
    let (axis, dtype) = (rewrite.ty(x).axis(rewrite.attrs().int("axis"))?, rewrite.ty(x).dtype);
    let norms = [&reduce_l1::DEF, &reduce_l2::DEF];
    let norm = rewrite.reduce(norms[(rewrite.attrs().int("p") == 2) as usize], x, &[axis])?;
    let none = rewrite.apply_number(&equal::DEF, norm, 0.0)?;
    let none = rewrite.cast(none, dtype)?;
    let divisor = rewrite.apply(&add::DEF, &[norm, none])?;
    let result = rewrite.apply(&div::DEF, &[x, divisor])?;
    rewrite.finish(result)
}
