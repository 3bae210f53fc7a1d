//! Nearest neighbours: elements of any dtype, copied.

use super::Axis;
use super::table::Table;
use crate::error::Result;
use crate::plan::{Call, Launcher, Prepared};
use crate::providers::cpu::kernels::parallel::{self, Shared};
use crate::providers::cpu::kernels::resize::weighted::dense_tail;
use std::ops::Range;

/// Bytes that a thread should at least write.
const GRAIN: usize = 32 << 10;

struct Nearest {
    size: usize,
    outer: Vec<Axis>,
    /// The innermost axis that is resampled (or else the one before the tail): its table and strides.
    table: Table,
    strides: [usize; 2],
    /// Neighbours that are copied together.
    run: usize,
    rows: usize,
    grain: usize,
}

/// An instance that copies elements of `size` bytes.
pub fn instance(mut axes: Vec<Axis>, size: usize) -> Prepared {
    let run = dense_tail(&mut axes);
    let last = axes.pop().unwrap_or(Axis {
        sizes: [1, 1],
        strides: [run, run],
        table: None,
    });
    let rows = axes.iter().map(|a| a.sizes[1]).product();
    let row = run * last.sizes[1] * size;
    Prepared::new(
        "nearest neighbours",
        Nearest {
            size,
            table: last.table.unwrap_or_else(|| Table::identity(last.sizes[1])),
            strides: last.strides,
            outer: axes,
            run,
            rows: if row == 0 { 0 } else { rows },
            grain: (GRAIN / row.max(1)).max(1),
        },
    )
}

impl Nearest {
    /// Where a row starts in source and target, in elements.
    fn row(&self, mut number: usize) -> [usize; 2] {
        let mut at = [0, 0];
        for axis in self.outer.iter().rev() {
            let i = number % axis.sizes[1];
            number /= axis.sizes[1];
            let place = axis.table.as_ref().map_or(i, |t| t.tap(i, 0).0);
            at[0] += place * axis.strides[0];
            at[1] += i * axis.strides[1];
        }
        at
    }

    /// Writes rows; one of the same source as the row before is a copy of that.
    ///
    /// # Safety
    /// The operands must lie at the addresses.
    unsafe fn rows(&self, source: *const u8, target: *mut u8, range: Range<usize>) {
        let bytes = self.run * self.table.out * self.size;
        let mut before: Option<[usize; 2]> = None;
        for number in range {
            let [from, to] = self.row(number);
            // SAFETY: the caller's promise.
            unsafe {
                let (input, output) = (source.add(from * self.size), target.add(to * self.size));
                match before.filter(|b| b[0] == from && self.strides[1] == self.run) {
                    Some([_, same]) => std::ptr::copy_nonoverlapping(target.add(same * self.size), output, bytes),
                    None => self.elements(input, output),
                }
            }
            before = Some([from, to]);
        }
    }

    /// Writes one row.
    ///
    /// # Safety
    /// The row must lie at the addresses.
    unsafe fn elements(&self, source: *const u8, target: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe {
            let whole = self.strides.iter().all(|s| s % self.run == 0);
            match (if whole { self.run } else { 0 }, self.size) {
                (1, 1) => self.typed::<u8>(source.cast(), target.cast()),
                (1, 2) => self.typed::<u16>(source.cast(), target.cast()),
                (1, 4) => self.typed::<u32>(source.cast(), target.cast()),
                (1, 8) => self.typed::<u64>(source.cast(), target.cast()),
                (16, 4) => self.typed::<[u32; 16]>(source.cast(), target.cast()),
                (16, 2) => self.typed::<[u16; 16]>(source.cast(), target.cast()),
                _ => {
                    let bytes = self.run * self.size;
                    for (i, &place) in self.table.places.iter().enumerate() {
                        let from = source.add(place as usize * self.strides[0] * self.size);
                        let to = target.add(i * self.strides[1] * self.size);
                        std::ptr::copy_nonoverlapping(from, to, bytes);
                    }
                }
            }
        }
    }

    unsafe fn typed<T: Copy>(&self, source: *const T, target: *mut T) {
        let [from, to] = self.strides.map(|stride| stride / self.run);
        for (i, &place) in self.table.places.iter().enumerate() {
            // SAFETY: the caller's promise; strides of runs are whole runs.
            unsafe {
                target
                    .add(i * to)
                    .write_unaligned(source.add(place as usize * from).read_unaligned())
            };
        }
    }
}

impl Launcher for Nearest {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let (this, call) = (&*self, Shared(call));
        parallel::over(this.rows, this.grain, |range| {
            let call = call.get();
            // SAFETY: the planner gives addresses that hold the operands of the request.
            unsafe { this.rows(call.inputs[0], call.outputs[0], range) }
        })
    }
}
