//! What a primitive does to its result before it stores it.
use super::{
    Desc,
    desc::element_type,
    ffi::{self, ElementType, PostKind},
};
use crate::network::dtype::DType;

/// What every primitive is asked.
#[derive(Debug, Clone)]
pub struct Options {
    /// Applied to the result, in this order, in f32.
    pub post: Vec<PostOp>,
    /// The size of the team that will run it.
    pub threads: usize,
    /// The scales and zero points of a product of integers of 8 bits.
    pub quantization: Quantization,
}

impl Options {
    /// Whether there is a Relu.
    pub fn has_relu(&self) -> bool {
        self.post.iter().any(PostOp::is_relu)
    }

    /// With an Elu of nothing in place of each Relu: kernels that multiply what is below zero by the slope make NaN of minus infinity.
    pub fn with_elu(&self) -> Self {
        let elu = |op: &PostOp| match op.is_relu() {
            true => PostOp::Eltwise(Eltwise::Elu { alpha: 0.0 }),
            false => op.clone(),
        };
        Self {
            post: self.post.iter().map(elu).collect(),
            ..self.clone()
        }
    }
}

/// Which scales and zero points a product of integers of 8 bits takes, as inputs behind its bias, in this order: scales are
/// float32, zero points int32.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quantization {
    /// A scale of the left operand.
    pub src_scale: bool,
    /// A scale of the weights for each place along the axes of this mask.
    pub weight_scales: Option<u16>,
    /// A scale by which the result is divided.
    pub dst_scale: bool,
    /// A zero point of the left operand.
    pub src_zero: bool,
    /// A zero point of the result, which is added last.
    pub dst_zero: bool,
}

impl Quantization {
    fn raw(self) -> ffi::Quantization {
        ffi::Quantization {
            src_scale: self.src_scale,
            weight_scales: self.weight_scales.map_or(-1, i32::from),
            dst_scale: self.dst_scale,
            src_zero: self.src_zero,
            dst_zero: self.dst_zero,
        }
    }
}

/// One link of the chain that a primitive applies to its result.
#[derive(Debug, Clone)]
pub enum PostOp {
    /// Adds what stands in the output's memory before.
    Sum,
    /// As [`PostOp::Sum`], of quantized numbers: `scale * (number - zero)`.
    Dequantized {
        /// The scale.
        scale: f32,
        /// The zero point.
        zero: i32,
        /// Their dtype, which has as many bits as the output's.
        dtype: DType,
    },
    /// Combines with one more input, which broadcasts over the output.
    Binary(Binary, Desc),
    /// Maps each element.
    Eltwise(Eltwise),
}

impl PostOp {
    fn is_relu(&self) -> bool {
        matches!(self, PostOp::Eltwise(Eltwise::Relu { slope: 0.0 }))
    }
}

/// A function of two numbers; the result so far is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
}

/// A function of one number.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub enum Eltwise {
    /// max(x, 0) + slope * min(x, 0)
    Relu {
        slope: f32,
    },
    /// min(max(x, low), high)
    Clip {
        low: f32,
        high: f32,
    },
    /// x * sigmoid(alpha * x); SiLU where alpha is 1
    Swish {
        alpha: f32,
    },
    GeluErf,
    GeluTanh,
    Sigmoid,
    Tanh,
    /// x * min(max(alpha * x + beta, 0), 1)
    HardSwish {
        alpha: f32,
        beta: f32,
    },
    /// min(max(alpha * x + beta, 0), 1)
    HardSigmoid {
        alpha: f32,
        beta: f32,
    },
    Elu {
        alpha: f32,
    },
    Mish,
    /// scale * x + shift
    Linear {
        scale: f32,
        shift: f32,
    },
    Abs,
    Square,
    Sqrt,
    Exp,
    Log,
    /// To the nearest integer, halves to even.
    Round,
}

impl Options {
    /// No post-ops.
    pub fn threads(threads: usize) -> Self {
        Self {
            post: Vec::new(),
            threads,
            quantization: Quantization::default(),
        }
    }

    /// Appends to the chain.
    pub fn then(mut self, op: PostOp) -> Self {
        self.post.push(op);
        self
    }

    pub(super) fn raw(&self) -> ffi::Options {
        ffi::Options {
            post: self.post.iter().map(PostOp::raw).collect(),
            threads: self.threads,
            quantization: self.quantization.raw(),
        }
    }
}

impl PostOp {
    pub(super) fn operand(&self) -> Option<&Desc> {
        if let PostOp::Binary(_, operand) = self {
            Some(operand)
        } else {
            None
        }
    }

    pub(super) fn operand_mut(&mut self) -> Option<&mut Desc> {
        if let PostOp::Binary(_, operand) = self {
            Some(operand)
        } else {
            None
        }
    }

    pub(super) fn raw(&self) -> ffi::PostOp {
        let (kind, alpha, beta, operand) = match self {
            PostOp::Sum => (PostKind::Sum, 1.0, 0.0, Desc::none()),
            PostOp::Dequantized { scale, zero, dtype } => {
                let mut like = Desc::none();
                like.raw.dtype = element_type(*dtype).unwrap_or(ElementType::Absent);
                (PostKind::Sum, *scale, *zero as f32, like)
            }
            PostOp::Binary(binary, operand) => (binary.kind(), 0.0, 0.0, operand.clone()),
            PostOp::Eltwise(eltwise) => {
                let (kind, alpha, beta) = eltwise.kind();
                (kind, alpha, beta, Desc::none())
            }
        };
        ffi::PostOp {
            kind,
            alpha,
            beta,
            operand: operand.raw,
        }
    }
}

impl Binary {
    fn kind(self) -> PostKind {
        match self {
            Binary::Add => PostKind::Add,
            Binary::Sub => PostKind::Sub,
            Binary::Mul => PostKind::Mul,
            Binary::Div => PostKind::Div,
        }
    }
}

impl Eltwise {
    /// oneDNN's kind with its two parameters.
    fn kind(self) -> (PostKind, f32, f32) {
        match self {
            Eltwise::Relu { slope } => (PostKind::Relu, slope, 0.0),
            Eltwise::Clip { low, high } => (PostKind::Clip, low, high),
            Eltwise::Swish { alpha } => (PostKind::Swish, alpha, 0.0),
            Eltwise::GeluErf => (PostKind::GeluErf, 0.0, 0.0),
            Eltwise::GeluTanh => (PostKind::GeluTanh, 0.0, 0.0),
            Eltwise::Sigmoid => (PostKind::Sigmoid, 0.0, 0.0),
            Eltwise::Tanh => (PostKind::Tanh, 0.0, 0.0),
            Eltwise::HardSwish { alpha, beta } => (PostKind::HardSwish, alpha, beta),
            Eltwise::HardSigmoid { alpha, beta } => (PostKind::HardSigmoid, alpha, beta),
            Eltwise::Elu { alpha } => (PostKind::Elu, alpha, 0.0),
            Eltwise::Mish => (PostKind::Mish, 0.0, 0.0),
            Eltwise::Linear { scale, shift } => (PostKind::Linear, scale, shift),
            Eltwise::Abs => (PostKind::Abs, 0.0, 0.0),
            Eltwise::Square => (PostKind::Square, 0.0, 0.0),
            Eltwise::Sqrt => (PostKind::Sqrt, 0.0, 0.0),
            Eltwise::Exp => (PostKind::Exp, 0.0, 0.0),
            Eltwise::Log => (PostKind::Log, 0.0, 0.0),
            Eltwise::Round => (PostKind::Round, 0.0, 0.0),
        }
    }
}
