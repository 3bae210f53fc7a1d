//! Gelu.

use crate::error::{Error, Result};
use crate::network::attr::{Attrs, Preset, Read, attr};
use crate::network::least::Least;
use crate::network::op::{Decomposition, Infer, Lowering, OpDef, Pointwise, TensorType};
use crate::network::ops::rewrite::Rewrite;
use crate::network::ops::{add, erf, mul, pointwise, tanh};
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, SQRT_2};

/// `x` times the normal distribution's probability of less than `x` (ONNX Gelu).
pub static DEF: OpDef = OpDef {
    name: "Gelu",
    doc: "x / 2 * (1 + erf(x / sqrt(2))), or x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) (ONNX Gelu)",
    inputs: &["x"],
    attrs: &[attr(
        "approximate",
        Preset::Text("none"),
        "none, or tanh for the second formula",
    )],
    infer,
    evaluate,
    pointwise: Some(Pointwise {
        float: |attrs, v| {
            let x = v[0];
            0.5 * x
                * if by_tanh(attrs) {
                    1.0 + (ROOT * (x + CUBIC * x * x * x)).tanh()
                } else {
                    1.0 + erf::erf(x * FRAC_1_SQRT_2)
                }
        },
        int: None,
    }),
    lowering: Lowering::BEARS,
    decomposition: Decomposition::WithoutKernel(decompose),
    least: Least::At(-0.1701),
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();

const CUBIC: f64 = 0.044715;
/// `sqrt(2 / pi)`.
const ROOT: f64 = FRAC_2_SQRT_PI / SQRT_2;

fn by_tanh(attrs: &Attrs) -> bool {
    attrs.text("approximate") == "tanh"
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    match infer.attrs.text("approximate") {
        "none" | "tanh" => pointwise::infer_float(infer),
        other => Err(Error::invalid("attribute \"approximate\" is unknown")
            .expected("none or tanh")
            .got(other)),
    }
}

fn decompose(network: &Network, id: LayerId) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let x = rewrite.input(0)?;
    let gate = if by_tanh(rewrite.attrs()) {
        let square = rewrite.apply(&mul::DEF, &[x, x])?;
        let square = rewrite.apply_number(&mul::DEF, square, CUBIC)?;
        let factor = rewrite.apply_number(&add::DEF, square, 1.0)?;
        let inner = rewrite.apply(&mul::DEF, &[x, factor])?;
        let inner = rewrite.apply_number(&mul::DEF, inner, ROOT)?;
        rewrite.apply(&tanh::DEF, &[inner])?
    } else {
        let inner = rewrite.apply_number(&mul::DEF, x, FRAC_1_SQRT_2)?;
        rewrite.apply(&erf::DEF, &[inner])?
    };
    let gate = rewrite.apply_number(&add::DEF, gate, 1.0)?;
    let half = rewrite.apply_number(&mul::DEF, x, 0.5)?;
    let result = rewrite.apply(&mul::DEF, &[half, gate])?;
    rewrite.finish(result)
}
