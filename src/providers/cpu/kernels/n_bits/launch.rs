//! The product at concrete extents: rows are packed into tiles, then groups of columns are shared among the threads.

use super::float::{self, PANEL};
use super::integer;
use super::pack::{LANES, Packed};
use super::results::Target;
use super::rows::Tiles;
use crate::error::Result;
use crate::network::dtype::DType;
use crate::plan::{Call, Launcher};
use crate::providers::cpu::kernels::parallel;
use crate::providers::cpu::kernels::scratch;
use crate::providers::cpu::simd::{Isa, convert};
use std::ops::Range;
use std::sync::Arc;

/// Weights of a column that are unpacked at a time, about: a panel of them stays in the second-level cache, and where few rows
/// read it at a time in the first.
fn slab() -> usize {
    if Isa::here() == Isa::Avx512 { 512 } else { 128 }
}

/// Bytes of weights that a thread should at least read.
const LEAST: usize = 32 << 10;
/// Elements that a thread should at least convert or pack.
const GRAIN: usize = 16 << 10;

/// The product.
pub struct Product {
    packed: Arc<Packed>,
    tiles: Tiles,
    dtype: DType,
    /// Groups that a thread takes at least.
    grain: usize,
    /// Where rows and results as float32 begin in the workspace, behind the tiles.
    wide: [usize; 2],
    workspace: usize,
}

/// Addresses that cross to other threads.
#[derive(Clone, Copy)]
struct Addresses {
    x: *const f32,
    tiles: *mut u8,
    out: *mut f32,
}

// SAFETY: the threads write disjoint tiles and disjoint columns.
unsafe impl Send for Addresses {}
// SAFETY: as above.
unsafe impl Sync for Addresses {}

impl Addresses {
    fn get(&self) -> Self {
        *self
    }
}

impl Product {
    /// A product of so many rows.
    pub fn new(packed: Arc<Packed>, rows: usize, dtype: DType, integers: bool, threads: usize) -> Self {
        let units = packed.units;
        let tiles = Tiles { units, rows, integers };
        let widened = |columns: usize| match dtype {
            DType::Float32 => 0,
            _ => (4 * rows * columns).next_multiple_of(64),
        };
        let wide = [tiles.bytes(), tiles.bytes() + widened(units.geometry.k)];
        let least = LEAST.div_ceil(units.group_bytes() * tiles.count());
        // Whole panels, of which no thread has many more than another.
        let grain = least
            .max(1)
            .next_multiple_of(if tiles.count() > 1 && !integers { PANEL } else { 1 });
        Self {
            packed,
            tiles,
            dtype,
            grain: grain.min(units.groups().div_ceil(threads.max(1)).max(1)),
            wide,
            workspace: wide[1] + widened(units.geometry.n),
        }
    }

    /// For reports.
    pub fn implementation(&self) -> String {
        let how = match (self.tiles.integers, self.tiles.count()) {
            (true, _) => "products of 8 bits",
            (false, 1) => "unpacked in registers",
            _ => "panels of float32",
        };
        let size = self.packed.bytes() as f64 / f64::from(1 << 20);
        format!("{how}, {size:.1} MiB of packed weights")
    }

    /// Bytes of scratch memory.
    pub fn workspace(&self) -> usize {
        self.workspace
    }

    fn float_group(&self, group: usize, at: Addresses) {
        let (from, target) = (self.packed.group(group), self.target(group, 0, at));
        // SAFETY: addresses are those of the call.
        unsafe { float::direct(&self.packed.units, self.tiles.rows, from, at.tiles.cast(), target) };
    }

    fn integer_group(&self, group: usize, at: Addresses) {
        let from = self.packed.group(group);
        for tile in 0..self.tiles.count() {
            let target = self.target(group, tile, at);
            let x = at.tiles.wrapping_add(tile * self.tiles.stride());
            // SAFETY: as above.
            unsafe { integer::direct(&self.packed.units, self.tiles.rows_of(tile), from, x, target) };
        }
    }

    /// So many groups of columns, at most a panel, slab by slab.
    fn panel(&self, groups: Range<usize>, at: Addresses, panel: *mut f32) {
        let units = &self.packed.units;
        let step = (slab() / units.unit).max(1);
        for first in (0..units.count()).step_by(step) {
            let count = step.min(units.count() - first);
            for (lane, group) in groups.clone().enumerate() {
                let (from, to) = (self.packed.group(group), panel.wrapping_add(lane * LANES));
                // SAFETY: as above; the panel holds a slab.
                unsafe { float::unpack(units, from, first, count, to) };
            }
            for tile in 0..self.tiles.count() {
                let target = self.target(groups.start, tile, at);
                let rows = self.tiles.rows_of(tile);
                let x: *const f32 = at.tiles.wrapping_add(tile * self.tiles.stride()).cast();
                let (x, terms) = (x.wrapping_add(first * units.unit * rows), count * units.unit);
                // SAFETY: as above.
                unsafe { float::tile(rows, groups.len(), terms, x, panel, target, first == 0) };
            }
        }
    }

    /// The results of a tile from a group on.
    fn target(&self, group: usize, tile: usize, at: Addresses) -> Target {
        let n = self.packed.units.geometry.n;
        Target {
            out: at.out.wrapping_add(tile * self.tiles.height() * n + group * LANES),
            stride: n,
            columns: n - group * LANES,
        }
    }

    /// `direct`: with weights that are unpacked in registers.
    fn groups(&self, groups: Range<usize>, at: Addresses, direct: bool) {
        match (self.tiles.integers, direct) {
            (true, _) => groups.for_each(|group| self.integer_group(group, at)),
            (false, true) => groups.for_each(|group| self.float_group(group, at)),
            _ => {
                let unit = self.packed.units.unit;
                let bytes = 4 * PANEL * LANES * unit * (slab() / unit).max(1);
                scratch::with(bytes, |panel| {
                    for first in groups.clone().step_by(PANEL) {
                        self.panel(first..groups.end.min(first + PANEL), at, panel.cast());
                    }
                });
            }
        }
    }

    /// Whether few rows meet weights that are unpacked in registers. There a zero point is taken off behind the products, times the sum
    /// of a unit, which for an infinite number would be NaN where the definition gives infinity.
    fn is_direct(&self, at: Addresses) -> bool {
        // SAFETY: the tile was packed.
        !self.tiles.integers && self.tiles.count() == 1 && unsafe { self.tiles.has_finite_sums(0, at.tiles) }
    }

    /// Packs all rows.
    fn pack(&self, at: Addresses) -> Result<()> {
        let k = self.packed.units.geometry.k;
        let grain = GRAIN.div_ceil(k * self.tiles.height());
        parallel::over(self.tiles.count(), grain, |tiles| {
            let at = at.get();
            for tile in tiles {
                // SAFETY: as above; the workspace holds all tiles.
                unsafe {
                    let to = at.tiles.add(tile * self.tiles.stride());
                    self.tiles.pack(tile, at.x.add(tile * self.tiles.height() * k), to);
                }
            }
        })
    }
}

impl Launcher for Product {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let geometry = self.packed.units.geometry;
        let (size, wide) = (self.dtype.size(), self.dtype != DType::Float32);
        let part = |at: usize| call.workspace.wrapping_add(self.wide[at]).cast::<f32>();
        let at = Addresses {
            x: if wide { part(0) } else { call.inputs[0].cast() },
            tiles: call.workspace,
            out: if wide { part(1) } else { call.outputs[0].cast() },
        };
        if wide {
            let elements = self.tiles.rows * geometry.k;
            // SAFETY: the planner gives addresses that hold the operands, and the workspace that was asked for.
            unsafe { convert::to_f32(self.dtype, call.inputs[0], at.x.cast_mut(), elements) };
        }
        self.pack(at)?;
        let direct = self.is_direct(at);
        parallel::over(self.packed.units.groups(), self.grain, |groups| {
            self.groups(groups, at.get(), direct)
        })?;
        if wide {
            let (rows, to) = (self.tiles.rows, parallel::Shared(call));
            parallel::over(rows, GRAIN.div_ceil(geometry.n), |rows| {
                let (first, count) = (rows.start * geometry.n, rows.len() * geometry.n);
                // SAFETY: as above; the rows of the threads are disjoint.
                unsafe {
                    let to = to.get().outputs[0].add(first * size);
                    convert::from_f32(self.dtype, at.get().out.add(first), to, count);
                }
            })?;
        }
        Ok(())
    }
}
