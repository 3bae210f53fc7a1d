//! Softmax and LogSoftmax along any axis.

use super::norm::most_packs;
use super::team::{MOST, Team};
use super::{Around, ROWS};
use crate::error::Result;
use crate::network::attr::Read;
use crate::plan::layout::Layout;
use crate::plan::{Prepared, Request};
use crate::providers::common::Why;
use crate::providers::common::scope::{Scope, uniform_forms};
use crate::providers::cuda::device::Grid;
use crate::providers::cuda::kernels::launch::{Launches, fields, sourced};
use crate::providers::cuda::kernels::packs::{WIDEST, entry, in_packs, pack};
use crate::providers::cuda::kernels::pointwise::code::element;
use crate::providers::cuda::kernels::{Answer, Gpu};
use std::sync::Arc;

const SOURCE: &str = include_str!("../../../../../kernels/softmax.cu");

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
    let kernel = sourced(scope.op(), axis, forms, gpu, make);
    Ok(vec![scope.alone(kernel, &[0])])
}

fn instance(gpu: &Gpu, request: &Request, axis: usize, logarithm: bool) -> Result<Prepared> {
    let x = &request.inputs[0];
    let around = Around::of(x, axis)?;
    let (length, inner) = (around.length, around.inner);
    let ty = element(x.dtype).unwrap_or("float");
    let along = if inner == 1 { length } else { inner };
    let make = |pack: usize| {
        let plan = match inner {
            1 => Plan::rows(around, pack, most_packs(x.dtype, pack), gpu.device.multiprocessors)?,
            _ => Plan::columns(around, pack)?,
        };
        let Plan { call, held, .. } = &plan;
        let body = format!("{call}<{ty}, {pack}, {held}{logarithm}>(y, x, s);");
        let parameters = format!("{ty}* y, const {ty}* x, const Lines s");
        let source = entry(&[ROWS, SOURCE], "softmax", plan.bound, &parameters, &body);
        let numbers = [around.outer, length, inner, plan.team].map(|n| n as i64);
        let function = gpu.compiler.entry(&source, "softmax", 0);
        Ok(Launches::one(function, plan.grid, fields(numbers)?, plan.how))
    };
    // A row that is read again is walked in packs wherever it begins.
    let long = inner == 1 && length > MOST * most_packs(x.dtype, 1);
    let widest = WIDEST / x.dtype.size();
    in_packs(if long { widest } else { pack(x.dtype, [along]) }, make)
}

/// Who computes what.
struct Plan {
    /// The function of `softmax.cu`.
    call: &'static str,
    /// How many packs a thread holds, and whether a block has a row.
    held: String,
    /// Threads that share a row, or next to each other.
    team: usize,
    grid: Grid,
    /// The most threads of a block, whatever the shapes.
    bound: u32,
    how: String,
}

impl Plan {
    fn rows(around: Around, pack: usize, most: usize, multiprocessors: u32) -> Result<Self> {
        let Around { outer, length, .. } = around;
        let mut team = Team::of(outer, length.div_ceil(pack), most, multiprocessors);
        // Few sources serve all lengths.
        team.packs = team.packs.next_power_of_two();
        let streamed = team.packs > most;
        Ok(Self {
            call: if streamed { "softmax_streamed" } else { "softmax_held" },
            held: match streamed {
                true => String::new(),
                false => format!("{}, {}, ", team.packs, team.is_block()),
            },
            team: team.size,
            grid: match streamed {
                true => Grid::over(outer * MOST, MOST as u32)?,
                false => team.grid(outer)?,
            },
            bound: team.bound(),
            how: format!(
                "{}, {}",
                team.describe(),
                if streamed { "read again" } else { "in registers" }
            ),
        })
    }

    fn columns(around: Around, pack: usize) -> Result<Self> {
        let tile = Tile::of(around.inner.div_ceil(pack), around.length);
        Ok(Self {
            call: "softmax_columns",
            held: String::new(),
            team: tile.lanes,
            grid: Grid::over(around.outer * tile.tiles * tile.threads(), tile.threads() as u32)?,
            bound: Tile::THREADS as u32,
            how: tile.describe(),
        })
    }
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
    /// The most threads of a block: the sources have cells for so many.
    pub const THREADS: usize = 256;

    /// For so many packs of columns next to each other.
    pub fn of(columns: usize, length: usize) -> Self {
        /// Threads that read a whole line of a cache in packs.
        const LINE: usize = 32;
        let depth = length.next_power_of_two().clamp(1, Self::THREADS / LINE);
        let lanes = columns.next_power_of_two().clamp(1, Self::THREADS / depth);
        let depth = length.next_power_of_two().clamp(1, Self::THREADS / lanes);
        Self {
            lanes,
            depth,
            tiles: columns.div_ceil(lanes),
        }
    }

    /// For reports.
    pub fn describe(&self) -> String {
        format!("{} x {} threads for columns", self.depth, self.lanes)
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
