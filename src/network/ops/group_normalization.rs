//! GroupNormalization.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::dim::Dim;
use crate::network::op::{Decomposition, Evaluate, Infer, Lowering, OpDef, TensorType};
use crate::network::ops::normalization;
use crate::network::ops::rewrite::Rewrite;
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// Groups of channels brought to mean 0 and variance 1, then each channel scaled and shifted (ONNX GroupNormalization).
pub static DEF: OpDef = OpDef {
    name: "GroupNormalization",
    doc: "scale * (x - mean) / sqrt(variance + epsilon) + bias, over groups of channels and all spatial dimensions of \
          x [N, C, spatial...]; scale and bias are [C] (ONNX GroupNormalization)",
    inputs: &["x", "scale", "bias"],
    attrs: &[
        attr("num_groups", Preset::RequiredInt, "the number of groups of channels"),
        normalization::EPSILON,
        normalization::STASH_TYPE,
    ],
    infer,
    evaluate,
    lowering: Lowering::BEARS,
    decomposition: Decomposition::WithoutKernel(decompose),
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    normalization::check_parameters(infer)?;
    (1..3).try_for_each(|i| normalization::check_channels(infer, i))?;
    let (x, groups) = (infer.input(0)?, infer.attrs.int("num_groups"));
    let undivided = |e: Error| {
        e.expected(format!("a divisor of {}", x.shape[1]))
            .got(groups.to_string())
    };
    const WHY: &str = "channels do not divide into the groups";
    if groups < 1 {
        return Err(undivided(Error::shape(WHY)));
    }
    let rest = x.shape[1].modulo(&groups.into());
    infer.require_equal(&rest, &Dim::default(), WHY).map_err(undivided)?;
    Ok(vec![normalization::same_float(infer)?])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let x = e.input(0)?;
    let mut data = x.to_f64();
    let length = x.shape()[1..].iter().product::<usize>() / e.attrs.int("num_groups") as usize;
    normalization::normalise(&mut data, length, e.attrs.float("epsilon"), true);
    normalization::affine_channels(e, &mut data)
}

/// GroupNormalization => Reshape to [N, groups, rest], normalised over the rest, and back.
fn decompose(network: &Network, id: LayerId) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let x = rewrite.input(0)?;
    let TensorType { dtype, shape, .. } = rewrite.ty(x).clone();
    let (groups, epsilon) = (
        rewrite.attrs().int("num_groups").into(),
        rewrite.attrs().float("epsilon"),
    );
    let rest = TensorType::new(dtype, &shape[1..]).elements().floordiv(&groups);
    let wide = rewrite.stashed(x)?;
    let grouped = rewrite.reshape(wide, vec![shape[0].clone(), groups, rest])?;
    let normalised = rewrite.normalised(grouped, &[2], epsilon, true)?;
    let normalised = rewrite.reshape(normalised, shape)?;
    let normalised = rewrite.cast(normalised, dtype)?;
    let result = rewrite.affine_channels(normalised)?;
    rewrite.finish(result)
}
