//! LogSoftmax.

use crate::error::Result;
use crate::network::attr::Read;
use crate::network::op::{Decomposition, Lowering, OpDef};
use crate::network::ops::rewrite::Rewrite;
use crate::network::ops::{exp, log, reduce_max, reduce_sum, softmax, sub};
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// The logarithm of Softmax (ONNX LogSoftmax).
pub static DEF: OpDef = OpDef {
    name: "LogSoftmax",
    doc: "x - log(sum(exp(x))) along an axis: the logarithm of Softmax (ONNX LogSoftmax)",
    inputs: &["x"],
    attrs: &[softmax::AXIS],
    infer: softmax::infer,
    evaluate: |e| {
        softmax::evaluate_along(e, |group, greatest, sum| {
            group.iter_mut().for_each(|v| *v = *v - greatest - sum.ln());
        })
    },
    lowering: Lowering::BEARS,
    decomposition: Decomposition::WithoutKernel(decompose),
    ..OpDef::PLAIN
};

fn decompose(network: &Network, id: LayerId) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let x = rewrite.input(0)?;
    let axis = rewrite.ty(x).axis(rewrite.attrs().int("axis"))?;
    let greatest = rewrite.reduce(&reduce_max::DEF, x, &[axis])?;
    let x = rewrite.apply(&sub::DEF, &[x, greatest])?;
    let powers = rewrite.apply(&exp::DEF, &[x])?;
    let sum = rewrite.reduce(&reduce_sum::DEF, powers, &[axis])?;
    let log = rewrite.apply(&log::DEF, &[sum])?;
    let result = rewrite.apply(&sub::DEF, &[x, log])?;
    rewrite.finish(result)
}
