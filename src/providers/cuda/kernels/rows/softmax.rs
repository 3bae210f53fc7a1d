//! Softmax and LogSoftmax along any axis.

use super::norm::most_packs;
use super::team::Team;
use super::{Around, ROWS};
use crate::error::Result;
use crate::network::attr::Read;
use crate::plan::layout::Layout;
use crate::plan::{Instance, Request};
use crate::providers::common::Why;
use crate::providers::common::scope::{Scope, uniform_forms};
use crate::providers::cuda::device::Grid;
use crate::providers::cuda::kernels::launch::fields;
use crate::providers::cuda::kernels::pointwise::code::element;
use crate::providers::cuda::kernels::steps::{Stepped, Steps, WIDEST, entry, in_packs, pack};
use crate::providers::cuda::kernels::{Answer, Gpu};
use std::sync::Arc;

const SOURCE: &str = include_str!("../../../../../kernels/softmax.cu");
/// Threads of a block that reads a row twice.
const STREAMING: u32 = 1024;

/// Softmax and LogSoftmax in both layouts.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    let logarithm = match scope.op() {
        "Softmax" => false,
        "LogSoftmax" => true,
        _ => return Ok(vec![]),
    };
    let ty = scope.output_type(0);
    let axis = ty.axis(scope.layer().attrs.int("axis"));
    let axis = axis.map_err(|e| Why::new(e.message()))?;
    let layouts = [Layout::Plain, Layout::ChannelsLast].into_iter();
    let layouts: Vec<_> = layouts.filter(|layout| layout.fits(ty.rank())).collect();
    let make = move |gpu: &Gpu, request: &Request| instance(gpu, request, axis, logarithm);
    let forms = uniform_forms(&layouts, 1, 1);
    let kernel = Stepped::new(scope.op(), &axis.to_string(), forms, gpu, make);
    Ok(vec![scope.alone(kernel, &[0])])
}

fn instance(gpu: &Gpu, request: &Request, axis: usize, logarithm: bool) -> Result<Box<dyn Instance>> {
    let x = &request.inputs[0];
    let around = Around::of(x, axis)?;
    let (length, inner) = (around.length, around.inner);
    let ty = element(x.dtype).unwrap_or("float");
    let along = if inner == 1 { length } else { inner };
    let make = |pack: usize| {
        let (call, team, grid, how) = match inner {
            1 => rows(around, pack, most_packs(x.dtype, pack), gpu.device.multiprocessors)?,
            _ => columns(around, pack)?,
        };
        let (before, after) = call;
        let body = format!("{before}{ty}, {pack}, {after}{logarithm}>(y, x, s);");
        let parameters = format!("{ty}* y, const {ty}* x, const Lines s");
        let source = entry(&[ROWS, SOURCE], "softmax", &parameters, &body);
        let numbers = [around.outer, length, inner, team].map(|n| n as i64);
        let function = gpu.compiler.function(&source, "softmax", 0)?;
        Ok(Steps::one(function, grid, fields(numbers)?, how))
    };
    // A row that is read again is walked in packs wherever it begins.
    let long = inner == 1 && length > STREAMING as usize * most_packs(x.dtype, 1);
    in_packs(
        if long {
            WIDEST / x.dtype.size()
        } else {
            pack(x.dtype, [along])
        },
        make,
    )
}

/// What is called, who shares a row, the blocks, and how that is described.
type Plan = ((&'static str, String), usize, Grid, String);

fn rows(around: Around, pack: usize, most: usize, multiprocessors: u32) -> Result<Plan> {
    let Around { outer, length, .. } = around;
    let mut team = Team::of(outer, length.div_ceil(pack), most, multiprocessors);
    // Few sources serve all lengths.
    team.packs = team.packs.next_power_of_two();
    if team.packs > most {
        let grid = Grid::over(outer * STREAMING as usize, STREAMING)?;
        let how = format!("a block of {STREAMING} threads a row, read again");
        return Ok((("softmax_streamed<", String::new()), team.size, grid, how));
    }
    let after = format!("{}, {}, ", team.packs, team.is_block());
    Ok((("softmax_held<", after), team.size, team.grid(outer)?, team.describe()))
}

fn columns(around: Around, pack: usize) -> Result<Plan> {
    let tile = Tile::of(around.inner.div_ceil(pack), around.length);
    let grid = Grid::over(around.outer * tile.tiles * tile.threads(), tile.threads() as u32)?;
    let how = format!("{} x {} threads for columns", tile.depth, tile.lanes);
    Ok((("softmax_columns<", String::new()), tile.lanes, grid, how))
}

/// A block whose threads have neighbouring columns, in rows that share them.
pub struct Tile {
    /// Threads next to each other.
    pub lanes: usize,
    /// Threads that share a column.
    pub depth: usize,
    /// Blocks next to each other.
    pub tiles: usize,
}

impl Tile {
    /// For so many packs of columns next to each other.
    pub fn of(columns: usize, length: usize) -> Self {
        /// Threads of a block: `softmax_columns` and `reduce_columns` have cells for so many.
        const THREADS: usize = 256;
        /// Threads that read a whole line of a cache in packs.
        const LINE: usize = 32;
        let depth = length.next_power_of_two().clamp(1, THREADS / LINE);
        let lanes = columns.next_power_of_two().clamp(1, THREADS / depth);
        let depth = length.next_power_of_two().clamp(1, THREADS / lanes);
        Self {
            lanes,
            depth,
            tiles: columns.div_ceil(lanes),
        }
    }

    /// Threads of a block.
    pub fn threads(&self) -> usize {
        self.lanes * self.depth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_columns_with_all_threads() {
        let tile = |columns, length| {
            let tile = Tile::of(columns, length);
            (tile.lanes, tile.depth, tile.tiles)
        };
        assert_eq!(tile(256, 49), (32, 8, 8));
        assert_eq!(tile(1000, 2), (128, 2, 8));
        assert_eq!(tile(3, 5000), (4, 64, 1));
        assert_eq!(tile(1, 1), (1, 1, 1));
        assert_eq!(tile(33, 0), (64, 1, 1));
    }
}
