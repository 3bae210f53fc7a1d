//! What follows a product and is done with it: any pointwise layers whose other operands are rows, numbers, or as large as
//! the result.

use crate::network::LayerId;
use crate::providers::common::epilogue::{Epilogue, behind, behind_8_bits};
use crate::providers::common::mean_of_8_bits;
use crate::providers::common::scope::Scope;
use crate::providers::cuda::kernels::pointwise::code::is_pointwise;

/// What may be done with the scope's product of matrices, the most first, nothing last.
pub fn epilogues(scope: &Scope) -> Vec<Epilogue> {
    let matrices = scope
        .layer()
        .inputs
        .iter()
        .flatten()
        .all(|&t| scope.network[t].ty.rank() > 1);
    let (product, axis) = (scope.layer().outputs[0], scope.output_type(0).rank().saturating_sub(1));
    if !matrices {
        return Epilogue::new(scope.network, product, axis, &[]).into_iter().collect();
    }
    behind(scope, product, axis, &|id| is_step(scope, id))
}

/// The same for the scope's product of 8 bits, whose columns lie along an axis.
pub fn epilogues_of_8_bits(scope: &Scope, axis: usize) -> Vec<Epilogue> {
    let takes = |id: LayerId| is_step(scope, id);
    behind_8_bits(scope, scope.layer().outputs[0], axis, &takes, |_, _| true)
}

/// Whether a layer may be a step behind the scope's product, apart from its shapes.
pub fn is_step(scope: &Scope, id: LayerId) -> bool {
    let layer = &scope.network[id];
    is_pointwise(scope.network, layer) && !mean_of_8_bits::claims(scope.network, layer)
}
