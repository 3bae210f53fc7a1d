//! The kernels of the CPU provider: one family per file, listed in order of preference.

mod attention;
mod bounds;
mod boxes;
mod chain;
mod concat;
mod conv;
mod copy;
mod deform_conv;
mod group_norm;
mod indexed;
mod linear_attention;
mod lines;
mod lrn;
mod matmul;
mod n_bits;
mod n_grams;
mod norm;
mod one_hot;
mod parallel;
mod pointwise;
mod pool;
mod primitive;
pub mod quantized;
mod quantized_lstm;
mod range;
mod recurrent;
mod reduce;
mod reference;
mod region;
pub mod reorder;
mod reshape;
mod resize;
mod sampled;
mod scratch;
mod softmax;
#[cfg(test)]
mod speed;
mod split;
#[cfg(test)]
mod testing;
mod transpose;
mod transpose_tile;
mod trilu;
mod weighted;
mod winograd;

use crate::network::plugin::Device;
use crate::plan::Candidate;
use crate::providers::common::{self, Answer, Offers, Why, operand_strides, scope};
use crate::providers::plugin;
use scope::Scope;

/// A family of kernels.
pub struct Family {
    /// Its name in reports.
    pub name: &'static str,
    /// What it can do with a layer.
    pub offer: fn(&Scope) -> Answer,
}

const fn family(name: &'static str, offer: fn(&Scope) -> Answer) -> Family {
    Family { name, offer }
}

/// Every family but the reference evaluation, the preferred ones first.
pub static FAMILIES: &[Family] = &[
    family("quantized", quantized::offer),
    family("conv", conv::offer),
    family("matmul", matmul::offer),
    family("n_bits", n_bits::offer),
    family("attention", attention::offer),
    family("pool", pool::offer),
    family("softmax", softmax::offer),
    family("norm", norm::offer),
    family("group_norm", group_norm::offer),
    family("lrn", lrn::offer),
    family("recurrent", recurrent::offer),
    family("quantized_lstm", quantized_lstm::offer),
    family("linear_attention", linear_attention::offer),
    family("pointwise", pointwise::offer),
    family("reshape", reshape::offer),
    family("concat", concat::offer),
    family("split", split::offer),
    family("boxes", boxes::offer),
    family("bounds", bounds::offer),
    family("transpose", transpose::offer),
    family("reduce", reduce::offer),
    family("resize", resize::offer),
    family("sampled", sampled::offer),
    family("deform_conv", deform_conv::offer),
    family("indexed", indexed::offer),
    family("lines", lines::offer),
    family("trilu", trilu::offer),
    family("range", range::offer),
    family("one_hot", one_hot::offer),
    family("n_grams", n_grams::offer),
    family("plugin", |scope| plugin::offer(scope, Device::Cpu)),
];

/// Everything that the families offer for a layer; the last one runs it alone, if need be on the reference evaluation.
///
/// # Errors
/// If a family refuses the layer and the reference can't run it either.
pub fn candidates(scope: &Scope) -> Result<Vec<Candidate>, Why> {
    let Offers {
        mut found,
        alone,
        refused,
    } = common::ask(
        scope,
        FAMILIES.iter().map(|family| (family.name, (family.offer)(scope))),
    )?;
    let alone = match alone {
        Some(candidate) => candidate,
        None => reference::offer(scope, &refused)?,
    };
    found.push(alone);
    Ok(found)
}
