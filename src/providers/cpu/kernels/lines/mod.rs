//! Ops on the elements along one axis, one line at a time: ArgMax, ArgMin, CumProd, CumSum, TopK.

mod arg;
mod cumulative;
mod number;
#[cfg(test)]
mod tests;
mod top_k;

use super::scope::Scope;
use super::{Answer, Why};
use crate::error::{Error, Result};
use crate::network::attr::Read;
use crate::network::dtype::DType;
use crate::plan::layout::Layout;
use crate::plan::{Call, Form, Instance, Kernel, Request};
use crate::providers::cpu::kernels::parallel::{self, Shared};
use crate::providers::cpu::kernels::scratch;
use cumulative::How;
use number::Number;
use std::ops::Range;

/// Lanes that are computed together where lines do not lie along memory.
const TILE: usize = 64;
/// Bytes that a thread should at least read.
const GRAIN: usize = 32 << 10;

/// ArgMax, ArgMin, CumProd, CumSum and TopK.
pub fn offer(scope: &Scope) -> Answer {
    let (name, attrs) = (scope.op(), &scope.layer().attrs);
    let rule = match name {
        "ArgMax" | "ArgMin" => Rule::Arg {
            greatest: name == "ArgMax",
            last: attrs.flag("select_last_index"),
        },
        "CumSum" | "CumProd" => Rule::Cumulative(How {
            product: name == "CumProd",
            exclusive: attrs.flag("exclusive"),
            reverse: attrs.flag("reverse"),
        }),
        "TopK" => Rule::TopK {
            greatest: attrs.flag("largest"),
        },
        _ => return Ok(vec![]),
    };
    let Some(ty) = scope.input_type(0) else {
        return Ok(vec![]);
    };
    let axis = match name {
        "CumSum" | "CumProd" => scope.value(1).and_then(|v| v.first()?.as_const()),
        _ => Some(attrs.int("axis")),
    };
    let axis = axis.or_else(|| scope.constant(1).and_then(|c| c.to_i64().first().copied()));
    let axis = axis.ok_or_else(|| Why::new("the axis depends on data"))?;
    let axis = ty.axis(axis).map_err(|e| Why::new(e.message()))?;
    let rank = ty.rank();
    Ok(vec![scope.alone(Lines { name, rule, axis, rank }, &[0])])
}

/// What is done with a line.
#[derive(Debug, Clone, Copy)]
enum Rule {
    Arg { greatest: bool, last: bool },
    Cumulative(How),
    TopK { greatest: bool },
}

struct Lines {
    name: &'static str,
    rule: Rule,
    axis: usize,
    rank: usize,
}

impl Kernel for Lines {
    fn name(&self) -> String {
        self.name.into()
    }

    fn identity(&self) -> String {
        format!("{} {:?} along {}", self.name, self.rule, self.axis)
    }

    fn forms(&self) -> Vec<Form> {
        let outputs = if matches!(self.rule, Rule::TopK { .. }) { 2 } else { 1 };
        let form = |from| Form {
            tactic: 0,
            inputs: vec![from],
            outputs: vec![Layout::Plain; outputs],
        };
        // Along channels that lie innermost, the one result per line comes out row-major.
        let innermost = matches!(self.rule, Rule::Arg { .. }) && self.axis == 1 && self.rank >= 3;
        let layouts = [Layout::Plain, Layout::ChannelsLast];
        layouts.into_iter().take(1 + innermost as usize).map(form).collect()
    }

    fn instantiate(&self, request: &Request) -> Result<Box<dyn Instance>> {
        let (x, result) = (&request.inputs[0], &request.outputs[0]);
        let length = x.shape[self.axis];
        let kept = result.shape.get(self.axis).copied().unwrap_or(1);
        self.check(length, kept)?;
        let inner = match x.layout {
            Layout::ChannelsLast => 1,
            _ => x.shape[self.axis + 1..].iter().product(),
        };
        let grid = Grid {
            outer: x.elements() / (length * inner).max(1),
            length,
            inner,
            kept,
        };
        let rule = self.rule;
        Ok(match x.dtype {
            DType::Float32 | DType::Float16 | DType::BFloat16 => Box::new(Along::<f32>::new(rule, grid, x.dtype)),
            DType::Float64 => Box::new(Along::<f64>::new(rule, grid, x.dtype)),
            _ => Box::new(Along::<i64>::new(rule, grid, x.dtype)),
        })
    }
}

impl Lines {
    /// Checks what only extents decide that were not known before.
    fn check(&self, length: usize, kept: usize) -> Result<()> {
        match self.rule {
            Rule::Arg { .. } if length == 0 => Err(Error::shape("an empty dimension has no greatest or least element")),
            Rule::TopK { .. } if kept > length => Err(Error::shape("k is out of range")
                .expected(format!("0..={length}"))
                .got(kept.to_string())),
            _ => Ok(()),
        }
    }
}

/// A row-major tensor around one axis.
#[derive(Clone, Copy)]
struct Grid {
    outer: usize,
    length: usize,
    inner: usize,
    /// Extent of the axis in the result of TopK.
    kept: usize,
}

/// Neighbouring lines: `width` of them, element `i` of lane `j` at `i * width + j`.
struct Tile {
    length: usize,
    width: usize,
}

struct Along<T> {
    rule: Rule,
    grid: Grid,
    dtype: DType,
    tiles: usize,
    number: std::marker::PhantomData<T>,
}

impl<T: Number> Along<T> {
    fn new(rule: Rule, grid: Grid, dtype: DType) -> Self {
        Self {
            rule,
            grid,
            dtype,
            tiles: grid.inner.div_ceil(TILE),
            number: std::marker::PhantomData,
        }
    }

    /// Runs numbered tiles.
    ///
    /// # Safety
    /// The operands of the request must lie at the addresses.
    unsafe fn tiles(&self, call: &Call, tiles: Range<usize>) {
        let Grid { length, inner, .. } = self.grid;
        let most = length * inner.min(TILE);
        let behind = (most * size_of::<T>()).next_multiple_of(align_of::<u64>());
        scratch::with(behind + length * size_of::<u64>(), |scratch| {
            let numbers = scratch.cast::<T>();
            for unit in tiles {
                let (outer, first) = (unit / self.tiles, unit % self.tiles * TILE);
                let tile = Tile {
                    length,
                    width: (inner - first).min(TILE),
                };
                let at = outer * length * inner + first;
                // SAFETY: the caller's promise; the scratch memory holds a tile and an order of a line.
                unsafe {
                    let source = call.inputs[0].add(at * self.dtype.size());
                    tile.load(self.dtype, source, inner, numbers);
                    let order = scratch.add(behind).cast::<u64>();
                    self.tile(call, &tile, (outer, first), numbers, order);
                }
            }
        });
    }

    /// Runs one tile that was loaded.
    ///
    /// # Safety
    /// As [`Along::tiles`]; `numbers` must hold the tile, and `order` be as long as a line.
    unsafe fn tile(&self, call: &Call, tile: &Tile, (outer, first): (usize, usize), numbers: *mut T, order: *mut u64) {
        let Grid {
            length, inner, kept, ..
        } = self.grid;
        let at = |length: usize| outer * length * inner + first;
        let size = self.dtype.size();
        // SAFETY: the caller's promise.
        unsafe {
            match self.rule {
                Rule::Arg { greatest, last } => {
                    T::arg(
                        numbers,
                        tile,
                        (greatest, last),
                        call.outputs[0].cast::<i64>().add(at(1)),
                    );
                }
                Rule::Cumulative(how) => {
                    cumulative::run(numbers, tile, how);
                    tile.store(self.dtype, numbers, call.outputs[0].add(at(length) * size), inner);
                }
                Rule::TopK { greatest } => {
                    let order = std::slice::from_raw_parts_mut(order, length);
                    let to = (
                        call.outputs[0].add(at(kept) * size),
                        call.outputs[1].cast::<i64>().add(at(kept)),
                    );
                    let from = call.inputs[0].add(at(length) * size);
                    let pick = top_k::Pick {
                        kept,
                        greatest,
                        inner,
                        size,
                    };
                    (0..tile.width).for_each(|lane| pick.lane(numbers, tile, lane, order, from, to));
                }
            }
        }
    }
}

impl Tile {
    /// Reads the tile, whose rows are `stride` elements apart.
    ///
    /// # Safety
    /// The elements must be readable and `to` hold the tile.
    unsafe fn load<T: Number>(&self, dtype: DType, from: *const u8, stride: usize, to: *mut T) {
        // SAFETY: the caller's promise.
        unsafe {
            if stride == self.width {
                return T::widen(dtype, from, to, self.length * self.width);
            }
            for row in 0..self.length {
                T::widen(
                    dtype,
                    from.add(row * stride * dtype.size()),
                    to.add(row * self.width),
                    self.width,
                );
            }
        }
    }

    /// Writes the tile to rows that are `stride` elements apart.
    ///
    /// # Safety
    /// As [`Tile::load`], the other way round.
    unsafe fn store<T: Number>(&self, dtype: DType, from: *const T, to: *mut u8, stride: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            if stride == self.width {
                return T::narrow(dtype, from, to, self.length * self.width);
            }
            for row in 0..self.length {
                T::narrow(
                    dtype,
                    from.add(row * self.width),
                    to.add(row * stride * dtype.size()),
                    self.width,
                );
            }
        }
    }
}

impl<T: Number> Instance for Along<T> {
    fn implementation(&self) -> String {
        "line by line".into()
    }

    fn run(&mut self, call: &Call) -> Result<()> {
        let (this, call) = (&*self, Shared(call));
        let bytes = this.grid.length * this.grid.inner.min(TILE) * this.dtype.size();
        parallel::over(this.grid.outer * this.tiles, GRAIN / bytes.max(1), |tiles| {
            // SAFETY: the planner gives addresses that hold the operands of the request.
            unsafe { this.tiles(call.get(), tiles) }
        })
    }
}
