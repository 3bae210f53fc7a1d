//! Det.

use super::launch::{Launches, fields, sourced};
use super::packs::entry;
use super::pointwise::code::element;
use super::{Answer, Gpu};
use crate::error::{Error, Result};
use crate::plan::Request;
use crate::plan::layout::Layout;
use crate::providers::common::Why;
use crate::providers::common::scope::{Scope, uniform_forms};
use crate::providers::cuda::device::Grid;
use std::sync::Arc;

const SOURCE: &str = include_str!("../../../../kernels/det.cu");
/// Threads of a block.
const THREADS: u32 = 64;

/// Det, a matrix a thread: for many small ones.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    if scope.op() != "Det" {
        return Ok(vec![]);
    }
    let dtype = scope.output_type(0).dtype;
    let Some(ty) = element(dtype) else {
        return Err(Why::new(format!("{dtype} has no determinants")));
    };
    let make = move |gpu: &Gpu, request: &Request| -> Result<Launches> {
        let [.., size, _] = request.inputs[0].shape[..] else {
            return Err(Error::internal("Det of what is no matrix"));
        };
        let count = request.outputs[0].elements();
        let parameters = format!("{ty}* y, const {ty}* x, Wide<{ty}>::type* room, const Matrices s");
        let source = entry(&[SOURCE], "determinants", THREADS, &parameters, "det(y, x, room, s);");
        let function = gpu.compiler.entry(&source, "determinants", 0);
        let words = fields([count, size].map(|n| n as i64))?;
        let mut launch = Launches::one(function, Grid::over(count, THREADS)?, words, "a matrix a thread");
        // A matrix without elements needs no room, and the parameter is there all the same.
        launch.workspace = request.inputs[0].elements().max(1) * dtype.size().max(4);
        Ok(launch)
    };
    let kernel = sourced("Det", "", uniform_forms(&[Layout::Plain], 1, 1), gpu, make);
    Ok(vec![scope.alone(kernel, &[0])])
}
