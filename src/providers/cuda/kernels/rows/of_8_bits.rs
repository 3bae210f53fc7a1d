//! Means of integers of 8 bits, as a rule of the kernel for rows.

use super::reduce::Reduction;
use crate::plan::Candidate;
use crate::providers::common::mean_of_8_bits::MeanOf8Bits;
use crate::providers::common::scope::Scope;
use crate::providers::cuda::kernels::Gpu;
use crate::providers::cuda::kernels::pointwise::code::element;
use std::sync::Arc;

/// A mean with the layers in front of it.
pub(super) fn offer(scope: &Scope, gpu: &Arc<Gpu>, reduction: &Reduction) -> Option<Candidate> {
    let found = MeanOf8Bits::of(scope.network, scope.layer())?;
    let (x, scheme) = (scope.input_type(0)?, found.read.scheme);
    let (stored, given) = (element(scheme.dtype)?, element(x.dtype)?);
    // Words of the source, as all else that tells one rule from another.
    let (scale, zero) = (scheme.scale.to_bits() as i32, scheme.zero);
    let mean = reduction.by(format!("MeanOf8Bits<{stored}, {given}, {scale}, {zero}>"));
    let kernel = mean.kernel("int8 ReduceMean", x.rank(), gpu);
    Some(Candidate {
        kernel: Arc::new(kernel),
        layers: found.layers().into_iter().chain([scope.layer]).collect(),
        inputs: vec![found.read.tensor],
        outputs: scope.layer().outputs.clone(),
    })
}
