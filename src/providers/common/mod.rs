//! What the kernels of several providers share: what a family sees, which pointwise layers go together, what follows a product, a Cast in front,
//! means of 8 bits, element strides of operands, the parts of slices, strided views through layers that only move elements, where packages lie, compiled code that is kept.

pub mod cast;
pub mod epilogue;
pub mod fn_kernel;
pub mod group;
pub mod indexed;
pub mod kept;
pub mod mean_of_8_bits;
pub mod operand_strides;
pub mod packages;
pub mod quantized;
pub mod row_epilogue;
pub mod scope;
pub mod slices;
pub mod strided_view;
#[cfg(test)]
pub(crate) mod testing;

use crate::plan::Candidate;
use scope::Scope;

/// Why a family does not run a layer that it knows.
pub struct Why {
    /// The reason.
    pub reason: String,
    /// What the user can do about it; empty if nothing.
    pub hint: &'static str,
}

impl Why {
    /// A reason without a way out.
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            hint: "",
        }
    }
}

/// What a family answers: its candidates (none for a layer that is not its own), fusions first.
pub type Answer = Result<Vec<Candidate>, Why>;

/// What families say of one layer.
pub struct Offers {
    /// Fusions.
    pub found: Vec<Candidate>,
    /// The first that runs the layer alone.
    pub alone: Option<Candidate>,
    /// The families that know the layer and do not run it, with their reasons.
    pub refused: Vec<String>,
}

/// Gathers the answers of families, each with its name, about a layer.
///
/// # Errors
/// If the size of a result depends on data: such a layer runs between stages.
pub fn ask(scope: &Scope, answers: impl Iterator<Item = (&'static str, Answer)>) -> Result<Offers, Why> {
    scope.require_known_sizes()?;
    let mut offers = Offers {
        found: vec![],
        alone: None,
        refused: vec![],
    };
    for (family, answer) in answers {
        match answer {
            Ok(candidates) => {
                for candidate in candidates {
                    match candidate.layers.len() {
                        1 => _ = offers.alone.get_or_insert(candidate),
                        _ => offers.found.push(candidate),
                    }
                }
            }
            Err(why) => offers.refused.push(format!("{family}: {}", why.reason)),
        }
    }
    Ok(offers)
}
