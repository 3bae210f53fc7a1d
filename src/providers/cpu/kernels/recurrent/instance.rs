//! The kernel at concrete extents: the products, and the walk over directions and steps.

use super::memory::{Memory, Sizes};
use super::product::Product;
use super::step::{Cell, Row};
use super::{B, C, Cells, H, LENGTHS, P, R, W, X, plain_gates};
use crate::error::Result;
use crate::network::array::{Array, try_vec};
use crate::network::dtype::DType;
use crate::network::ops::recurrent::{Extents, Spec};
use crate::plan::layout::Operand;
use crate::plan::{Call, Launcher, Request};
use crate::providers::cpu::kernels::parallel::{self, Shared};
use crate::providers::cpu::simd::convert;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Gates that a thread should at least compute in a step.
const GRAIN: usize = 16 << 10;

/// The products of a layer.
pub struct Products {
    input: Product,
    /// By direction.
    steps: Vec<Mutex<Steps>>,
    /// Bytes of scratch memory that each may use.
    pub workspace: usize,
    /// Whether the steps of a direction are the work of one thread, so that directions run beside each other.
    beside: bool,
}

/// The products of each step of one direction.
struct Steps {
    state: Product,
    /// With the reset state.
    reset: Option<Product>,
}

impl Products {
    fn new(input: Product, state: Vec<Product>, reset: Vec<Product>) -> Self {
        let all = || state.iter().chain(&reset);
        let workspace = all().chain([&input]).map(Product::workspace).max().unwrap_or(0);
        let beside = all().all(Product::is_of_one_thread);
        let mut reset = reset.into_iter();
        let steps = state.into_iter().map(|state| {
            Mutex::new(Steps {
                state,
                reset: reset.next(),
            })
        });
        Self {
            input,
            steps: steps.collect(),
            workspace,
            beside,
        }
    }
}

/// A layer at concrete extents.
pub struct Recurrent {
    spec: Spec,
    slots: [Option<usize>; 8],
    inputs: Vec<Operand>,
    dtype: DType,
    outputs: usize,
    sizes: Sizes,
    memory: Memory,
    products: Products,
    cells: Vec<Cell>,
    lengths: Vec<usize>,
}

impl Recurrent {
    /// The layer of a kernel at the shapes of a request.
    ///
    /// # Errors
    /// If oneDNN has no product for them.
    pub fn new(kernel: &Cells, request: &Request) -> Result<Self> {
        let spec = kernel.spec.clone();
        let shape = |index: usize| kernel.slots[index].map(|i| request.inputs[i].shape.as_slice());
        let x = shape(X).unwrap_or(&[0, 0, 0]);
        // The last axis of the states is as long as a row of R.
        let hidden = request.outputs[1].shape[2];
        let at = Extents::new(&spec, x, &[0, 0, hidden]);
        let gates = spec.kind.gates();
        let sizes = Sizes {
            at,
            rows: gates * hidden,
            plain: plain_gates(&spec) * hidden,
        };
        let threads = request.threads;
        let inputs = [at.steps * at.batch, at.input, at.directions * sizes.rows];
        let by_direction = |matrices: &[super::Matrix], columns: usize| {
            let product = |m: &super::Matrix| m.product([at.batch, hidden, columns], threads);
            matrices.iter().map(product).collect::<Result<Vec<_>>>()
        };
        let products = Products::new(
            kernel.w.product(inputs, threads)?,
            by_direction(&kernel.r.state, sizes.plain)?,
            by_direction(&kernel.r.reset, hidden)?,
        );
        let dtype = request.outputs[0].dtype;
        let wide = [X, W, R].map(|i| kernel.slots[i].is_some() && dtype != DType::Float32);
        Ok(Self {
            memory: Memory::new(&spec, &sizes, wide, &products),
            cells: (0..at.directions).map(|d| Cell::new(&spec, d, hidden)).collect(),
            slots: kernel.slots,
            inputs: request.inputs.to_vec(),
            outputs: request.outputs.len(),
            lengths: try_vec(at.batch, at.steps)?,
            spec,
            dtype,
            sizes,
            products,
        })
    }

    /// The f32 at an offset of the workspace.
    fn at(&self, call: &Call, offset: usize) -> *mut f32 {
        // SAFETY: the offsets lie within the workspace that was asked for.
        unsafe { call.workspace.add(offset).cast() }
    }

    fn given<'a>(&'a self, call: &Call, index: usize) -> Option<(*const u8, &'a Operand)> {
        let slot = self.slots[index]?;
        Some((call.inputs[slot], &self.inputs[slot]))
    }

    /// An input as f32: itself, or a copy at an offset of the workspace; null where it is no input of the kernel.
    fn wide(&self, call: &Call, index: usize, offset: usize) -> Result<*const f32> {
        let Some((from, operand)) = self.given(call, index) else {
            return Ok(std::ptr::null());
        };
        if self.dtype == DType::Float32 {
            return Ok(from.cast());
        }
        let (to, size) = (self.at(call, offset), self.dtype.size());
        let addresses = Both(from, to);
        parallel::over(operand.elements(), GRAIN, |range| {
            let Both(from, to) = addresses.get();
            // SAFETY: both hold as many elements as the operand has.
            unsafe {
                convert::to_f32(
                    self.dtype,
                    from.add(range.start * size),
                    to.add(range.start),
                    range.len(),
                )
            }
        })?;
        Ok(to)
    }

    /// Biases and peepholes as f32, the biases added where nothing comes between.
    fn prepare(&self, call: &Call) {
        let (at, rows) = (&self.sizes.at, self.sizes.rows);
        let (bias, late) = (self.at(call, self.memory.bias), self.at(call, self.memory.late));
        // SAFETY: the workspace and the operands hold what their shapes say.
        unsafe {
            bias.write_bytes(0, at.directions * rows);
            late.write_bytes(0, at.directions * at.hidden);
            if let Some((from, operand)) = self.given(call, P) {
                let to = self.at(call, self.memory.peepholes);
                convert::to_f32(self.dtype, from, to, operand.elements());
            }
            let Some((from, _)) = self.given(call, B) else { return };
            let mut line = vec![0f32; 2 * rows];
            for d in 0..at.directions {
                let from = from.add(d * 2 * rows * self.dtype.size());
                convert::to_f32(self.dtype, from, line.as_mut_ptr(), 2 * rows);
                let waits = |row: usize| self.spec.linear_before_reset && row >= 2 * at.hidden;
                for row in 0..rows {
                    *bias.add(d * rows + row) = line[row] + if waits(row) { 0.0 } else { line[rows + row] };
                    if waits(row) {
                        *late.add(d * at.hidden + row - 2 * at.hidden) = line[rows + row];
                    }
                }
            }
        }
    }

    /// Fills the state of a direction from an input, or with zeros.
    fn load_state(&self, call: &Call, index: usize, direction: usize, to: *mut f32) {
        let (at, size) = (&self.sizes.at, self.dtype.size());
        for n in 0..at.batch {
            // SAFETY: the rows stay within the operand and the workspace.
            unsafe {
                let to = to.add(n * at.hidden);
                match self.given(call, index) {
                    Some((from, _)) => {
                        let from = from.add(at.state_row(direction, n) * at.hidden * size);
                        convert::to_f32(self.dtype, from, to, at.hidden);
                    }
                    None => to.write_bytes(0, at.hidden),
                }
            }
        }
    }

    fn store_state(&self, call: &Call, output: usize, direction: usize, from: *const f32) {
        let (at, size) = (&self.sizes.at, self.dtype.size());
        for n in 0..at.batch {
            // SAFETY: as above.
            unsafe {
                let to = call.outputs[output].add(at.state_row(direction, n) * at.hidden * size);
                convert::from_f32(self.dtype, from.add(n * at.hidden), to, at.hidden);
            }
        }
    }

    /// The addresses of one sequence at one step.
    fn row(&self, call: &Call, direction: usize, n: usize, step: usize) -> Row {
        let (at, rows) = (&self.sizes.at, self.sizes.rows);
        let sequence = direction * at.batch + n;
        let state = sequence * at.hidden;
        let memory = &self.memory;
        // SAFETY: the rows stay within the parts of the workspace.
        unsafe {
            Row {
                input: self
                    .at(call, memory.input)
                    .add((at.x_row(step, n) * at.directions + direction) * rows),
                bias: self.at(call, memory.bias).add(direction * rows),
                late: self.at(call, memory.late).add(direction * at.hidden),
                gates: self.at(call, memory.gates).add(sequence * self.sizes.plain),
                reset: self.at(call, memory.reset).add(state),
                fresh: self.at(call, memory.fresh).add(state),
                h: self.at(call, memory.h).add(state),
                c: self.at(call, memory.c).add(state),
                peepholes: match self.slots[P] {
                    Some(_) => self.at(call, memory.peepholes).add(direction * 3 * at.hidden),
                    None => std::ptr::null(),
                },
            }
        }
    }

    /// Calls `body` with each sequence that is still running, over the team.
    fn each(&self, count: usize, body: impl Fn(usize) + Sync) -> Result<()> {
        let run = |range: Range<usize>| range.filter(|&n| count < self.lengths[n]).for_each(&body);
        if self.products.beside {
            run(0..self.sizes.at.batch);
            return Ok(());
        }
        parallel::over(self.sizes.at.batch, GRAIN / self.sizes.rows.max(1), run)
    }

    /// Zeros in the first output behind the end of each sequence.
    fn clear(&self, call: &Call, direction: usize) {
        let (at, bytes) = (&self.sizes.at, self.sizes.at.hidden * self.dtype.size());
        for (n, &length) in self.lengths.iter().enumerate() {
            for step in length..at.steps {
                // SAFETY: the row lies within the output.
                unsafe {
                    call.outputs[0]
                        .add(at.y_row(step, direction, n) * bytes)
                        .write_bytes(0, bytes)
                };
            }
        }
    }

    /// The steps of one direction.
    fn direction(&self, call: &Call, direction: usize, r: *const f32) -> Result<()> {
        let at = self.sizes.at;
        // SAFETY: each part of the workspace has room for every direction, or others behind it have.
        let own = |offset: usize, row: usize| unsafe { self.at(call, offset).add(direction * at.batch * row) };
        let memory = &self.memory;
        let [h, c, reset, fresh] =
            [memory.h, memory.c, memory.reset, memory.fresh].map(|at| own(at, self.sizes.at.hidden));
        let gates = own(memory.gates, self.sizes.plain);
        let mut steps = self.products.steps[direction]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the scratch of the products lies at the end of the workspace.
        let scratch = unsafe { call.workspace.add(self.memory.scratch) };
        self.load_state(call, H, direction, h);
        self.load_state(call, C, direction, c);
        self.clear(call, direction);
        let bytes = at.hidden * self.dtype.size();
        let shared = Shared(call);
        for count in 0..self.lengths.iter().copied().max().unwrap_or(0) {
            // SAFETY: all addresses are those of the operands and of the parts of the workspace.
            unsafe { steps.state.run(h, r, gates, scratch)? };
            if let Some(product) = steps.reset.as_mut() {
                self.each(count, |n| {
                    let step = at.step(self.spec.reverse[direction], self.lengths[n], count);
                    // SAFETY: as above.
                    unsafe { self.cells[direction].reset(self.row(shared.get(), direction, n, step)) }
                })?;
                // SAFETY: as above.
                unsafe { product.run(reset, r, fresh, scratch)? };
            }
            self.each(count, |n| {
                let step = at.step(self.spec.reverse[direction], self.lengths[n], count);
                let call = shared.get();
                let row = self.row(call, direction, n, step);
                // SAFETY: as above; each sequence has a row of its own in the output.
                unsafe {
                    self.cells[direction].step(row);
                    let y = call.outputs[0].add(at.y_row(step, direction, n) * bytes);
                    convert::from_f32(self.dtype, row.h, y, at.hidden);
                }
            })?;
        }
        self.store_state(call, 1, direction, h);
        if self.outputs > 2 {
            self.store_state(call, 2, direction, c);
        }
        Ok(())
    }
}

/// Two addresses that cross to other threads.
#[derive(Clone, Copy)]
struct Both(*const u8, *mut f32);

// SAFETY: each thread writes a part of its own.
unsafe impl Send for Both {}
// SAFETY: as above.
unsafe impl Sync for Both {}

impl Both {
    fn get(&self) -> Self {
        *self
    }
}

impl Recurrent {
    pub fn implementation(&self) -> String {
        let steps = match self.products.beside {
            true => ", steps by one thread for each direction",
            false => "",
        };
        format!("{}{steps}", self.products.input.implementation())
    }

    pub fn workspace(&self) -> usize {
        self.memory.total
    }
}

impl Launcher for Recurrent {
    fn launch(&mut self, call: &Call) -> Result<()> {
        if let Some((from, operand)) = self.given(call, LENGTHS) {
            // SAFETY: the planner gives addresses that hold the operands of the request.
            let bytes = unsafe { std::slice::from_raw_parts(from, operand.bytes()) };
            let given = Array::from_bytes(operand.dtype, operand.shape.clone(), bytes)?.to_i64();
            self.lengths = self.sizes.at.lengths(&given)?;
        }
        let x = self.wide(call, X, self.memory.x)?;
        let w = self.wide(call, W, self.memory.w)?;
        let r = self.wide(call, R, self.memory.r)?;
        self.prepare(call);
        let input = self.at(call, self.memory.input);
        // SAFETY: the scratch of the products lies at the end of the workspace.
        unsafe {
            let scratch = call.workspace.add(self.memory.scratch);
            self.products.input.run(x, w, input, scratch)?;
        }
        let (this, shared) = (&*self, Shared(call));
        let directions = 0..this.sizes.at.directions;
        if !this.products.beside {
            return directions
                .into_iter()
                .try_for_each(|direction| this.direction(call, direction, r));
        }
        let done = Mutex::new(Ok(()));
        parallel::over(directions.len(), 1, |range| {
            for direction in range {
                // The weights are constant.
                if let Err(error) = this.direction(shared.get(), direction, std::ptr::null()) {
                    *done.lock().unwrap_or_else(PoisonError::into_inner) = Err(error);
                }
            }
        })?;
        done.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
