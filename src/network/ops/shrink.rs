//! Shrink.

use crate::error::Result;
use crate::network::attr::{Preset, Read, attr};
use crate::network::op::{Decomposition, Lowering, OpDef, Pointwise};
use crate::network::ops::rewrite::Rewrite;
use crate::network::ops::{add, greater, less, pointwise, r#where};
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// Draws `x` towards zero by `bias` outside of `-lambd..=lambd`, and gives zero inside (ONNX Shrink).
pub static DEF: OpDef = OpDef {
    name: "Shrink",
    doc: "x + bias where x < -lambd, x - bias where x > lambd, else 0 (ONNX Shrink)",
    inputs: &["x"],
    attrs: &[
        attr(
            "lambd",
            Preset::Float(0.5),
            "half the width of the interval that becomes zero",
        ),
        attr(
            "bias",
            Preset::Float(0.0),
            "how far what lies outside is drawn towards zero",
        ),
    ],
    infer: pointwise::infer_float,
    evaluate,
    pointwise: Some(Pointwise {
        float: |a, v| match v[0] {
            x if x < -a.float("lambd") => x + a.float("bias"),
            x if x > a.float("lambd") => x - a.float("bias"),
            _ => 0.0,
        },
        int: None,
    }),
    lowering: Lowering::COMPUTES,
    decomposition: Decomposition::WithoutKernel(decompose),
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();

fn decompose(network: &Network, id: LayerId) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let (lambd, bias) = (rewrite.attrs().float("lambd"), rewrite.attrs().float("bias"));
    let x = rewrite.input(0)?;
    let dtype = rewrite.ty(x).dtype;
    let mut result = rewrite.number(dtype, 0.0);
    for (compare, sign) in [(&less::DEF, -1.0), (&greater::DEF, 1.0)] {
        let outside = rewrite.apply_number(compare, x, sign * lambd)?;
        let drawn = rewrite.apply_number(&add::DEF, x, -sign * bias)?;
        result = rewrite.apply(&r#where::DEF, &[outside, drawn, result])?;
    }
    rewrite.finish(result)
}
