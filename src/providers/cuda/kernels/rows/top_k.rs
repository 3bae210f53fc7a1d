//! TopK along any axis: chunks sorted in shared memory, and merged.

use super::Around;
use crate::error::{Error, Result};
use crate::network::attr::Read;
use crate::network::dtype::DType;
use crate::plan::layout::Layout;
use crate::plan::{Prepared, Request};
use crate::providers::common::Why;
use crate::providers::common::scope::{Scope, uniform_forms};
use crate::providers::cuda::device::Grid;
use crate::providers::cuda::kernels::launch::{KernelLaunch, Launches, fields, sourced};
use crate::providers::cuda::kernels::packs::entry;
use crate::providers::cuda::kernels::pointwise::code::element;
use crate::providers::cuda::kernels::{Answer, Gpu};
use std::sync::Arc;

const SOURCE: &str = include_str!("../../../../../kernels/top_k.cu");

/// TopK in the plain layout; its result is sorted in any case.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    let Some(x) = scope.input_type(0).filter(|_| scope.op() == "TopK") else {
        return Ok(vec![]);
    };
    let Some(ty) = element(x.dtype) else {
        return Err(Why::new(format!("{} is not ordered", x.dtype)));
    };
    let attrs = &scope.layer().attrs;
    let axis = x.axis(attrs.int("axis")).map_err(|e| Why::new(e.message()))?;
    let greatest = attrs.flag("largest");
    let make = move |gpu: &Gpu, request: &Request| instance(gpu, request, ty, axis, greatest);
    let forms = uniform_forms(&[Layout::Plain], 1, 2);
    let kernel = sourced(scope.op(), axis, forms, gpu, make);
    Ok(vec![scope.alone(kernel, &[0])])
}

fn instance(gpu: &Gpu, request: &Request, ty: &'static str, axis: usize, greatest: bool) -> Result<Prepared> {
    let x = &request.inputs[0];
    let around = Around::of(x, axis)?;
    let kept = request.outputs[0].shape[axis];
    if kept > around.length {
        return Err(Error::shape("k is out of range")
            .expected(format!("0..={}", around.length))
            .got(kept.to_string()));
    }
    let plan = Plan::of(around, kept);
    let workspace = if plan.chunks > 1 { "void* workspace, " } else { "" };
    let parameters = format!("{ty}* y, int64* indices, const {ty}* x, {workspace}const Lines s");
    let pointer = if plan.chunks > 1 { "workspace" } else { "nullptr" };
    let launch = |body: &str, grid: Grid, merge: Merge| -> Result<KernelLaunch> {
        let source = entry(&[SOURCE], "top_k", grid.threads, &parameters, body);
        Ok(KernelLaunch::new(
            gpu.compiler.entry(&source, "top_k", 0),
            grid,
            fields(plan.numbers(around, kept, merge))?,
        ))
    };
    let sort = format!(
        "sort_chunks<{ty}, {}, {greatest}>(y, indices, x, {pointer}, s);",
        plan.cells
    );
    let blocks = (plan.lines * plan.chunks).div_ceil(plan.cells / plan.size);
    let threads = plan.cells / 4;
    let mut launches = vec![launch(
        &sort,
        Grid::over(blocks * threads, threads as u32)?,
        plan.first(),
    )?];
    for merge in plan.merges(kept) {
        let entries = plan.lines * merge.runs * merge.run;
        let body = format!("merge_runs<{ty}>(y, indices, x, {pointer}, s);");
        launches.push(launch(&body, Grid::over(entries, 256)?, merge)?);
    }
    let key = if x.dtype.size() == DType::Int64.size() { 8 } else { 4 };
    Ok(Prepared::from(Launches {
        how: format!("{} chunks of {} a line", plan.chunks, plan.size),
        launches,
        workspace: if plan.chunks > 1 {
            2 * plan.capacity * (key + size_of::<u32>())
        } else {
            0
        },
        device_check: None,
    }))
}

/// How lines are sorted.
struct Plan {
    lines: usize,
    /// Elements that a block sorts, in chunks.
    cells: usize,
    /// Places of a chunk.
    size: usize,
    /// Chunks of a line.
    chunks: usize,
    /// What is kept of a chunk.
    run: usize,
    /// Entries of half the workspace.
    capacity: usize,
}

/// A merge of pairs of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Merge {
    /// Runs of a line.
    runs: usize,
    /// Their length.
    run: usize,
    /// The length of what they become.
    merged: usize,
    /// Which half of the workspace they lie in.
    half: usize,
}

impl Plan {
    fn of(around: Around, kept: usize) -> Self {
        /// Elements that blocks sort: of short lines, and of long ones.
        const CELLS: [usize; 2] = [1024, 4096];
        let lines = around.outer * around.inner;
        let places = around.length.next_power_of_two();
        let cells = if places <= CELLS[0] { CELLS[0] } else { CELLS[1] };
        let size = places.min(cells);
        let chunks = around.length.div_ceil(size).max(1);
        let run = kept.min(size);
        let mut plan = Self {
            lines,
            cells,
            size,
            chunks,
            run,
            capacity: 0,
        };
        let entries = |merge: Merge| merge.runs.div_ceil(2) * merge.merged;
        let most = plan.merges(kept).map(entries).max().unwrap_or(0);
        plan.capacity = lines * most.max(chunks * run);
        plan
    }

    /// What the sort leaves.
    fn first(&self) -> Merge {
        Merge {
            runs: self.chunks,
            run: self.run,
            merged: self.run,
            half: 0,
        }
    }

    /// The merges until one run is left.
    fn merges(&self, kept: usize) -> impl Iterator<Item = Merge> + use<> {
        let grown = move |merge: Merge| Merge {
            merged: kept.min(2 * merge.run),
            ..merge
        };
        let first = (self.chunks > 1).then(|| grown(self.first()));
        std::iter::successors(first, move |merge| {
            let runs = merge.runs.div_ceil(2);
            (runs > 1).then(|| {
                grown(Merge {
                    runs,
                    run: merge.merged,
                    merged: 0,
                    half: 1 - merge.half,
                })
            })
        })
    }

    /// `Lines` of `top_k.cu`.
    fn numbers(&self, around: Around, kept: usize, merge: Merge) -> [i64; 11] {
        let Around { outer, length, inner } = around;
        let Merge {
            runs,
            run,
            merged,
            half,
        } = merge;
        [
            outer,
            length,
            inner,
            kept,
            self.size,
            self.chunks,
            runs,
            run,
            merged,
            self.capacity,
            half,
        ]
        .map(|number| number as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(length: usize, kept: usize) -> (Plan, Vec<Merge>) {
        let around = Around {
            outer: 3,
            length,
            inner: 2,
        };
        let plan = Plan::of(around, kept);
        let merges = plan.merges(kept).collect();
        (plan, merges)
    }

    #[test]
    fn short_lines_share_a_block() {
        let (plan, merges) = plan(37, 5);
        assert_eq!((plan.cells, plan.size, plan.chunks, plan.run), (1024, 64, 1, 5));
        assert!(merges.is_empty());
    }

    #[test]
    fn long_lines_are_merged() {
        let (plan, merges) = plan(20_000, 6000);
        assert_eq!((plan.cells, plan.size, plan.chunks, plan.run), (4096, 4096, 5, 4096));
        let merge = |runs, run, merged, half| Merge {
            runs,
            run,
            merged,
            half,
        };
        assert_eq!(
            merges,
            [
                merge(5, 4096, 6000, 0),
                merge(3, 6000, 6000, 1),
                merge(2, 6000, 6000, 0)
            ]
        );
        // What the merges write fits into half the workspace.
        assert!(
            merges
                .iter()
                .all(|m| 6 * m.runs.div_ceil(2) * m.merged <= plan.capacity)
        );
    }
}
