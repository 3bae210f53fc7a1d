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
use crate::network::ops::arg::compare;
use crate::plan::layout::Layout;
use crate::plan::{Call, Form, Instance, Kernel, Launcher, Prepared, Request, Tactic};
use crate::providers::cpu::kernels::parallel::{self, Shared};
use crate::providers::cpu::kernels::scratch::Scratch;
use cumulative::{How, Totals};
use number::Number;
use std::cmp::Ordering;
use std::ops::Range;
use top_k::{Best, Candidate};

/// Lanes that are computed together where lines do not lie along memory.
const TILE: usize = 64;
/// Bytes of a tile that is loaded at once: what stays in the cache.
const LOADED: usize = 64 << 10;
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
    if ty.dtype == DType::UInt64 && !matches!(rule, Rule::Cumulative(_)) {
        return Err(Why::new("lines of uint64 are ordered as if they were int64"));
    }
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
            tactic: Tactic::ONLY,
            inputs: vec![from],
            outputs: vec![Layout::Plain; outputs],
        };
        // Along channels that lie innermost, the one result per line comes out row-major.
        let innermost = matches!(self.rule, Rule::Arg { .. }) && self.axis == 1 && self.rank >= 3;
        let layouts = [Layout::Plain, Layout::ChannelsLast];
        layouts.into_iter().take(1 + innermost as usize).map(form).collect()
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
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
        let (rule, threads) = (self.rule, request.threads);
        Ok(match x.dtype {
            DType::Float32 | DType::Float16 | DType::BFloat16 => {
                Along::<f32>::new(rule, grid, x.dtype, threads).prepared()
            }
            DType::Float64 => Along::<f64>::new(rule, grid, x.dtype, threads).prepared(),
            _ => Along::<i64>::new(rule, grid, x.dtype, threads).prepared(),
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

/// Rows of neighbouring lines: `width` lanes, element `i` of lane `j` at `i * width + j`.
struct Tile {
    length: usize,
    width: usize,
}

struct Along<T> {
    rule: Rule,
    grid: Grid,
    dtype: DType,
    /// Lines that are computed together.
    lanes: usize,
    /// Rows of them that are loaded at once, however long the lines are.
    rows: usize,
    scratch: Scratch,
    number: std::marker::PhantomData<T>,
}

/// Neighbouring lines of one place along the outer axes.
struct Unit {
    outer: usize,
    first: usize,
    width: usize,
}

impl<T: Number> Along<T> {
    fn new(rule: Rule, grid: Grid, dtype: DType, threads: usize) -> Self {
        let Grid {
            outer,
            length,
            inner,
            kept,
        } = grid;
        let line = match rule {
            Rule::TopK { .. } => top_k::room(kept, length) * size_of::<Candidate<T>>(),
            _ => 0,
        };
        let lanes = (LOADED / line.max(1)).clamp(1, TILE).min(inner.max(1));
        let rows = (LOADED / (lanes * size_of::<T>())).clamp(1, length.max(1));
        let behind = lanes * line;
        Self {
            rule,
            grid,
            dtype,
            lanes,
            rows,
            scratch: Scratch::new(
                behind + rows * lanes * size_of::<T>(),
                threads,
                outer * inner.div_ceil(lanes),
            ),
            number: std::marker::PhantomData,
        }
    }

    fn prepared(self) -> Prepared {
        let workspace = self.scratch.workspace();
        Instance::new("line by line", self).with_workspace(workspace).into()
    }

    /// Runs numbered units.
    ///
    /// # Safety
    /// The operands of the request must lie at the addresses.
    unsafe fn units(&self, call: &Call, units: Range<usize>) {
        let Grid {
            inner, kept, length, ..
        } = self.grid;
        let across = inner.div_ceil(self.lanes);
        self.scratch.with(call.workspace, |scratch| {
            for unit in units {
                let first = unit % across * self.lanes;
                let unit = Unit {
                    outer: unit / across,
                    first,
                    width: (inner - first).min(self.lanes),
                };
                // SAFETY: the caller's promise; the scratch memory holds the candidates of all lanes, and behind them the
                // rows that are loaded at once.
                unsafe {
                    match self.rule {
                        Rule::Arg { greatest, last } => self.arg(call, &unit, (greatest, last), scratch.cast()),
                        Rule::Cumulative(how) => self.cumulate(call, &unit, how, scratch.cast()),
                        Rule::TopK { .. } if kept == 0 => {}
                        Rule::TopK { greatest } => {
                            let room = top_k::room(kept, length);
                            let candidates = scratch.cast::<Candidate<T>>();
                            let loaded = candidates.add(room * self.lanes).cast();
                            self.top_k(call, &unit, greatest, (candidates, room), loaded);
                        }
                    }
                }
            }
        });
    }

    /// Where a unit begins in a tensor whose axis has so many elements.
    fn start(&self, unit: &Unit, length: usize) -> usize {
        unit.outer * length * self.grid.inner + unit.first
    }

    /// The rows of a line that are loaded at once, from the front.
    fn blocks(&self) -> impl DoubleEndedIterator<Item = Range<usize>> + use<T> {
        let (length, rows) = (self.grid.length, self.rows);
        (0..length.div_ceil(rows)).map(move |block| block * rows..((block + 1) * rows).min(length))
    }

    /// # Safety
    /// As [`Along::units`]; `to` must hold the rows.
    unsafe fn load(&self, call: &Call, unit: &Unit, rows: &Range<usize>, to: *mut T) -> Tile {
        let Grid { length, inner, .. } = self.grid;
        let tile = Tile {
            length: rows.len(),
            width: unit.width,
        };
        let at = self.start(unit, length) + rows.start * inner;
        // SAFETY: the caller's promise.
        unsafe { tile.load(self.dtype, call.inputs[0].add(at * self.dtype.size()), inner, to) };
        tile
    }

    /// # Safety
    /// As [`Along::load`].
    unsafe fn arg(&self, call: &Call, unit: &Unit, (greatest, last): (bool, bool), numbers: *mut T) {
        let mut best: Option<([T; TILE], [i64; TILE])> = None;
        for rows in self.blocks() {
            let mut places = [0i64; TILE];
            // SAFETY: the caller's promise; the place of each lane lies within the tile.
            unsafe {
                let tile = self.load(call, unit, &rows, numbers);
                T::arg(numbers, &tile, (greatest, last), places.as_mut_ptr());
                let (values, kept) = best.get_or_insert(([*numbers; TILE], [-1; TILE]));
                for lane in 0..unit.width {
                    let value = *numbers.add(places[lane] as usize * tile.width + lane);
                    let order = compare(&value, &values[lane], greatest);
                    if kept[lane] < 0 || order == Ordering::Less || (last && order == Ordering::Equal) {
                        (values[lane], kept[lane]) = (value, rows.start as i64 + places[lane]);
                    }
                }
            }
        }
        let Some((_, places)) = best else { return };
        // SAFETY: the caller's promise.
        unsafe {
            let to = call.outputs[0].cast::<i64>().add(self.start(unit, 1));
            std::ptr::copy_nonoverlapping(places.as_ptr(), to, unit.width);
        }
    }

    /// # Safety
    /// As [`Along::load`].
    unsafe fn cumulate(&self, call: &Call, unit: &Unit, how: How, numbers: *mut T) {
        let Grid { length, inner, .. } = self.grid;
        let mut totals = Totals::new(how);
        let mut next = |rows: Range<usize>| {
            // SAFETY: the caller's promise.
            unsafe {
                let tile = self.load(call, unit, &rows, numbers);
                totals.take(numbers, &tile);
                let at = self.start(unit, length) + rows.start * inner;
                tile.store(self.dtype, numbers, call.outputs[0].add(at * self.dtype.size()), inner);
            }
        };
        match how.reverse {
            true => self.blocks().rev().for_each(&mut next),
            false => self.blocks().for_each(&mut next),
        }
    }

    /// # Safety
    /// As [`Along::load`]; there must be room for so many candidates of each lane.
    unsafe fn top_k(
        &self,
        call: &Call,
        unit: &Unit,
        greatest: bool,
        (candidates, room): (*mut Candidate<T>, usize),
        numbers: *mut T,
    ) {
        let Grid {
            length, inner, kept, ..
        } = self.grid;
        let size = self.dtype.size();
        let pick = top_k::Pick {
            kept,
            greatest,
            inner,
            size,
        };
        // SAFETY: the caller's promise; candidates are plain numbers, of which any bits are some.
        let held = |lane: usize| unsafe { std::slice::from_raw_parts_mut(candidates.add(lane * room), room) };
        let mut best: [Option<Best<T>>; TILE] =
            std::array::from_fn(|lane| (lane < unit.width).then(|| Best::new(pick, held(lane))));
        for rows in self.blocks() {
            // SAFETY: the caller's promise.
            unsafe {
                let tile = self.load(call, unit, &rows, numbers);
                let lanes = best.iter_mut().flatten().enumerate();
                lanes.for_each(|(lane, best)| best.take(numbers, &tile, lane, rows.start));
            }
        }
        let (from, to) = (self.start(unit, length), self.start(unit, kept));
        for (lane, best) in best.into_iter().flatten().enumerate() {
            // SAFETY: the caller's promise.
            unsafe {
                let to = (
                    call.outputs[0].add((to + lane) * size),
                    call.outputs[1].cast::<i64>().add(to + lane),
                );
                best.write(call.inputs[0].add((from + lane) * size), to);
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

impl<T: Number> Launcher for Along<T> {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let (this, call) = (&*self, Shared(call));
        let bytes = this.grid.length * this.lanes * this.dtype.size();
        let units = this.grid.outer * this.grid.inner.div_ceil(this.lanes);
        parallel::over(units, GRAIN / bytes.max(1), |units| {
            // SAFETY: the planner gives addresses that hold the operands of the request.
            unsafe { this.units(call.get(), units) }
        })
    }
}
