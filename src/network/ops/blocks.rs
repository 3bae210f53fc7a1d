//! What DepthToSpace and SpaceToDepth share: both split dimensions, permute and join them.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{AttrDef, Attrs, Preset, Read, attr};
use crate::network::dim::Dim;
use crate::network::op::{Evaluate, Infer, TensorType};
use crate::network::ops::rewrite::Rewrite;
use crate::network::ops::{indexing, places, strides};
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// `blocksize`.
pub const BLOCKSIZE: AttrDef = attr(
    "blocksize",
    Preset::RequiredInt,
    "extent of a block along height and width",
);

/// How an op moves elements: dimensions after splitting, their order, and the joined result.
pub struct Plan {
    /// The input's dimensions, split.
    pub split: Vec<Dim>,
    /// Their order in the output.
    pub perm: [usize; 6],
    /// The output's dimensions.
    pub shape: Vec<Dim>,
}

/// Gives the plan for attributes and a checked input `[N, C, H, W]`.
pub type Planner = fn(&Attrs, &TensorType) -> Result<Plan>;

/// The extent of a block.
pub fn size(attrs: &Attrs) -> Dim {
    attrs.int("blocksize").into()
}

/// `dim / divisor`, which must leave nothing.
pub fn exact(dim: &Dim, divisor: &Dim) -> Result<Dim> {
    match (dim.as_const(), divisor.as_const()) {
        (Some(a), Some(b)) if a % b != 0 => Err(Error::shape("a dimension does not divide into blocks")
            .expected(format!("a multiple of {b}"))
            .got(a.to_string())),
        _ => Ok(dim.floordiv(divisor)),
    }
}

/// The rule.
pub fn infer(infer: &Infer, plan: Planner) -> Result<Vec<TensorType>> {
    let x = infer.input(0)?;
    if x.rank() != 4 || infer.attrs.int("blocksize") < 1 {
        return Err(Error::shape("the input can't be divided into blocks")
            .expected("[N, C, H, W] and a positive blocksize")
            .got(format!("{} and {}", x.describe(), infer.attrs.int("blocksize"))));
    }
    let plan = plan(infer.attrs, x)?;
    let split = TensorType::new(x.dtype, plan.split).elements();
    infer.require_equal(&split, &x.elements(), "the dimensions divide into blocks")?;
    Ok(vec![TensorType::new(x.dtype, plan.shape)])
}

/// The reference.
pub fn evaluate(e: &Evaluate, plan: Planner) -> Result<Vec<Array>> {
    let x = e.input(0)?;
    let plan = plan(e.attrs, &crate::network::constant_type(x))?;
    let split = TensorType::new(x.dtype(), plan.split).concrete().unwrap_or_default();
    let steps = strides(&split);
    let (sizes, steps): (Vec<_>, Vec<_>) = plan.perm.iter().map(|&axis| (split[axis], steps[axis])).unzip();
    Ok(vec![indexing::pick(
        x,
        e.outputs[0].1.clone(),
        &places(&sizes, &steps),
    )?])
}

/// Writes the layer as Reshape, Transpose, Reshape.
pub fn decompose(network: &Network, id: LayerId, plan: Planner) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let x = rewrite.input(0)?;
    let plan = plan(rewrite.attrs(), rewrite.ty(x))?;
    let split = rewrite.reshape(x, plan.split)?;
    let moved = rewrite.transpose(split, &plan.perm)?;
    let result = rewrite.reshape(moved, plan.shape)?;
    rewrite.finish(result)
}
