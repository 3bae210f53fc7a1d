//! Histogram: the ends of all blocks' numbers, and then counts in shared memory.

use super::launch::{KernelLaunch, Launches, fields, sourced};
use super::packs::entry;
use super::{Answer, Gpu};
use crate::error::Result;
use crate::plan::layout::Layout;
use crate::plan::{Form, Prepared, Request, Tactic};
use crate::providers::common::scope::Scope;
use crate::providers::cuda::device::Grid;
use std::sync::Arc;

const SOURCE: &str = include_str!("../../../../kernels/histogram.cu");
const THREADS: usize = 256;
/// Numbers that a thread should at least read.
const EACH: usize = 16;
/// Blocks of a multiprocessor.
const BLOCKS: usize = 4;
/// Bytes that a block leaves of its ends.
const ENDS: usize = 12;

/// The layer, on numbers in any dense order.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    let Some(x) = scope.input_type(0).filter(|_| scope.op() == "Histogram") else {
        return Ok(vec![]);
    };
    let form = |layout| Form {
        tactic: Tactic::ONLY,
        inputs: vec![layout],
        outputs: vec![Layout::Plain; 3],
    };
    let layouts = [Layout::Plain, Layout::ChannelsLast].into_iter();
    let forms = layouts.filter(|layout| layout.fits(x.rank())).map(form).collect();
    Ok(vec![scope.alone(sourced(scope.op(), "", forms, gpu, instance), &[0])])
}

fn instance(gpu: &Gpu, request: &Request) -> Result<Prepared> {
    let count = request.inputs[0].elements();
    let blocks = count
        .div_ceil(THREADS * EACH)
        .clamp(1, gpu.device.multiprocessors as usize * BLOCKS);
    let grid = Grid::over(blocks * THREADS, THREADS as u32)?;
    let launch = |name: &str, body: &str| -> Result<KernelLaunch> {
        let parameters =
            "int32* counts, int32* exponent, float* ends, const float* x, void* workspace, const Numbers s";
        let source = entry(&[SOURCE], name, grid.threads, parameters, body);
        let function = gpu.compiler.entry(&source, name, 0);
        Ok(KernelLaunch::new(function, grid, fields([count as i64])?))
    };
    Ok(Prepared::from(Launches {
        launches: vec![
            launch("histogram_ends", "find_ends(counts, x, (BlockEnds*)workspace, s);")?,
            launch(
                "histogram_counts",
                "count_bins(counts, exponent, ends, x, (const BlockEnds*)workspace, s);",
            )?,
        ],
        workspace: blocks * ENDS,
        device_check: None,
        how: format!("{blocks} blocks count in shared memory"),
    }))
}
