//! A reduction at concrete shapes: tiles of results, and parts of what meets in them, over the team.

use super::Finish;
use super::fold::{Block, Direction, Fold, Number};
use super::grid::Grid;
use crate::error::Result;
use crate::network::dtype::DType;
use crate::plan::layout::Operand;
use crate::plan::{Call, Instance, Launcher, Prepared};
use crate::providers::cpu::kernels::copy::Mover;
use crate::providers::cpu::kernels::parallel::{self, Shared};
use crate::providers::cpu::kernels::region::zero_padding;
use std::ops::Range;

/// The most results that are computed together.
const TILE: usize = 256;
/// Bytes that a thread should at least read.
const GRAIN: usize = 32 << 10;

/// What is reduced, and how.
pub struct What {
    /// Of the elements, and of the results.
    pub dtypes: [DType; 2],
    pub fold: Fold,
    pub finish: Finish,
    /// The elements that meet in one result.
    pub count: usize,
}

struct Reducing<A> {
    what: What,
    direction: Direction,
    kept: Vec<Grid>,
    /// What meets in each result, in parts that are computed apart.
    parts: Vec<Vec<Grid>>,
    tile: usize,
    start: A,
    units: usize,
    grain: usize,
    padding: Mover,
}

/// An instance that computes in numbers of class `A`.
pub fn reducing<A: Number>(
    what: What,
    mut kept: Vec<Grid>,
    mut reduced: Vec<Grid>,
    to: &Operand,
    threads: usize,
) -> Prepared {
    let along = reduced.first().is_some_and(|g| g.inner()[1] == 1 && g.inner()[0] > 1);
    let direction = if along { Direction::Along } else { Direction::Down };
    match direction {
        Direction::Along => reduced.iter_mut().for_each(Grid::end_dense),
        Direction::Down => kept.iter_mut().for_each(Grid::end_dense),
    }
    let results: usize = kept.iter().map(Grid::len).sum();
    let tile = TILE.min(results.div_ceil(4 * threads).next_multiple_of(64));
    let units: usize = kept.iter().map(|g| units(g, tile)).sum();
    let bytes = results * what.count * what.dtypes[0].size();
    let parts = parts(reduced, units, bytes, threads);
    let unit_bytes = bytes / (units * parts.len()).max(1);
    let start = match what.count {
        0 => A::of_nothing(what.fold, what.dtypes[1]),
        _ => A::start(what.fold),
    };
    let launcher = Reducing {
        what,
        direction,
        kept,
        parts,
        tile,
        start,
        units,
        grain: (GRAIN / unit_bytes.max(1)).max(1),
        padding: Mover::new(zero_padding(0, to)),
    };
    let workspace = match launcher.parts.len() {
        1 => 0,
        parts => launcher.units * parts * TILE * size_of::<A>(),
    };
    let how = match direction {
        Direction::Along => "reduction along rows",
        Direction::Down => "reduction of columns",
    };
    Instance::new(how, launcher).with_workspace(workspace).into()
}

fn units(grid: &Grid, tile: usize) -> usize {
    grid.outer() * grid.inner()[0].div_ceil(tile)
}

/// Splits what meets in a result, where there are too few results for the team.
fn parts(reduced: Vec<Grid>, units: usize, bytes: usize, threads: usize) -> Vec<Vec<Grid>> {
    let wanted = match threads > 1 && units > 0 && units < 4 * threads {
        true => (4 * threads).div_ceil(units).min(bytes / (4 * GRAIN)),
        false => 1,
    };
    let Some(first) = reduced.first().filter(|_| wanted > 1) else {
        return vec![reduced];
    };
    let wanted = wanted.min(first.length());
    let bound = |part: usize| first.length() * part / wanted;
    let mut parts: Vec<Vec<Grid>> = (0..wanted).map(|p| vec![first.part(bound(p)..bound(p + 1))]).collect();
    parts[0].extend_from_slice(&reduced[1..]);
    parts
}

/// Neighbouring results along the innermost axis of what is kept.
struct Tile {
    from: usize,
    to: usize,
    size: usize,
    /// From one to the next in source and target.
    steps: [usize; 2],
}

impl<A: Number> Reducing<A> {
    fn tile(&self, mut unit: usize) -> Tile {
        let mut grid = &self.kept[0];
        for next in &self.kept[1..] {
            if unit < units(grid, self.tile) {
                break;
            }
            unit -= units(grid, self.tile);
            grid = next;
        }
        let [size, s, t] = grid.inner();
        let tiles = size.div_ceil(self.tile);
        let (from, to) = grid.at(unit / tiles);
        let first = unit % tiles * self.tile;
        Tile {
            from: from + first * s,
            to: to + first * t,
            size: (size - first).min(self.tile),
            steps: [s, t],
        }
    }

    /// Folds one part of what meets in the results of a tile.
    ///
    /// # Safety
    /// The operand of the request must lie at `source`.
    unsafe fn fold(&self, source: *const u8, tile: &Tile, part: usize, acc: &mut [A]) {
        let (fold, dtype) = (self.what.fold, self.what.dtypes[0]);
        for grid in &self.parts[part] {
            let [size, stride, _] = grid.inner();
            let block = match self.direction {
                Direction::Along => Block {
                    rows: tile.size,
                    stride: tile.steps[0],
                    width: size,
                },
                Direction::Down => Block {
                    rows: size,
                    stride,
                    width: tile.size,
                },
            };
            for outer in 0..grid.outer() {
                let at = (tile.from + grid.at(outer).0) * dtype.size();
                // SAFETY: the caller's promise: the grids were made for that operand.
                unsafe { A::reduce(fold, self.direction, dtype, source.add(at), block, acc) };
            }
        }
    }

    /// Writes the results of a tile.
    ///
    /// # Safety
    /// The operand of the request must lie at `target`.
    unsafe fn store(&self, target: *mut u8, tile: &Tile, acc: &mut [A]) {
        let (dtype, size) = (self.what.dtypes[1], self.what.dtypes[1].size());
        acc.iter_mut()
            .for_each(|v| *v = v.finish(self.what.finish, self.what.count));
        // SAFETY: the caller's promise.
        unsafe {
            if tile.steps[1] == 1 {
                return A::store(acc, dtype, target.add(tile.to * size));
            }
            for (i, value) in acc.iter().enumerate() {
                let at = tile.to + i * tile.steps[1];
                A::store(std::slice::from_ref(value), dtype, target.add(at * size));
            }
        }
    }

    fn whole(&self, call: Shared, units: Range<usize>) {
        let call = call.get();
        for unit in units {
            let tile = self.tile(unit);
            let mut acc = [self.start; TILE];
            let acc = &mut acc[..tile.size];
            // SAFETY: the planner gives addresses that hold the operands of the request.
            unsafe {
                self.fold(call.inputs[0], &tile, 0, acc);
                self.store(call.outputs[0], &tile, acc);
            }
        }
    }

    /// Folds the numbered pairs of a unit and a part into the workspace.
    fn apart(&self, call: Shared, pairs: Range<usize>) {
        let call = call.get();
        for pair in pairs {
            let tile = self.tile(pair / self.parts.len());
            // SAFETY: the workspace holds a tile per pair; addresses as above.
            unsafe {
                let acc = call.workspace.cast::<A>().add(pair * TILE);
                let acc = std::slice::from_raw_parts_mut(acc, tile.size);
                acc.fill(self.start);
                self.fold(call.inputs[0], &tile, pair % self.parts.len(), acc);
            }
        }
    }

    /// Joins the parts of each unit.
    fn together(&self, call: Shared, units: Range<usize>) {
        let call = call.get();
        for unit in units {
            let tile = self.tile(unit);
            let mut acc = [self.start; TILE];
            let acc = &mut acc[..tile.size];
            // SAFETY: as in `apart`, which has filled the workspace.
            unsafe {
                for part in 0..self.parts.len() {
                    let pair = unit * self.parts.len() + part;
                    let more = call.workspace.cast::<A>().add(pair * TILE);
                    for (i, acc) in acc.iter_mut().enumerate() {
                        *acc = acc.join(self.what.fold, *more.add(i));
                    }
                }
                self.store(call.outputs[0], &tile, acc);
            }
        }
    }
}

impl<A: Number> Launcher for Reducing<A> {
    fn launch(&mut self, call: &Call) -> Result<()> {
        self.padding.launch(call)?;
        let (this, call) = (&*self, Shared(call));
        if this.parts.len() == 1 {
            return parallel::over(this.units, this.grain, |units| this.whole(call, units));
        }
        parallel::over(this.units * this.parts.len(), this.grain, |pairs| {
            this.apart(call, pairs)
        })?;
        parallel::over(this.units, this.units, |units| this.together(call, units))
    }
}
