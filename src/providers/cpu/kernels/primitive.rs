//! What kernels that run a primitive of oneDNN share.

use crate::error::Result;
use crate::network::array::{Array, Buffer};
use crate::network::dtype::DType;
use crate::plan::layout::Layout;
use crate::plan::{Call, Form, Instance, Launcher, Prepared, Tactic, Tier};
use crate::providers::cpu::handle::{Primitive, WeightFormat};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Constant weights, packed once for each format that a primitive asks for and shared by all who use them.
pub struct Weights {
    source: Array,
    packed: Mutex<Vec<(WeightFormat, Weak<Buffer>)>>,
}

impl Weights {
    /// Weights that nobody has packed yet.
    pub fn new(source: Array) -> Self {
        Self {
            source,
            packed: Mutex::default(),
        }
    }

    /// The weights as the model has them.
    pub fn source(&self) -> &Array {
        &self.source
    }

    /// The format in which they are in use, which further primitives had better take. One that nobody uses any more
    /// says nothing: it may have served a form that lost.
    pub fn format(&self) -> Option<WeightFormat> {
        let packed = self.packed.lock().unwrap_or_else(PoisonError::into_inner);
        let used = packed.iter().find(|(_, buffer)| buffer.strong_count() > 0);
        used.map(|(format, _)| format.clone())
    }

    /// The weights in a format.
    ///
    /// # Errors
    /// If oneDNN fails.
    pub fn packed(&self, format: &WeightFormat, threads: usize) -> Result<Arc<Buffer>> {
        let mut packed = self.packed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(buffer) = packed.iter().find(|(f, _)| f == format).and_then(|(_, b)| b.upgrade()) {
            return Ok(buffer);
        }
        let buffer = Arc::new(format.pack(self.source.bytes(), threads)?);
        packed.retain(|(f, b)| f != format && b.strong_count() > 0);
        packed.push((format.clone(), Arc::downgrade(&buffer)));
        Ok(buffer)
    }
}

/// Weights or another operand that a primitive may want in a format of its own.
pub enum Source {
    /// Known at build time.
    Constant(Weights),
    /// An input of the kernel.
    Input(usize),
}

impl Source {
    /// The format that further primitives had better take.
    pub fn format(&self) -> Option<WeightFormat> {
        match self {
            Source::Constant(weights) => weights.format(),
            Source::Input(_) => None,
        }
    }

    /// The argument for a primitive that wants this format.
    ///
    /// # Errors
    /// If oneDNN fails to pack.
    pub fn argument(&self, format: Option<WeightFormat>, threads: usize) -> Result<Argument> {
        Ok(match (self, format) {
            (Source::Constant(weights), Some(format)) => Argument::Packed(weights.packed(&format, threads)?),
            (Source::Constant(weights), None) => Argument::Kept(weights.source().clone()),
            (Source::Input(input), Some(format)) => Argument::Repacked {
                input: *input,
                format,
                threads,
                packed: None,
            },
            (Source::Input(input), None) => Argument::Input(*input),
        })
    }
}

/// Where an argument of a primitive comes from.
pub enum Argument {
    /// An input of the kernel.
    Input(usize),
    /// Packed weights.
    Packed(Arc<Buffer>),
    /// A constant as the model has it.
    Kept(Array),
    /// An input of one integer of 8 bits, as 32 bits.
    Widened(usize, DType, Box<i32>),
    /// An input that is packed at every run.
    Repacked {
        /// The input.
        input: usize,
        /// The format.
        format: WeightFormat,
        /// Threads that pack.
        threads: usize,
        /// What the last run packed.
        packed: Option<Buffer>,
    },
}

impl Argument {
    /// Where it is in a call.
    ///
    /// # Errors
    /// If oneDNN fails to pack.
    pub fn address(&mut self, call: &Call) -> Result<*const u8> {
        Ok(match self {
            Argument::Input(i) => call.inputs[*i],
            Argument::Packed(buffer) => buffer.as_ptr().cast_const(),
            Argument::Widened(i, dtype, wide) => {
                // SAFETY: the planner gives addresses that hold the operands, and this one has an element.
                let byte = unsafe { *call.inputs[*i] };
                **wide = if *dtype == DType::Int8 {
                    i32::from(byte as i8)
                } else {
                    i32::from(byte)
                };
                std::ptr::from_ref(&**wide).cast()
            }
            Argument::Kept(array) => array.bytes().as_ptr(),
            Argument::Repacked {
                input,
                format,
                threads,
                packed,
            } => {
                // SAFETY: the planner gives addresses that hold the operands for which the format was made.
                let bytes = unsafe { std::slice::from_raw_parts(call.inputs[*input], format.source_bytes()) };
                packed.insert(format.pack(bytes, *threads)?).as_ptr().cast_const()
            }
        })
    }
}

/// What runs one primitive.
pub struct PrimitiveLauncher {
    primitive: Primitive,
    arguments: Vec<Argument>,
    addresses: Vec<*const u8>,
}

// SAFETY: the addresses are scratch of `run`, and point to memory that the instance keeps or the caller vouches for.
unsafe impl Send for PrimitiveLauncher {}

impl PrimitiveLauncher {
    /// A primitive with its arguments in order.
    pub fn new(primitive: Primitive, arguments: Vec<Argument>) -> Self {
        debug_assert_eq!(primitive.inputs(), arguments.len());
        Self {
            addresses: Vec::with_capacity(arguments.len()),
            primitive,
            arguments,
        }
    }
}

impl PrimitiveLauncher {
    /// What it is, for reports.
    pub fn implementation(&self) -> String {
        format!("oneDNN {}", self.primitive.implementation())
    }

    /// Bytes of scratch memory that a launch needs.
    pub fn workspace(&self) -> usize {
        self.primitive.workspace()
    }

    /// How well oneDNN does it.
    pub fn tier(&self) -> Tier {
        match (self.primitive.is_reference(), self.primitive.is_by_gemm()) {
            (true, _) => Tier::Reference,
            (false, true) => Tier::LibraryFallback,
            (false, false) => Tier::Specialised,
        }
    }

    /// It as a kernel at concrete shapes.
    pub fn prepared(self) -> Prepared {
        let (how, workspace, tier) = (self.implementation(), self.workspace(), self.tier());
        Prepared::from(Instance::new(how, self).with_workspace(workspace)).with_tier(tier)
    }
}

impl Launcher for PrimitiveLauncher {
    fn launch(&mut self, call: &Call) -> Result<()> {
        self.addresses.clear();
        for argument in &mut self.arguments {
            self.addresses.push(argument.address(call)?);
        }
        // SAFETY: the planner gives addresses that hold the operands of the request.
        unsafe { self.primitive.run(&self.addresses, call.outputs[0], call.workspace) }
    }
}

/// What a result without elements needs.
pub fn nothing() -> Prepared {
    Prepared::new("nothing to do", |_: &Call| Ok(()))
}

/// An operand beside the main one: left out, an input of the kernel, or a constant that it keeps.
pub enum Side {
    /// There is none.
    None,
    /// An input of the kernel.
    Input(usize, DType),
    /// A constant.
    Kept(Array),
}

impl Side {
    /// The dtype, if there is one.
    pub fn dtype(&self) -> Option<DType> {
        match self {
            Side::None => None,
            Side::Input(_, dtype) => Some(*dtype),
            Side::Kept(array) => Some(array.dtype()),
        }
    }

    /// The argument, if there is one.
    pub fn argument(&self) -> Option<Argument> {
        match self {
            Side::None => None,
            Side::Input(i, _) => Some(Argument::Input(*i)),
            Side::Kept(array) => Some(Argument::Kept(array.clone())),
        }
    }
}

/// The form of a primitive that reads its first operand in one layout, the others of its `first` ones plainly, those of what follows
/// it in theirs, and gives its result in another.
pub fn form(from: Layout, first: usize, behind: impl IntoIterator<Item = Layout>, to: Layout) -> Form {
    let mut inputs = vec![from];
    inputs.resize(first, Layout::Plain);
    inputs.extend(behind);
    Form {
        tactic: Tactic::ONLY,
        inputs,
        outputs: vec![to],
    }
}
