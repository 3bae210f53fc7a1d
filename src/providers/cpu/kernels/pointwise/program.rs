//! The register program of a pointwise kernel.

use super::fetch::Class;
use crate::network::attr::Attrs;
use crate::network::dtype::DType;
use crate::network::narrow::Rounding;
use crate::network::op::Pointwise;
use std::sync::Arc;

/// A function of one f32.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub enum Unary {
    Copy,
    Neg,
    Abs,
    Sqrt,
    /// x^0.5: a square root, but 0 of -0 and infinity of minus infinity.
    PowHalf,
    /// x^-0.5, likewise.
    PowMinusHalf,
    Reciprocal,
    Square,
    Exp,
    Log,
    Sin,
    Cos,
    Tanh,
    Sigmoid,
    Erf,
    Relu,
    Silu,
    HardSwish,
    HardSigmoid(f32, f32),
    LeakyRelu(f32),
    /// `gamma * (x > 0 ? x : alpha * (e^(x * inner) - 1))`
    Elu {
        alpha: f32,
        gamma: f32,
        inner: f32,
    },
    Gelu,
    GeluTanh,
    Mish,
    Softplus,
    Softsign,
    ThresholdedRelu(f32),
    Clip(f32, f32),
    Floor,
    Ceil,
    Round,
    Sign,
    /// 1 where the value is not 0.
    Truth,
    Not,
}

/// A function of two f32.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
    Less,
    LessOrEqual,
    Equal,
    And,
    Or,
    Xor,
    PRelu,
}

/// A function of two i64.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub enum IntBinary {
    Add,
    Sub,
    Mul,
    Max,
    Min,
}

/// What an instruction does.
#[derive(Clone)]
pub enum Op {
    /// f32 to f32.
    Unary(Unary),
    /// Two f32 to f32.
    Binary(Binary),
    /// f32 divided by a scale, to nearest even, plus a zero point, held between two numbers; 0 of NaN.
    Quantize(f32, f32),
    /// f32 where the first argument is not 0.
    Select,
    /// i64 where the first argument, f32, is not 0.
    SelectInt,
    /// Two i64 to i64, wrapped to a dtype.
    IntBinary(IntBinary, DType),
    /// Two i64 to f32: `Less`, `LessOrEqual` or `Equal`.
    IntCompare(Binary),
    /// f32 to i64, truncated and wrapped to a dtype.
    ToInt(DType),
    /// i64 to f32.
    ToFloat,
    /// i64 to f32 that is rounded further: one that is not exact has an odd last bit, so that it is no tie then.
    ToOdd,
    /// The bits of u64 to f32, as `ToOdd`.
    UnsignedToOdd,
    /// The bits of u64 to f32.
    UnsignedToFloat,
    /// f32 to the bits of u64, truncated.
    ToUnsigned,
    /// i64 wrapped to a dtype.
    Wrap(DType),
    /// f32 to the f32 that a float of this dtype, of 16 bits or fewer, holds in its place.
    Narrow(DType, Rounding),
    /// i64 to f32: 1 where the value is not 0.
    IntTruth,
    /// The op's own rule in double precision, element by element.
    Float(Pointwise, Arc<Attrs>),
    /// The op's own rule on integers, element by element; the result is wrapped, or a truth value.
    Int(fn(&Attrs, &[i64]) -> i64, Arc<Attrs>, DType),
}

impl Op {
    /// The class of the result.
    pub fn class(&self) -> Class {
        match self {
            Op::SelectInt | Op::IntBinary(..) | Op::ToInt(_) | Op::ToUnsigned | Op::Wrap(_) => Class::Int,
            Op::Int(_, _, dtype) if *dtype != DType::Bool => Class::Int,
            _ => Class::Float,
        }
    }

    /// Roughly how many times as long as an addition it takes.
    pub fn weight(&self) -> usize {
        match self {
            Op::Float(..) | Op::Int(..) => 100,
            Op::Narrow(..) => 10,
            Op::Quantize(..) => 5,
            Op::Unary(u) => match u {
                Unary::Exp | Unary::Tanh | Unary::Sigmoid | Unary::Silu | Unary::Mish | Unary::Elu { .. } => 5,
                Unary::Log | Unary::Sin | Unary::Cos | Unary::Erf | Unary::Gelu | Unary::GeluTanh => 8,
                Unary::Softplus => 12,
                _ => 1,
            },
            _ => 1,
        }
    }
}

/// A value of the program: an operand of the kernel, or the result of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Value {
    /// The n-th operand.
    Operand(usize),
    /// The result of the n-th instruction.
    Result(usize),
}

/// One step of the program.
#[derive(Clone)]
pub struct Instr {
    /// What it does.
    pub op: Op,
    /// Its arguments; at most three.
    pub args: Vec<Value>,
}

/// What is known of an operand before shapes are.
#[derive(Clone)]
pub enum Feed {
    /// The n-th input of the kernel.
    Input(usize),
    /// A constant that the kernel keeps.
    Constant(crate::network::array::Array),
}

/// A straight line of instructions over operands, in static single assignment.
#[derive(Clone, Default)]
pub struct Program {
    /// Where operands come from.
    pub feeds: Vec<Feed>,
    /// Class of each operand.
    pub classes: Vec<Class>,
    /// The instructions.
    pub instrs: Vec<Instr>,
    /// The value of each output.
    pub outputs: Vec<Value>,
}

impl Program {
    /// The class of a value.
    pub fn class(&self, value: Value) -> Class {
        match value {
            Value::Operand(i) => self.classes[i],
            Value::Result(i) => self.instrs[i].op.class(),
        }
    }

    /// The last instruction that reads a value, if any does.
    pub fn last_read(&self, value: Value) -> Option<usize> {
        self.instrs.iter().rposition(|instr| instr.args.contains(&value))
    }

    /// A register for each result, reused when nobody reads it any more; and how many there are.
    pub fn registers(&self) -> (Vec<usize>, usize) {
        let mut free: Vec<usize> = vec![];
        let mut count = 0;
        let mut assigned = vec![0; self.instrs.len()];
        for (i, instr) in self.instrs.iter().enumerate() {
            assigned[i] = free.pop().unwrap_or_else(|| {
                count += 1;
                count - 1
            });
            let mut done: Vec<usize> = vec![];
            for &arg in &instr.args {
                if let Value::Result(r) = arg
                    && !self.outputs.contains(&arg)
                    && self.last_read(arg) == Some(i)
                    && !done.contains(&r)
                {
                    done.push(r);
                }
            }
            free.extend(done.into_iter().map(|r| assigned[r]));
        }
        (assigned, count)
    }

    /// Roughly the cost of an element, in additions.
    pub fn weight(&self) -> usize {
        self.instrs.iter().map(|instr| instr.op.weight()).sum()
    }
}
