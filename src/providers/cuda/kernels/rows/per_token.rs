//! DynamicQuantizePerToken, with the Cast of 16 bits in front of it, and alone.

use super::ROWS;
use super::norm::Held;
use crate::error::Result;
use crate::network::dtype::DType;
use crate::network::{LayerId, TensorId};
use crate::plan::layout::Layout;
use crate::plan::{Candidate, Prepared, Request};
use crate::providers::common::cast::cast_before;
use crate::providers::common::scope::{Scope, uniform_forms};
use crate::providers::cuda::kernels::launch::{Launches, fields, sourced};
use crate::providers::cuda::kernels::packs::{entry, in_packs, pack};
use crate::providers::cuda::kernels::pointwise::code::element;
use crate::providers::cuda::kernels::{Answer, Gpu};
use std::sync::Arc;

/// The scale of a token.
pub const TOKENS: &str = include_str!("../../../../../kernels/tokens.cuh");
const SOURCE: &str = include_str!("../../../../../kernels/tokens.cu");

/// The layer with the Cast of 16 bits in front of it, and alone.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    let Some(x) = scope.input(0).filter(|_| scope.op() == "DynamicQuantizePerToken") else {
        return Ok(vec![]);
    };
    let cast = cast_before(scope.network, x, &[DType::Float16, DType::BFloat16]);
    let cast = cast.map(|(cast, x)| candidate(scope, gpu, vec![cast, scope.layer], x));
    Ok(cast
        .into_iter()
        .chain([candidate(scope, gpu, vec![scope.layer], x)])
        .collect())
}

fn candidate(scope: &Scope, gpu: &Arc<Gpu>, layers: Vec<LayerId>, x: TensorId) -> Candidate {
    let outputs = scope.layer().outputs.clone();
    let forms = uniform_forms(&[Layout::Plain], 1, outputs.len());
    Candidate {
        kernel: Arc::new(sourced("DynamicQuantizePerToken", "", forms, gpu, instance)),
        layers,
        inputs: vec![x],
        outputs,
    }
}

fn instance(gpu: &Gpu, request: &Request) -> Result<Prepared> {
    let x = &request.inputs[0];
    let length = x.shape.last().copied().unwrap_or(1);
    let rows = request.outputs[1].elements();
    in_packs(pack(x.dtype, [length]), |pack| {
        let how = Held::of(x.dtype, rows, length, pack, gpu.device.multiprocessors);
        let ty = element(x.dtype).unwrap_or("float");
        let source = entry(
            &[ROWS, TOKENS, SOURCE],
            "tokens",
            how.team.bound(),
            &format!("int8* codes, float* scales, const {ty}* x, const Tokens s"),
            &format!("QuantizeTokens<{ty}, {pack}>{{codes, scales, x}}.{}(s);", how.call),
        );
        let numbers = [rows, length, how.team.size].map(|n| n as i64);
        let function = gpu.compiler.entry(&source, "tokens", 0);
        Ok(Launches::one(
            function,
            how.grid(rows)?,
            fields(numbers)?,
            how.describe(),
        ))
    })
}
