//! Runs that are read from where indices say.

use super::{INDICES, Runs, THREADS, device_check, index_type};
use crate::error::Result;
use crate::plan::Request;
use crate::plan::layout::Layout;
use crate::providers::common::fn_kernel::FnKernel;
use crate::providers::common::indexed::Rule;
use crate::providers::common::scope::uniform_forms;
use crate::providers::cuda::device::Grid;
use crate::providers::cuda::kernels::Gpu;
use crate::providers::cuda::kernels::launch::{Launches, fields, sourced};
use crate::providers::cuda::kernels::words::{bits, divisor, pack};
use std::sync::Arc;

const SOURCE: &str = include_str!("../../../../../kernels/gather.cu");

/// Gather, GatherElements or GatherND.
pub fn kernel(name: &str, rule: Rule, gpu: &Arc<Gpu>) -> FnKernel {
    let make = move |gpu: &Gpu, request: &Request| launch(rule, gpu, request);
    sourced(
        name,
        format!("{rule:?}"),
        uniform_forms(&[Layout::Plain], 2, 1),
        gpu,
        make,
    )
}

fn launch(rule: Rule, gpu: &Gpu, request: &Request) -> Result<Launches> {
    let (x, indices) = (&request.inputs[0], &request.inputs[1]);
    let runs = Runs::new(rule, x, indices);
    let taken = pack(x.dtype.size(), [runs.length]);
    let packs = runs.length / taken;
    let items = packs * runs.count();
    let (ty, index) = (bits(x.dtype), index_type(indices.dtype));
    let (axes, numbers) = (runs.sizes.len(), runs.numbers.len());
    let source = format!(
        "{INDICES}{SOURCE}\nextern \"C\" __global__ void __launch_bounds__({THREADS}) gathering({ty}* y, const {ty}* x, \
         const {index}* indices, const Places<{axes}, {numbers}> places, int64* flag) {{\n    \
         gather<{ty}, {taken}, {index}, {axes}, {numbers}>(y, x, indices, places, flag);\n}}\n"
    );
    let function = gpu.compiler.entry(&source, "gathering", 0);
    let words = fields(words(&runs, items, packs))?;
    let how = format!("a run of {} elements for each index, {taken} a thread", runs.length);
    let mut launch = Launches::one(function, Grid::over(items, THREADS)?, words, &how);
    launch.device_check = Some(device_check(gpu, runs.extents())?);
    Ok(launch)
}

/// `Places` of `gather.cu`.
fn words(runs: &Runs, items: usize, packs: usize) -> Vec<i64> {
    [&[items as i64], divisor(packs).as_slice(), &runs.words(1)].concat()
}
