//! BatchNormalization.

use crate::error::Result;
use crate::network::array::Array;
use crate::network::attr::Read;
use crate::network::op::{Decomposition, Evaluate, Infer, Lowering, OpDef, TensorType};
use crate::network::ops::rewrite::Rewrite;
use crate::network::ops::{add, div, mul, normalization, sqrt, sub};
use crate::network::patch::Patch;
use crate::network::{LayerId, Network, TensorId};

/// Each channel shifted and scaled by its running statistics (ONNX BatchNormalization, inference).
pub static DEF: OpDef = OpDef {
    name: "BatchNormalization",
    doc: "scale * (x - mean) / sqrt(var + epsilon) + bias, for each channel (axis 1) of x (ONNX BatchNormalization, \
          inference)",
    inputs: &["x", "scale", "bias", "mean", "var"],
    attrs: &[normalization::EPSILON],
    infer,
    evaluate,
    lowering: Lowering::BEARS,
    decomposition: Decomposition::WithoutKernel(decompose),
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    (1..5).try_for_each(|i| normalization::check_channels(infer, i))?;
    Ok(vec![normalization::same_float(infer)?])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let x = e.input(0)?;
    let parameter = |i| Ok::<_, crate::error::Error>(e.input(i)?.to_f64());
    let (scale, bias, mean, var) = (parameter(1)?, parameter(2)?, parameter(3)?, parameter(4)?);
    let epsilon = e.attrs.float("epsilon");
    let mut data = x.to_f64();
    normalization::each_channel(x.shape(), |place, c| {
        data[place] = scale[c] * (data[place] - mean[c]) / (var[c] + epsilon).sqrt() + bias[c];
    });
    e.output(&data)
}

/// The factor and the shift of each channel, in float32 at least, in a patch that has no result yet: the layer's result for
/// x + `offset` is x * factor + shift.
pub fn factors(network: &Network, id: LayerId, offset: Option<TensorId>) -> Result<(Patch<'_>, [TensorId; 2])> {
    let mut rewrite = Rewrite::of(network, id);
    let found = factor_and_shift(&mut rewrite, offset)?;
    Ok((rewrite.into_patch(), found))
}

fn factor_and_shift(rewrite: &mut Rewrite<'_>, offset: Option<TensorId>) -> Result<[TensorId; 2]> {
    let mut wide: Vec<TensorId> = vec![];
    let parameters: Vec<TensorId> = (1..5).map(|i| rewrite.input(i)).collect::<Result<_>>()?;
    for parameter in parameters.into_iter().chain(offset) {
        let parameter = rewrite.widened(parameter)?;
        wide.push(rewrite.cast(parameter, rewrite.ty(*wide.first().unwrap_or(&parameter)).dtype)?);
    }
    let var = rewrite.apply_number(&add::DEF, wide[3], rewrite.attrs().float("epsilon"))?;
    let deviation = rewrite.apply(&sqrt::DEF, &[var])?;
    let factor = rewrite.apply(&div::DEF, &[wide[0], deviation])?;
    let mean = match wide.get(4) {
        Some(&offset) => rewrite.apply(&sub::DEF, &[wide[2], offset])?,
        None => wide[2],
    };
    let moved = rewrite.apply(&mul::DEF, &[mean, factor])?;
    Ok([factor, rewrite.apply(&sub::DEF, &[wide[1], moved])?])
}

/// BatchNormalization => x * factor + shift, both computed from the parameters (which fold, being constants).
fn decompose(network: &Network, id: LayerId) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let x = rewrite.input(0)?;
    let (dtype, rank) = (rewrite.ty(x).dtype, rewrite.ty(x).rank());
    let mut shaped = vec![];
    for parameter in factor_and_shift(&mut rewrite, None)? {
        let parameter = rewrite.cast(parameter, dtype)?;
        shaped.push(rewrite.per_channel(parameter, rank)?);
    }
    let result = rewrite.affine(x, shaped[0], Some(shaped[1]))?;
    rewrite.finish(result)
}
