//! Shrink.

use crate::error::Result;
use crate::network::attr::{Attrs, Preset, Read, attr};
use crate::network::dtype::DType;
use crate::network::op::{Decomposition, Lowering, OpDef, Pointwise, Uint64};
use crate::network::ops::rewrite::Rewrite;
use crate::network::ops::{add, greater, less, pointwise, sub, r#where};
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
    infer: pointwise::infer_same,
    evaluate,
    pointwise: Some(Pointwise {
        float: |a, v| match v[0] {
            x if x < -a.float("lambd") => x + a.float("bias"),
            x if x > a.float("lambd") => x - a.float("bias"),
            _ => 0.0,
        },
        int: Some(|a, v| drawn(a, v[0], v[0] as f64)),
    }),
    lowering: Lowering::COMPUTES,
    uint64: Uint64::Rule(|a, v| drawn(a, v[0], v[0] as u64 as f64)),
    decomposition: Decomposition::WithoutKernel(decompose),
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();

/// The rule for an integer, whose number is `value`: one without a fraction is added and wraps, and so no digit is lost.
fn drawn(attrs: &Attrs, x: i64, value: f64) -> i64 {
    let (lambd, bias) = (attrs.float("lambd"), attrs.float("bias"));
    let by = match value {
        _ if value < -lambd => bias,
        _ if value > lambd => -bias,
        _ => return 0,
    };
    match by.fract() == 0.0 {
        true => x.wrapping_add(by as i64),
        // From 2^63 on, bits of an uint64.
        false if value + by >= 9_223_372_036_854_775_808.0 => (value + by) as u64 as i64,
        false => (value + by) as i64,
    }
}

fn decompose(network: &Network, id: LayerId) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let (lambd, bias) = (rewrite.attrs().float("lambd"), rewrite.attrs().float("bias"));
    let x = rewrite.input(0)?;
    let dtype = rewrite.ty(x).dtype;
    // Bounds of integers may have a fraction.
    let wide = if dtype.is_int() { DType::Float64 } else { dtype };
    let value = rewrite.cast(x, wide)?;
    let mut result = rewrite.number(dtype, 0.0);
    for (compare, sign) in [(&less::DEF, -1.0), (&greater::DEF, 1.0)] {
        let outside = rewrite.apply_number(compare, value, sign * lambd)?;
        let from = if bias.fract() == 0.0 { x } else { value };
        let op = if sign * bias > 0.0 { &sub::DEF } else { &add::DEF };
        let drawn = rewrite.apply_number(op, from, bias.abs())?;
        let drawn = rewrite.cast(drawn, dtype)?;
        result = rewrite.apply(&r#where::DEF, &[outside, drawn, result])?;
    }
    rewrite.finish(result)
}
