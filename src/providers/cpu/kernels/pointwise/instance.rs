//! A pointwise program at concrete shapes.

use super::execute::execute;
use super::fetch::{Class, Held, MOST_AXES, Walk};
use super::planes::{Planes, interleave};
use super::program::{Feed, Op, Program, Value};
use super::quantize;
use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::dtype::DType;
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Call, Launcher, Request};
use crate::providers::cpu::kernels::operand_strides::{self, BLOCK};
use crate::providers::cpu::kernels::{parallel, scratch};
use std::ops::Range;
use std::sync::Arc;

/// Elements of a tile: a register fills two kilobytes, and a program's registers stay in the nearest cache.
const TILE: usize = 512;
/// Additions that a thread should at least do.
const GRAIN: usize = 16_384;

/// How an operand comes into reach.
enum Reach {
    /// Its memory is used as it is.
    Direct,
    /// It is one value, spread over a register once.
    Scalar,
    /// Each tile is brought into a register.
    Fetched(Walk),
}

struct Source {
    reach: Reach,
    dtype: DType,
    class: Class,
    /// A constant, laid out for the form.
    kept: Option<Array>,
    /// The input that it is.
    input: usize,
}

struct Sink {
    dtype: DType,
    class: Class,
    /// The instruction that gives it.
    result: usize,
    /// The path to memory; none where the instruction writes there itself.
    walk: Option<Walk>,
    strides_dense: bool,
    /// Whether the last instruction quantizes to the signed or unsigned integers of 8 bits that are stored.
    codes: Option<bool>,
}

/// Where channels end within their last block, in a space of blocks.
struct Padding {
    /// Channels in the last block.
    valid: usize,
    /// Elements of all blocks of a sample.
    sample: usize,
    /// Elements of the last block of a sample.
    last: usize,
}

pub struct PointwiseInstance {
    program: Arc<Program>,
    sources: Vec<Source>,
    sinks: Vec<Sink>,
    registers: Vec<usize>,
    register_count: usize,
    total: usize,
    tile: usize,
    grain: usize,
    padding: Option<Padding>,
    planes: Option<Planes>,
}

impl PointwiseInstance {
    pub fn new(program: Arc<Program>, request: &Request) -> Result<Self> {
        let shape = &request.outputs[0].shape;
        let layout = space_layout(request);
        let space = operand_strides::space(shape, layout);
        let sources: Vec<Source> = (0..program.feeds.len())
            .map(|i| source(&program, i, request, shape, layout))
            .collect::<Result<_>>()?;
        let planes = Planes::of(request);
        let mut sinks: Vec<Sink> = request
            .outputs
            .iter()
            .zip(&program.outputs)
            .map(|(operand, &value)| sink(&program, operand, value, &space, layout))
            .collect::<Result<_>>()?;
        // Elsewhere numbers are stored one by one, or padded.
        let stores_runs = |sink: &Sink| layout != Layout::Blocked16 && (sink.strides_dense || planes.is_some());
        for sink in sinks.iter_mut().filter(|sink| !stores_runs(sink)) {
            sink.codes = None;
        }
        let (registers, register_count) = program.registers();
        let tile = tile_for(&sources);
        let grain = (GRAIN / program.weight().max(1)).next_multiple_of(tile).max(tile);
        Ok(Self {
            total: space.iter().product(),
            padding: padding(shape, layout),
            planes,
            sources,
            sinks,
            registers,
            register_count,
            tile,
            grain,
            program,
        })
    }

    /// Whether all that is not one value lies in the order in which the kernel walks, without a gap.
    pub fn is_in_order(&self) -> bool {
        let even = |source: &Source| match &source.reach {
            Reach::Direct | Reach::Scalar => true,
            Reach::Fetched(walk) => walk.is_contiguous(),
        };
        self.padding.is_none() && self.sources.iter().all(even) && self.sinks.iter().all(|sink| sink.strides_dense)
    }

    fn slot(&self) -> usize {
        // i64 at worst, and no two registers at the same place of a page.
        self.tile * 8 + 64
    }

    fn scratch_bytes(&self) -> usize {
        self.planes_at() + self.planes.as_ref().map_or(0, |planes| planes.channels * self.tile)
    }

    /// Where planes lie in the scratch memory until they are interleaved.
    fn planes_at(&self) -> usize {
        (self.register_count + self.sources.len()) * self.slot()
    }
}

/// The layout in whose order elements are walked through: that of the result, but where the one tensor that is read lies in
/// another one, its own. Elements are read in runs and written one by one then.
fn space_layout(request: &Request) -> Layout {
    match (request.inputs, &request.form.inputs[..]) {
        ([x], [layout]) if x.shape.len() == request.outputs[0].shape.len() => *layout,
        _ => request.form.outputs[0],
    }
}

fn source(program: &Program, index: usize, request: &Request, shape: &[usize], layout: Layout) -> Result<Source> {
    let class = program.classes[index];
    let (operand, kept, input) = match &program.feeds[index] {
        Feed::Input(input) => (request.inputs[*input].clone(), None, *input),
        Feed::Constant(array) => {
            let array = match array.uniform() {
                Some(_) => Array::from_bytes(array.dtype(), vec![], &array.bytes()[..array.dtype().size()])?,
                None => array.clone(),
            };
            let operand = Operand::dense(array.dtype(), array.shape().to_vec(), Layout::Plain);
            (operand, Some(array), 0)
        }
    };
    let (kept, strides) = match kept {
        Some(array) if layout == Layout::Blocked16 => {
            let (array, padded) = whole_blocks(&array, shape)?;
            let operand = Operand::dense(array.dtype(), array.shape().to_vec(), Layout::Plain);
            let strides = operand_strides::strides(&operand, &padded, layout)?;
            (Some(array), strides)
        }
        kept => (kept, operand_strides::strides(&operand, shape, layout)?),
    };
    let walk = walk(&operand_strides::space(shape, layout), &strides)?;
    let reach = if walk.is_scalar() {
        Reach::Scalar
    } else if walk.is_contiguous() && class.is_native(operand.dtype) {
        Reach::Direct
    } else {
        Reach::Fetched(walk)
    };
    Ok(Source {
        reach,
        dtype: operand.dtype,
        class,
        kept,
        input,
    })
}

fn walk(space: &[usize], strides: &[usize]) -> Result<Walk> {
    let walk = Walk::new(space, strides);
    match walk.axes() <= MOST_AXES {
        true => Ok(walk),
        false => Err(Error::unsupported(
            "the tensors have too many dimensions that don't lie evenly",
        )),
    }
}

/// A constant with its channels (axis 1 of `shape`) filled up to whole blocks, and the shape filled up so.
fn whole_blocks(array: &Array, shape: &[usize]) -> Result<(Array, Vec<usize>)> {
    let mut padded = shape.to_vec();
    padded[1] = padded[1].next_multiple_of(BLOCK);
    let axis = (array.shape().len() + 1).checked_sub(shape.len());
    let Some(axis) = axis.filter(|&a| array.shape().get(a) == Some(&shape[1]) && padded != shape) else {
        return Ok((array.clone(), padded));
    };
    let inner: usize = array.shape()[axis + 1..].iter().product::<usize>() * array.dtype().size();
    let mut bytes = vec![];
    for row in array.bytes().chunks(shape[1] * inner) {
        bytes.extend_from_slice(row);
        bytes.resize(bytes.len() + (padded[1] - shape[1]) * inner, 0);
    }
    let mut filled = array.shape().to_vec();
    filled[axis] = padded[1];
    Ok((Array::from_bytes(array.dtype(), filled, &bytes)?, padded))
}

fn sink(program: &Program, operand: &Operand, value: Value, space: &[usize], layout: Layout) -> Result<Sink> {
    let strides = operand_strides::strides(operand, &operand.shape, layout)?;
    let walk = walk(space, &strides)?;
    let class = program.class(value);
    let Value::Result(result) = value else {
        return Err(Error::internal("a pointwise kernel gives an operand on"));
    };
    let dense = walk.is_contiguous() || walk.is_scalar();
    let direct = dense && class.is_native(operand.dtype);
    let sinks = program.outputs.iter().filter(|&&output| output == value).count();
    let last = result + 1 == program.instrs.len() && sinks == 1;
    Ok(Sink {
        dtype: operand.dtype,
        class,
        result,
        walk: (!direct).then_some(walk),
        strides_dense: dense,
        codes: codes(&program.instrs[result].op, operand.dtype).filter(|_| last),
    })
}

/// Whether an instruction gives all int8, which are signed, or uint8.
fn codes(op: &Op, dtype: DType) -> Option<bool> {
    match (op, dtype) {
        (Op::Quantize(-128.0, 127.0), DType::Int8) => Some(true),
        (Op::Quantize(0.0, 255.0), DType::UInt8) => Some(false),
        _ => None,
    }
}

/// Tiles hold whole repetitions of an operand that repeats itself often, so that it is read once.
fn tile_for(sources: &[Source]) -> usize {
    let period = |source: &Source| match &source.reach {
        Reach::Fetched(walk) => walk.period().filter(|&p| p > 1 && p <= TILE),
        _ => None,
    };
    match sources.iter().filter_map(period).max() {
        Some(period) => TILE / period * period,
        None => TILE,
    }
}

fn padding(shape: &[usize], layout: Layout) -> Option<Padding> {
    let channels = *shape.get(1)?;
    let valid = channels % BLOCK;
    let spatial: usize = shape[2..].iter().product();
    (layout == Layout::Blocked16 && valid != 0).then(|| Padding {
        valid,
        sample: channels.div_ceil(BLOCK) * BLOCK * spatial,
        last: BLOCK * spatial,
    })
}

impl Padding {
    /// Zeroes what of `start..end` lies beyond the last channel; `tile` is the memory of `start`.
    ///
    /// # Safety
    /// The memory must hold `end - start` elements of `size` bytes.
    unsafe fn clear(&self, tile: *mut u8, size: usize, (start, end): (usize, usize)) {
        let mut at = start / BLOCK * BLOCK;
        while at < end {
            if at % self.sample >= self.sample - self.last {
                let (from, to) = ((at + self.valid).max(start), (at + BLOCK).min(end));
                if from < to {
                    // SAFETY: `start <= from < to <= end`.
                    unsafe { tile.add((from - start) * size).write_bytes(0, (to - from) * size) };
                }
                at += BLOCK;
            } else {
                let sample = at - at % self.sample;
                at = sample + self.sample - self.last;
            }
        }
    }
}

impl Launcher for PointwiseInstance {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let call = parallel::Shared(call);
        let this = &*self;
        let (total, grain) = match &this.planes {
            Some(planes) => (planes.total, this.grain / planes.channels),
            None => (this.total, this.grain),
        };
        parallel::over(total, grain, |range| {
            scratch::with(this.scratch_bytes(), |scratch| {
                let mut worker = Worker::new(this, call.get(), scratch);
                // SAFETY: the planner gives addresses that hold the operands of the request.
                unsafe { worker.run(range) }
            });
        })
    }
}

/// The state of one thread.
struct Worker<'a> {
    of: &'a PointwiseInstance,
    call: &'a Call<'a>,
    scratch: *mut u8,
    held: Vec<Held>,
    sink_of: Vec<Option<usize>>,
}

impl<'a> Worker<'a> {
    fn new(of: &'a PointwiseInstance, call: &'a Call<'a>, scratch: *mut u8) -> Self {
        let direct = |r: usize| of.sinks.iter().position(|sink| sink.result == r && sink.walk.is_none());
        Self {
            of,
            call,
            scratch,
            held: vec![None; of.sources.len()],
            sink_of: (0..of.program.instrs.len()).map(direct).collect(),
        }
    }

    fn base(&self, source: &Source) -> *const u8 {
        match &source.kept {
            Some(array) => array.bytes().as_ptr(),
            None => self.call.inputs[source.input],
        }
    }

    fn fetch_slot(&self, operand: usize) -> *mut u8 {
        self.scratch
            .wrapping_add((self.of.register_count + operand) * self.of.slot())
    }

    /// The memory of a value for the tile that starts at `start`.
    fn place(&self, value: Value, start: usize) -> *mut u8 {
        match value {
            Value::Operand(i) => match self.of.sources[i].reach {
                Reach::Direct => {
                    let source = &self.of.sources[i];
                    self.base(source).wrapping_add(start * source.dtype.size()).cast_mut()
                }
                _ => self.fetch_slot(i),
            },
            Value::Result(r) => match self.sink_of[r] {
                Some(sink) => self.call.outputs[sink].wrapping_add(start * self.of.sinks[sink].dtype.size()),
                None => self.scratch.wrapping_add(self.of.registers[r] * self.of.slot()),
            },
        }
    }

    unsafe fn run(&mut self, range: Range<usize>) {
        let of = self.of;
        for (i, source) in of.sources.iter().enumerate() {
            if let Reach::Scalar = source.reach {
                let walk = Walk::new(&[of.tile], &[0]);
                let slot = self.fetch_slot(i);
                // SAFETY: a scalar has one element, and the slot holds a tile.
                unsafe {
                    walk.fetch(
                        source.class,
                        source.dtype,
                        self.base(source),
                        slot,
                        (0, of.tile),
                        &mut None,
                    )
                };
            }
        }
        let mut start = range.start;
        while start < range.end {
            // SAFETY: the tile lies within the range.
            start = unsafe {
                match &of.planes {
                    Some(planes) => self.pixels(planes, start, range.end),
                    None => self.tile(start, (start + of.tile).min(range.end)),
                }
            };
        }
    }

    /// Pixels of one image, from `start` on but not beyond `end`; returns where they end.
    unsafe fn pixels(&mut self, planes: &Planes, start: usize, end: usize) -> usize {
        let (of, sink) = (self.of, &self.of.sinks[0]);
        let (image, at) = (start / planes.pixels, start % planes.pixels);
        let n = of.tile.min(planes.pixels - at).min(end - start);
        let rows = self.scratch.wrapping_add(of.planes_at());
        for channel in 0..planes.channels {
            let first = (image * planes.channels + channel) * planes.pixels + at;
            // SAFETY: the elements are those of a plane; the scratch memory holds a tile of each.
            unsafe {
                self.compute(first, first + n);
                self.store(sink, (first, first + n), rows.wrapping_add(channel * of.tile));
            }
        }
        // SAFETY: as above; pixels lie one after another.
        unsafe {
            let to = self.call.outputs[0].add(start * planes.channels);
            interleave(planes.channels, rows, of.tile, n, to);
        }
        start + n
    }

    /// A tile; returns where it ends.
    unsafe fn tile(&mut self, start: usize, end: usize) -> usize {
        // SAFETY: the caller's promise.
        unsafe { self.compute(start, end) };
        for (o, sink) in self.of.sinks.iter().enumerate() {
            // SAFETY: as above; the walk was made for this output.
            unsafe { self.finish(o, sink, (start, end)) };
        }
        end
    }

    /// All instructions, for some elements.
    unsafe fn compute(&mut self, start: usize, end: usize) {
        let of = self.of;
        for (i, source) in of.sources.iter().enumerate() {
            if let Reach::Fetched(walk) = &source.reach {
                let (slot, base) = (self.fetch_slot(i), self.base(source));
                // SAFETY: the walk was made for this operand and space; the slot holds a tile.
                unsafe { walk.fetch(source.class, source.dtype, base, slot, (start, end), &mut self.held[i]) };
            }
        }
        // What is quantized is stored at once.
        let stored = of.sinks.iter().filter(|sink| sink.codes.is_some()).count();
        let instrs = &of.program.instrs[..of.program.instrs.len() - stored];
        for (r, instr) in instrs.iter().enumerate() {
            let mut args = [std::ptr::null(); 3];
            for (place, &arg) in args.iter_mut().zip(&instr.args) {
                *place = self.place(arg, start).cast_const();
            }
            let out = self.place(Value::Result(r), start);
            // SAFETY: every place holds `end - start` elements of its class.
            unsafe { execute(&instr.op, end - start, &args[..instr.args.len()], out) };
        }
    }

    /// Whether a value is one number, spread over its register.
    fn is_scalar(&self, value: Value) -> bool {
        matches!(value, Value::Operand(i) if matches!(self.of.sources[i].reach, Reach::Scalar))
    }

    /// Brings an output to memory that lies in the order in which the kernel walks.
    unsafe fn store(&self, sink: &Sink, (start, end): (usize, usize), to: *mut u8) {
        let (value, n) = (self.place(Value::Result(sink.result), start), end - start);
        if let Some(signed) = sink.codes {
            let instr = &self.of.program.instrs[sink.result];
            let args = [0, 1, 2].map(|arg| self.place(instr.args[arg], start).cast_const());
            let seen = if instr.args[1..].iter().all(|&arg| self.is_scalar(arg)) {
                1
            } else {
                n
            };
            // SAFETY: every place holds `n` elements of its class.
            unsafe {
                if let Some((scale, zero)) = quantize::uniform(seen, args[1].cast(), args[2].cast()) {
                    return quantize::quantize(n, args[0].cast(), scale, zero, signed, to);
                }
                execute(&instr.op, n, &args, value);
            }
        }
        // SAFETY: the caller's promise.
        unsafe { sink.class.store(sink.dtype, value, to, n) }
    }

    /// Brings an output to memory, with zeros beyond the last channel.
    unsafe fn finish(&self, o: usize, sink: &Sink, (start, end): (usize, usize)) {
        let value = self.place(Value::Result(sink.result), start);
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(padding) = &self.of.padding {
                padding.clear(value, sink.class.size(), (start, end));
            }
            match &sink.walk {
                None => {}
                Some(_) if sink.strides_dense => {
                    let to = self.call.outputs[o].add(start * sink.dtype.size());
                    self.store(sink, (start, end), to);
                }
                Some(walk) => walk.put(sink.class, sink.dtype, value, self.call.outputs[o], (start, end)),
            }
        }
    }
}
