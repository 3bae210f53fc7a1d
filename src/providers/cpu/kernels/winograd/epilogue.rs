//! What follows the sums: bias, operands and activations, one vector of channels at a time.

use crate::providers::cpu::handle::{Binary, Eltwise};
use crate::providers::cpu::kernels::chain::Link;
use crate::providers::cpu::simd::{Portable, Vector, math};

/// An operation on the result.
#[derive(Debug, Clone, Copy)]
pub enum EpilogueOp {
    /// A function of one number.
    Eltwise(Eltwise),
    /// Combined with the element of the operand with this number that lies where the result does.
    Full(Binary, usize),
    /// Combined with the channel's number in that operand.
    Channel(Binary, usize),
}

/// Whether a vector is put through all of these links.
pub fn is_supported(links: &[Link]) -> bool {
    links.iter().all(|link| match *link {
        Link::Eltwise(function) => eltwise(function, Portable::splat(0.0)).is_some(),
        Link::Full(..) | Link::Channel(..) => true,
        Link::Residual(..) | Link::Rounded(_) | Link::Tokens(_) => false,
    })
}

/// The operations of links whose operands come in order.
pub fn operations(links: &[Link]) -> Vec<EpilogueOp> {
    let mut operands = 0..;
    let mut next = || operands.next().unwrap_or_default();
    let operation = |link: &Link| match *link {
        Link::Eltwise(function) => Some(EpilogueOp::Eltwise(function)),
        Link::Full(binary, _) => Some(EpilogueOp::Full(binary, next())),
        Link::Channel(binary, _) => Some(EpilogueOp::Channel(binary, next())),
        Link::Residual(..) | Link::Rounded(_) | Link::Tokens(_) => None,
    };
    links.iter().filter_map(operation).collect()
}

/// A function of a vector; `None` for one that is left to others.
#[inline(always)]
pub fn eltwise<V: Vector>(function: Eltwise, x: V) -> Option<V> {
    let of = V::splat;
    Some(match function {
        Eltwise::Relu { slope: 0.0 } => of(0.0).max(x),
        Eltwise::Relu { slope } => V::select(x.lt(of(0.0)), x * of(slope), x),
        Eltwise::Clip { low, high } => of(low).max(of(high).min(x)),
        Eltwise::Swish { alpha: 1.0 } => math::silu(x),
        Eltwise::Swish { alpha } => x * math::sigmoid(x * of(alpha)),
        Eltwise::Sigmoid => math::sigmoid(x),
        Eltwise::HardSwish { alpha, beta } => x * math::hard_sigmoid(x, of(alpha), of(beta)),
        Eltwise::HardSigmoid { alpha, beta } => math::hard_sigmoid(x, of(alpha), of(beta)),
        Eltwise::Linear { scale, shift } => x * of(scale) + of(shift),
        Eltwise::Abs => x.abs(),
        Eltwise::Square => x * x,
        _ => return None,
    })
}

/// Two vectors.
#[inline(always)]
pub fn binary<V: Vector>(binary: Binary, x: V, y: V) -> V {
    match binary {
        Binary::Add => x + y,
        Binary::Sub => x - y,
        Binary::Mul => x * y,
        Binary::Div => x / y,
    }
}
