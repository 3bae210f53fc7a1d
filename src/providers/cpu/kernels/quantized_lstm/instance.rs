//! The kernel at concrete extents: the product of the input, then the walk over directions and steps.

use super::product::{Columns, Number, Rows, WIDE};
use super::{B, C, Cells, H, LENGTHS, P, X};
use crate::error::Result;
use crate::network::array::Array;
use crate::network::ops::dynamic_quantize_linear::parameters;
use crate::network::ops::recurrent::{Extents, Spec};
use crate::plan::layout::Operand;
use crate::plan::{Call, Launcher, Request};
use crate::providers::cpu::kernels::parallel::{self, Shared};
use crate::providers::cpu::kernels::quantized::dynamic::range_of;
use crate::providers::cpu::kernels::recurrent::step::{Cell, Row};
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Elements that a thread should at least look at.
const GRAIN: usize = 16 << 10;
/// Bytes of weights that a thread should at least read in a step: less takes no longer than to meet again.
const STEP: usize = 256 << 10;

/// Offsets in the workspace, in bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Memory {
    /// The input as integers, and what its rows stand for.
    codes: usize,
    numbers: usize,
    /// The product with the input: a row for each of its rows, with all gates of all directions.
    input: usize,
    /// By direction: both biases, added.
    bias: usize,
    /// By direction, a row for each sequence: the states as integers, what they stand for, their product, and the states.
    state_codes: usize,
    state_numbers: usize,
    gates: usize,
    h: usize,
    c: usize,
    total: usize,
}

/// The layer.
pub struct Lstm {
    spec: Spec,
    weights: Arc<[Vec<Columns>; 2]>,
    slots: [Option<usize>; 12],
    lengths_operand: Option<Operand>,
    outputs: usize,
    at: Extents,
    memory: Memory,
    cells: Vec<Cell>,
    lengths: Vec<usize>,
    threads: usize,
}

impl Lstm {
    /// The layer of a kernel at the shapes of a request.
    pub fn new(kernel: &Cells, request: &Request) -> Self {
        let hidden = request.outputs[1].shape[2];
        let at = Extents::new(&kernel.spec, &request.inputs[0].shape, &[0, 0, hidden]);
        let mut slots = [None; 12];
        kernel
            .inputs
            .iter()
            .enumerate()
            .for_each(|(slot, &input)| slots[input] = Some(slot));
        let mut total = 0;
        let mut take = |bytes: usize| {
            let start = total;
            total += bytes.next_multiple_of(64);
            start
        };
        let (rows, sequences, gates) = (at.steps * at.batch, at.directions * at.batch, 4 * hidden);
        let number = size_of::<Number>();
        let memory = Memory {
            codes: take(rows * at.input.next_multiple_of(4)),
            numbers: take(rows * number),
            input: take(4 * rows * at.directions * gates),
            bias: take(4 * at.directions * gates),
            state_codes: take(sequences * hidden.next_multiple_of(4)),
            state_numbers: take(sequences * number),
            gates: take(4 * sequences * gates),
            h: take(4 * sequences * hidden),
            c: take(4 * sequences * hidden),
            total: 0,
        };
        Self {
            memory: Memory { total, ..memory },
            spec: kernel.spec.clone(),
            weights: kernel.weights.clone(),
            lengths_operand: slots[LENGTHS].map(|slot| request.inputs[slot].clone()),
            slots,
            outputs: request.outputs.len(),
            cells: (0..at.directions).map(|d| Cell::new(&kernel.spec, d, hidden)).collect(),
            lengths: vec![at.steps; at.batch],
            at,
            threads: request.threads,
        }
    }

    /// Bytes of scratch memory.
    pub fn workspace(&self) -> usize {
        self.memory.total
    }

    fn part<T>(&self, call: &Call, offset: usize, elements: usize) -> *mut T {
        call.workspace.wrapping_add(offset).cast::<T>().wrapping_add(elements)
    }

    fn given(&self, call: &Call, index: usize) -> Option<*const f32> {
        self.slots[index].map(|slot| call.inputs[slot].cast())
    }

    /// The input as integers, by the range of all of it.
    fn round_input(&self, call: &Call) -> Result<()> {
        let (at, shared, ends) = (&self.at, Shared(call), Mutex::new((0f32, 0f32)));
        let rows = at.steps * at.batch;
        let grain = GRAIN.div_ceil(at.input.max(1));
        // SAFETY (both): the planner gives addresses that hold the operands of the request, and the workspace that was asked for.
        let row = |call: &Call, row: usize| unsafe {
            std::slice::from_raw_parts(call.inputs[0].cast::<f32>().add(row * at.input), at.input)
        };
        parallel::over(rows, grain, |range| {
            for each in range {
                let (low, high) = range_of(row(shared.get(), each));
                if let Ok(mut ends) = ends.lock() {
                    *ends = (ends.0.min(low), ends.1.max(high));
                }
            }
        })?;
        let (low, high) = ends.into_inner().unwrap_or_default();
        let numbers = parameters(low, high);
        let stride = at.input.next_multiple_of(4);
        parallel::over(rows, grain, |range| {
            let call = shared.get();
            for each in range {
                // SAFETY: as above; each row is written once.
                unsafe {
                    let to = self.part::<u8>(call, self.memory.codes, each * stride);
                    let codes = std::slice::from_raw_parts_mut(to, at.input);
                    // The rows serve all directions: where the weights of one have zero points, the sums are taken.
                    let wanting = self.weights[0].iter().find(|columns| columns.is_shifted());
                    let number = wanting
                        .unwrap_or(&self.weights[0][0])
                        .round(row(call, each), numbers, codes);
                    self.part::<Number>(call, self.memory.numbers, each).write(number);
                }
            }
        })
    }

    /// The products of the input, for all directions.
    fn multiply_input(&self, call: &Call) -> Result<()> {
        let (at, shared) = (&self.at, Shared(call));
        let gates = 4 * at.hidden;
        for direction in 0..at.directions {
            let columns = &self.weights[0][direction];
            let chunks = columns.groups().div_ceil(WIDE);
            parallel::over(chunks, 1, |range| {
                let call = shared.get();
                let groups = range.start * WIDE..columns.groups().min(range.end * WIDE);
                let rows = Rows {
                    codes: self.part(call, self.memory.codes, 0),
                    numbers: self.part(call, self.memory.numbers, 0),
                    count: at.steps * at.batch,
                };
                let out = self.part(call, self.memory.input, direction * gates);
                // SAFETY: the parts of the workspace hold that; the kernel is offered where the instructions are.
                unsafe { columns.product(groups, rows, out, at.directions * gates) };
            })?;
        }
        Ok(())
    }

    /// The biases of a direction, added, and its first states.
    ///
    /// # Safety
    /// As of the operands of the call.
    unsafe fn prepare(&self, call: &Call, direction: usize) {
        let (at, gates) = (&self.at, 4 * self.at.hidden);
        // SAFETY: the caller's promise.
        unsafe {
            let bias = self.part::<f32>(call, self.memory.bias, direction * gates);
            bias.write_bytes(0, gates);
            if let Some(from) = self.given(call, B) {
                let from = from.add(direction * 2 * gates);
                (0..gates).for_each(|i| *bias.add(i) = *from.add(i) + *from.add(gates + i));
            }
            for (index, offset) in [(H, self.memory.h), (C, self.memory.c)] {
                for n in 0..at.batch {
                    let to = self.part::<f32>(call, offset, (direction * at.batch + n) * at.hidden);
                    match self.given(call, index) {
                        Some(from) => {
                            to.copy_from_nonoverlapping(from.add(at.state_row(direction, n) * at.hidden), at.hidden);
                        }
                        None => to.write_bytes(0, at.hidden),
                    }
                }
            }
            for (n, &length) in self.lengths.iter().enumerate() {
                for step in length..at.steps {
                    let row = at.y_row(step, direction, n) * at.hidden;
                    call.outputs[0].cast::<f32>().add(row).write_bytes(0, at.hidden);
                }
            }
        }
    }

    /// The states as integers, each by its own range.
    ///
    /// # Safety
    /// As of the operands of the call.
    unsafe fn round_state(&self, call: &Call, direction: usize, n: usize) {
        let (at, sequence) = (&self.at, direction * self.at.batch + n);
        // SAFETY: the caller's promise.
        unsafe {
            let h = std::slice::from_raw_parts(self.part(call, self.memory.h, sequence * at.hidden), at.hidden);
            let stride = at.hidden.next_multiple_of(4);
            let codes: *mut u8 = self.part(call, self.memory.state_codes, sequence * stride);
            let (low, high) = range_of(h);
            let codes = std::slice::from_raw_parts_mut(codes, at.hidden);
            let number = self.weights[1][direction].round(h, parameters(low, high), codes);
            self.part::<Number>(call, self.memory.state_numbers, sequence)
                .write(number);
        }
    }

    /// The products of the states of a direction with some groups of columns.
    ///
    /// # Safety
    /// As of the operands of the call.
    unsafe fn multiply_state(&self, call: &Call, direction: usize, groups: Range<usize>) {
        let (at, first) = (&self.at, direction * self.at.batch);
        let rows = Rows {
            codes: self.part(call, self.memory.state_codes, first * at.hidden.next_multiple_of(4)),
            numbers: self.part(call, self.memory.state_numbers, first),
            count: at.batch,
        };
        let out = self.part(call, self.memory.gates, first * 4 * at.hidden);
        // SAFETY: the caller's promise.
        unsafe { self.weights[1][direction].product(groups, rows, out, 4 * at.hidden) };
    }

    /// The cell of one sequence at one step, which is written to the first output.
    ///
    /// # Safety
    /// As of the operands of the call.
    unsafe fn step(&self, call: &Call, direction: usize, n: usize, count: usize) {
        let (at, gates) = (&self.at, 4 * self.at.hidden);
        let step = at.step(self.spec.reverse[direction], self.lengths[n], count);
        let sequence = direction * at.batch + n;
        let none = std::ptr::null_mut();
        let row = Row {
            input: self.part(
                call,
                self.memory.input,
                (at.x_row(step, n) * at.directions + direction) * gates,
            ),
            bias: self.part(call, self.memory.bias, direction * gates),
            late: none,
            gates: self.part(call, self.memory.gates, sequence * gates),
            reset: none,
            fresh: none,
            h: self.part(call, self.memory.h, sequence * at.hidden),
            c: self.part(call, self.memory.c, sequence * at.hidden),
            peepholes: self
                .given(call, P)
                .map_or(std::ptr::null(), |p| p.wrapping_add(direction * 3 * at.hidden)),
        };
        // SAFETY: the caller's promise.
        unsafe {
            self.cells[direction].step(row);
            let y = call.outputs[0]
                .cast::<f32>()
                .add(at.y_row(step, direction, n) * at.hidden);
            y.copy_from_nonoverlapping(row.h, at.hidden);
        }
    }

    /// All steps of a direction; its parts are shared among the threads if `share`.
    fn direction(&self, call: &Call, direction: usize, share: bool) -> Result<()> {
        let (at, shared) = (&self.at, Shared(call));
        let columns = &self.weights[1][direction];
        let over = |n: usize, grain: usize, body: &(dyn Fn(Range<usize>) + Sync)| match share {
            true => parallel::over(n, grain, body),
            false => {
                body(0..n);
                Ok(())
            }
        };
        let chunk = 2 * WIDE;
        let grain = STEP.div_ceil(chunk * columns.quads() * 64);
        let cells = GRAIN.div_ceil(4 * at.hidden.max(1));
        // SAFETY (all): the planner gives addresses that hold the operands of the request; the threads write disjoint parts.
        unsafe { self.prepare(call, direction) };
        for count in 0..self.lengths.iter().copied().max().unwrap_or(0) {
            over(at.batch, cells, &|range| {
                range.for_each(|n| unsafe { self.round_state(shared.get(), direction, n) });
            })?;
            over(columns.groups().div_ceil(chunk), grain, &|range| {
                let groups = range.start * chunk..columns.groups().min(range.end * chunk);
                unsafe { self.multiply_state(shared.get(), direction, groups) };
            })?;
            over(at.batch, cells, &|range| {
                let running = range.filter(|&n| count < self.lengths[n]);
                running.for_each(|n| unsafe { self.step(shared.get(), direction, n, count) });
            })?;
        }
        for n in 0..at.batch {
            let sequence = (direction * at.batch + n) * at.hidden;
            for (output, offset) in [(1, self.memory.h), (2, self.memory.c)]
                .into_iter()
                .take(self.outputs - 1)
            {
                // SAFETY: as above.
                unsafe {
                    let to = call.outputs[output]
                        .cast::<f32>()
                        .add(at.state_row(direction, n) * at.hidden);
                    to.copy_from_nonoverlapping(self.part(call, offset, sequence), at.hidden);
                }
            }
        }
        Ok(())
    }
}

impl Launcher for Lstm {
    fn launch(&mut self, call: &Call) -> Result<()> {
        if let (Some(operand), Some(slot)) = (&self.lengths_operand, self.slots[LENGTHS]) {
            // SAFETY: the planner gives addresses that hold the operands of the request.
            let bytes = unsafe { std::slice::from_raw_parts(call.inputs[slot], operand.bytes()) };
            let given = Array::from_bytes(operand.dtype, operand.shape.clone(), bytes)?.to_i64();
            self.lengths = self.at.lengths(&given)?;
        }
        debug_assert_eq!(self.slots[X], Some(0));
        if self.at.steps * self.at.batch > 0 {
            self.round_input(call)?;
            self.multiply_input(call)?;
        }
        let (this, shared) = (&*self, Shared(call));
        if this.at.directions < 2 || this.threads < 2 {
            return (0..this.at.directions).try_for_each(|direction| this.direction(call, direction, true));
        }
        // One thread for each direction: they need not wait for each other in each step.
        let failed = Mutex::new(None);
        parallel::over(this.at.directions, 1, |range| {
            for direction in range {
                if let Err(error) = this.direction(shared.get(), direction, false)
                    && let Ok(mut failed) = failed.lock()
                {
                    *failed = Some(error);
                }
            }
        })?;
        failed.into_inner().ok().flatten().map_or(Ok(()), Err)
    }
}
