//! InstanceNormalization.

use crate::error::Result;
use crate::network::array::Array;
use crate::network::attr::Read;
use crate::network::op::{Decomposition, Evaluate, Infer, Lowering, OpDef, TensorType};
use crate::network::ops::normalization;
use crate::network::ops::rewrite::Rewrite;
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// Each channel of each image brought to mean 0 and variance 1, then scaled and shifted (ONNX InstanceNormalization).
pub static DEF: OpDef = OpDef {
    name: "InstanceNormalization",
    doc: "scale * (x - mean) / sqrt(variance + epsilon) + bias, over the spatial dimensions of x [N, C, spatial...] \
          (ONNX InstanceNormalization)",
    inputs: &["x", "scale", "bias"],
    attrs: &[normalization::EPSILON],
    infer,
    evaluate,
    lowering: Lowering::BEARS,
    decomposition: Decomposition::WithoutKernel(decompose),
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    normalization::check_parameters(infer)?;
    (1..3).try_for_each(|i| normalization::check_channels(infer, i))?;
    Ok(vec![normalization::same_float(infer)?])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let x = e.input(0)?;
    let mut data = x.to_f64();
    let length = x.shape()[2..].iter().product();
    normalization::normalise(&mut data, length, e.attrs.float("epsilon"), true);
    normalization::affine_channels(e, &mut data)
}

fn decompose(network: &Network, id: LayerId) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let x = rewrite.input(0)?;
    let (rank, dtype) = (rewrite.ty(x).rank(), rewrite.ty(x).dtype);
    let wide = rewrite.widened(x)?;
    let axes: Vec<_> = (2..rank).collect();
    let epsilon = rewrite.attrs().float("epsilon");
    let normalised = rewrite.normalised(wide, &axes, epsilon, true)?;
    let normalised = rewrite.cast(normalised, dtype)?;
    let result = rewrite.affine_channels(normalised)?;
    rewrite.finish(result)
}
