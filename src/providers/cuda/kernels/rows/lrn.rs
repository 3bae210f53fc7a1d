//! LRN in both layouts.

use super::Around;
use crate::error::Result;
use crate::network::attr::Read;
use crate::plan::Request;
use crate::plan::layout::Layout;
use crate::providers::common::Why;
use crate::providers::common::scope::{Scope, uniform_forms};
use crate::providers::cuda::device::Grid;
use crate::providers::cuda::kernels::launch::{Launches, fields, sourced};
use crate::providers::cuda::kernels::packs::{double, entry};
use crate::providers::cuda::kernels::pointwise::code::element;
use crate::providers::cuda::kernels::{Answer, Gpu};
use std::sync::Arc;

const SOURCE: &str = include_str!("../../../../../kernels/lrn.cu");
/// Threads of a block.
const THREADS: u32 = 256;

/// LRN, an element a thread.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    if scope.op() != "LRN" {
        return Ok(vec![]);
    }
    let (ty, attrs) = (scope.output_type(0), &scope.layer().attrs);
    let Some(name) = element(ty.dtype) else {
        return Err(Why::new(format!("{} is not normalized", ty.dtype)));
    };
    let size = attrs.int("size");
    let [alpha, beta, bias] = ["alpha", "beta", "bias"].map(|name| attrs.float(name));
    let reals = [alpha / size as f64, bias, beta].map(double);
    let make = move |gpu: &Gpu, request: &Request| -> Result<Launches> {
        let x = &request.inputs[0];
        let Around { length, inner, .. } = Around::of(x, 1)?;
        // Beyond the channels there is nothing.
        let reach = |channels: i64| channels.min(length as i64);
        let numbers = [x.elements(), length, inner].map(|n| n as i64);
        let numbers = numbers.into_iter().chain([reach((size - 1) / 2), reach(size / 2)]);
        let parameters = format!("{name}* y, const {name}* x, const Around s");
        let body = format!("lrn<{name}>(y, x, s);");
        let source = entry(&[SOURCE], "normalize_channels", THREADS, &parameters, &body);
        Ok(Launches::one(
            gpu.compiler.entry(&source, "normalize_channels", 0),
            Grid::over(x.elements(), THREADS)?,
            fields(reals.into_iter().flatten().chain(numbers))?,
            "an element a thread",
        ))
    };
    let layouts = [Layout::Plain, Layout::ChannelsLast].into_iter();
    let layouts: Vec<_> = layouts.filter(|layout| layout.fits(ty.rank())).collect();
    let kernel = sourced(scope.op(), size.to_string(), uniform_forms(&layouts, 1, 1), gpu, make);
    Ok(vec![scope.alone(kernel, &[0])])
}
