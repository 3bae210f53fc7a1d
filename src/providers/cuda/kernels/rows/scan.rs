//! CumSum and CumProd along any axis.

use super::{Around, ROWS};
use crate::error::Result;
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

const SOURCE: &str = include_str!("../../../../../kernels/scan.cu");
/// Threads of a block.
const THREADS: usize = 256;
/// Parts of a line, at most: each reads the totals of those before it.
const MOST_PARTS: usize = 256;

/// CumSum and CumProd in both layouts.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    let op = match scope.op() {
        "CumSum" => "Sum",
        "CumProd" => "Product",
        _ => return Ok(vec![]),
    };
    let Some(x) = scope.input_type(0) else {
        return Ok(vec![]);
    };
    let Some(ty) = element(x.dtype) else {
        return Err(Why::new(format!("there are no sums of {}", x.dtype)));
    };
    let known = scope.value(1).and_then(|value| value.first()?.as_const());
    let axis = known.or_else(|| scope.constant(1).and_then(|array| array.to_i64().first().copied()));
    let axis = axis.ok_or_else(|| Why::new("the axis depends on data"))?;
    let axis = x.axis(axis).map_err(|e| Why::new(e.message()))?;
    let attrs = &scope.layer().attrs;
    let scan = Scan {
        ty,
        total: format!("{op}<Total<{ty}>::type>"),
        exclusive: attrs.flag("exclusive"),
        reverse: attrs.flag("reverse"),
    };
    let layouts = [Layout::Plain, Layout::ChannelsLast].into_iter();
    let layouts: Vec<_> = layouts.filter(|layout| layout.fits(x.rank())).collect();
    let identity = format!("{axis} {} {}", scan.exclusive, scan.reverse);
    let make = move |gpu: &Gpu, request: &Request| scan.instance(gpu, request, axis);
    let kernel = sourced(scope.op(), &identity, uniform_forms(&layouts, 1, 1), gpu, make);
    Ok(vec![scope.alone(kernel, &[0])])
}

struct Scan {
    /// The element type.
    ty: &'static str,
    /// How numbers are joined, in which type.
    total: String,
    exclusive: bool,
    reverse: bool,
}

impl Scan {
    fn instance(&self, gpu: &Gpu, request: &Request, axis: usize) -> Result<Prepared> {
        let x = &request.inputs[0];
        let around = Around::of(x, axis)?;
        let plan = Plan::of(around, gpu.device.multiprocessors);
        let numbers = [around.outer, around.length, around.inner, plan.parts, plan.part];
        let numbers = fields(numbers.map(|n| n as i64))?;
        let split = plan.parts > 1;
        let launch = |writes: bool| -> Result<KernelLaunch> {
            Ok(KernelLaunch::new(
                gpu.compiler.entry(&self.source(plan.kernel, writes, split), "scan", 0),
                plan.grid,
                numbers.clone(),
            ))
        };
        let totals = split.then(|| launch(false)).transpose()?;
        let one = match x.dtype {
            DType::Float32 | DType::Float16 | DType::BFloat16 => size_of::<f32>(),
            _ => size_of::<u64>(),
        };
        let lines = around.outer * around.inner;
        Ok(Prepared::from(Launches {
            launches: totals.into_iter().chain([launch(true)?]).collect(),
            workspace: if split { lines * plan.parts * one } else { 0 },
            device_check: None,
            how: format!("{}, {} parts", plan.kernel, plan.parts),
        }))
    }

    fn source(&self, kernel: &str, writes: bool, split: bool) -> String {
        let Self {
            ty,
            total,
            exclusive,
            reverse,
        } = self;
        let (parameter, totals) = match split {
            true => (format!("{total}::Acc* totals, "), "totals".into()),
            false => (String::new(), format!("({total}::Acc*)nullptr")),
        };
        let parameters = format!("{ty}* y, const {ty}* x, {parameter}const Lines s");
        let body = format!("{kernel}<{ty}, {total}, {exclusive}, {reverse}, {writes}>(y, x, {totals}, s);");
        entry(&[ROWS, SOURCE], "scan", THREADS as u32, &parameters, &body)
    }
}

/// Who computes what.
struct Plan {
    kernel: &'static str,
    grid: Grid,
    parts: usize,
    part: usize,
}

impl Plan {
    fn of(around: Around, multiprocessors: u32) -> Self {
        /// Numbers of a part, at least: of a block's, and of a thread's.
        const LEAST: [usize; 2] = [16 * THREADS, 64];
        let Around { outer, length, inner } = around;
        let (kernel, blocks, least) = match inner {
            1 => ("scan_rows", outer, LEAST[0]),
            _ => ("scan_columns", (outer * inner).div_ceil(THREADS), LEAST[1]),
        };
        let wanted = (2 * multiprocessors as usize).div_ceil(blocks.max(1)).min(MOST_PARTS);
        let part = length.div_ceil(wanted).next_multiple_of(least);
        let parts = length.div_ceil(part.max(1)).max(1);
        // Two parts take as long as the line as a whole: each reads its numbers twice.
        let (parts, part) = if parts < 4 { (1, length) } else { (parts, part) };
        Self {
            kernel,
            grid: Grid {
                blocks: [blocks as u32, parts as u32, 1],
                threads: THREADS as u32,
            },
            parts,
            part,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(outer: usize, length: usize, inner: usize) -> (&'static str, [u32; 3], usize) {
        let plan = Plan::of(Around { outer, length, inner }, 132);
        (plan.kernel, plan.grid.blocks, plan.part)
    }

    #[test]
    fn long_lines_are_split() {
        assert_eq!(plan(3, 37, 1), ("scan_rows", [3, 1, 1], 37));
        assert_eq!(plan(1, 1 << 20, 1), ("scan_rows", [1, 256, 1], 4096));
        assert_eq!(plan(1000, 1 << 20, 1), ("scan_rows", [1000, 1, 1], 1 << 20));
        assert_eq!(plan(2, 4096, 100), ("scan_columns", [1, 64, 1], 64));
        assert_eq!(plan(1, 0, 4), ("scan_columns", [1, 1, 1], 0));
    }
}
