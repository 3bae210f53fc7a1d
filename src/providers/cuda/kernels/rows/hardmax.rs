//! Hardmax along any axis.

use super::{Around, ROWS};
use crate::error::Result;
use crate::network::attr::Read;
use crate::plan::Request;
use crate::plan::layout::Layout;
use crate::providers::common::Why;
use crate::providers::common::scope::{Scope, uniform_forms};
use crate::providers::cuda::device::Grid;
use crate::providers::cuda::kernels::launch::{Launches, fields, sourced};
use crate::providers::cuda::kernels::packs::entry;
use crate::providers::cuda::kernels::pointwise::code::element;
use crate::providers::cuda::kernels::{Answer, Gpu};
use std::sync::Arc;

const SOURCE: &str = include_str!("../../../../../kernels/hardmax.cu");
const REDUCE: &str = include_str!("../../../../../kernels/reduce.cu");

/// Threads of a block.
const THREADS: u32 = 128;

/// Hardmax, a warp a line.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    if scope.op() != "Hardmax" {
        return Ok(vec![]);
    }
    let ty = scope.output_type(0);
    let axis = ty.axis(scope.layer().attrs.int("axis"));
    let axis = axis.map_err(|e| Why::new(e.message()))?;
    let Some(name) = element(ty.dtype) else {
        return Err(Why::new(format!("{} is not compared", ty.dtype)));
    };
    let make = move |gpu: &Gpu, request: &Request| -> Result<Launches> {
        let Around { outer, length, inner } = Around::of(&request.inputs[0], axis)?;
        let parameters = format!("{name}* y, const {name}* x, const Lines s");
        let body = format!("hardmax<{name}>(y, x, s);");
        let source = entry(&[ROWS, REDUCE, SOURCE], "hardest", THREADS, &parameters, &body);
        Ok(Launches::one(
            gpu.compiler.entry(&source, "hardest", 0),
            Grid::over(outer * inner * 32, THREADS)?,
            fields([outer, length, inner].map(|n| n as i64))?,
            "a warp a line",
        ))
    };
    let layouts = [Layout::Plain, Layout::ChannelsLast].into_iter();
    let layouts: Vec<_> = layouts.filter(|layout| layout.fits(ty.rank())).collect();
    let kernel = sourced(scope.op(), axis.to_string(), uniform_forms(&layouts, 1, 1), gpu, make);
    Ok(vec![scope.alone(kernel, &[0])])
}
