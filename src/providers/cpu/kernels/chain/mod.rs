//! An epilogue as the post-ops of oneDNN: each works on what the one before it gave.

mod find;
mod post;

use super::primitive::Argument;
use super::scope::Scope;
use crate::network::array::Array;
use crate::network::dtype::DType;
use crate::network::quantization::Scheme;
use crate::network::{LayerId, Network, TensorId};
use crate::plan::layout::{Layout, Operand};
use crate::providers::common::epilogue::{Epilogue, behind, behind_8_bits};
use crate::providers::common::quantized::{self, Dequantized};
use crate::providers::cpu::handle::{Binary, Eltwise};
use find::{Found, is_link};

/// Which axis of a result counts as its channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channels {
    /// Axis 1: convolutions.
    Second,
    /// The last axis: matrix products.
    Last,
}

impl Channels {
    /// The number of the axis, of a result of this rank.
    pub fn of(self, rank: usize) -> usize {
        match self {
            Channels::Second => 1,
            Channels::Last => rank.saturating_sub(1),
        }
    }
}

/// One operation on the result.
#[derive(Debug, Clone)]
pub enum Link {
    /// A function of one number.
    Eltwise(Eltwise),
    /// Combined with a tensor of the result's shape.
    Full(Binary, TensorId),
    /// Combined with one number per channel.
    Channel(Binary, TensorId),
    /// Multiplied with one number per row: the scale of a token.
    Tokens(TensorId),
    /// What a tensor of 8 bits stands for is added.
    Residual(TensorId, Scheme),
    /// Quantized and dequantized again: rounded to what the scheme has.
    Rounded(Scheme),
}

impl Link {
    /// The tensor that it reads besides.
    fn operand(&self) -> Option<TensorId> {
        match *self {
            Link::Full(_, tensor) | Link::Channel(_, tensor) | Link::Residual(tensor, _) | Link::Tokens(tensor) => {
                Some(tensor)
            }
            Link::Eltwise(_) | Link::Rounded(_) => None,
        }
    }
}

/// How the result is stored where it is not as sums are: float32 of 8 bits, and floats as they are.
#[derive(Debug, Clone, Copy)]
pub enum End {
    /// As integers of 8 bits.
    Quantized(Scheme),
    /// As other floats.
    Cast(DType),
}

/// What may be done with the scope's product of floats, the most first, nothing last.
pub fn epilogues(scope: &Scope, channels: Channels) -> Vec<Epilogue> {
    let axis = channels.of(scope.output_type(0).rank());
    behind(scope, scope.layer().outputs[0], axis, &|id| is_link(scope.network, id))
}

/// The same for sums of products of 8 bits that a tensor is. A residual is read in 8 bits.
pub fn epilogues_of_8_bits(scope: &Scope, sums: TensorId, channels: Channels) -> Vec<Epilogue> {
    let network = scope.network;
    let takes = |id: LayerId| match network[id].op.name {
        "QuantizeLinear" | "DequantizeLinear" | "Cast" => true,
        _ => is_link(network, id),
    };
    let residual = |id: LayerId, read: &Dequantized| {
        let whole = network[read.tensor].ty.shape == network[sums].ty.shape;
        whole && read.scheme.is_int() && network[id].op.name == "Add"
    };
    behind_8_bits(scope, sums, channels.of(network[sums].ty.rank()), &takes, residual)
}

/// ONNX Runtime's QLinearAdd: two tensors of 8 bits are dequantized, added, and quantized.
#[derive(Debug, Clone, Copy)]
pub struct QLinearAdd {
    /// Of the product.
    pub product: Scheme,
    /// Of the residual.
    pub residual: Scheme,
    /// Whether what is below zero becomes zero.
    pub relu: bool,
    /// Of the result.
    pub result: Scheme,
}

/// A constant, and the Dequantize layer that makes it.
pub type Bias = (Array, Option<LayerId>);

/// What a primitive does behind its own work.
#[derive(Clone)]
pub struct Chain {
    links: Vec<Link>,
    channels: Channels,
    of_8_bits: bool,
    end: Option<End>,
    /// A constant that is added first: the bias of a layer that has none.
    pub bias: Option<Bias>,
    /// Sums are counted in this: the scale of the result, or of what they are rounded to first, where nothing on the way
    /// depends on the unit.
    pub unit: f32,
}

impl Chain {
    /// An epilogue behind a product of floats, which has a bias already or not.
    pub fn new(network: &Network, epilogue: &Epilogue, channels: Channels, biased: bool) -> Option<Self> {
        let mut found = Found::of(network, epilogue, false)?;
        let constant = |tensor: TensorId| Some((network[tensor].constant()?.clone(), None));
        let bias = (!biased).then(|| found.bias(constant)).flatten();
        Some(Self::from(found, channels, bias))
    }

    /// An epilogue behind sums of products of 8 bits, each row of which is first multiplied with a scale of its own.
    pub fn of_tokens(network: &Network, epilogue: &Epilogue, channels: Channels, scales: TensorId) -> Option<Self> {
        let mut found = Found::of(network, epilogue, true)?;
        found.links.insert(0, Link::Tokens(scales));
        Some(Self::from(found, channels, None))
    }

    /// An epilogue behind sums of products of 8 bits.
    pub fn of_8_bits(network: &Network, epilogue: &Epilogue, channels: Channels, biased: bool) -> Option<Self> {
        let mut found = Found::of(network, epilogue, true)?;
        let bias = (!biased)
            .then(|| found.bias(|tensor| quantized::constant(network, tensor)))
            .flatten();
        Some(Self::from(found, channels, bias))
    }

    fn from(found: Found, channels: Channels, bias: Option<Bias>) -> Self {
        let Found {
            links, end, of_8_bits, ..
        } = found;
        let scales = |link: &Link| {
            matches!(
                link,
                Link::Eltwise(Eltwise::Relu { .. }) | Link::Residual(..) | Link::Rounded(_) | Link::Tokens(_)
            )
        };
        let unit = match end {
            Some(End::Quantized(result)) if links.iter().all(scales) => match links.first() {
                // One multiplication less than in steps of the result: sums are rounded as they are.
                Some(Link::Rounded(first)) => first.scale,
                _ => result.scale,
            },
            _ => 1.0,
        };
        Self {
            links,
            channels,
            of_8_bits,
            end,
            bias,
            unit,
        }
    }

    /// A chain that quantizes the product, adds a residual of 8 bits and quantizes the sum, in two parts: as far as the
    /// quantized product, and the addition.
    pub fn split_before_add(&self) -> Option<(Self, QLinearAdd)> {
        let Some(End::Quantized(result)) = self.end else {
            return None;
        };
        let (product, residual, relu) = match self.links[..] {
            [Link::Rounded(product), Link::Residual(_, residual)] => (product, residual, false),
            [
                Link::Rounded(product),
                Link::Residual(_, residual),
                Link::Eltwise(Eltwise::Relu { slope: 0.0 }),
            ] => (product, residual, true),
            _ => return None,
        };
        let add = QLinearAdd {
            product,
            residual,
            relu,
            result,
        };
        let front = Self {
            links: vec![],
            end: Some(End::Quantized(product)),
            ..self.clone()
        };
        Some((front, add))
    }

    /// The links.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Whether the result has another dtype than the sums.
    pub fn has_end(&self) -> bool {
        self.end.is_some()
    }

    /// The tensors that the links read, in order.
    pub fn operands(&self) -> Vec<TensorId> {
        self.links.iter().filter_map(Link::operand).collect()
    }

    /// The layout of each operand when the result lies in `layout`.
    pub fn layouts(&self, layout: Layout) -> Vec<Layout> {
        let operand = |link: &Link| match link {
            Link::Full(..) | Link::Residual(..) => Some(layout),
            Link::Channel(..) | Link::Tokens(_) => Some(Layout::Plain),
            Link::Eltwise(_) | Link::Rounded(_) => None,
        };
        self.links.iter().filter_map(operand).collect()
    }

    /// The input, the operands starting with number `first`, in whose memory the output may lie: the result is added to
    /// what stands there. Only where that comes first; elsewhere oneDNN has its reference alone.
    pub fn in_place(&self, first: usize) -> Vec<(usize, usize)> {
        match (self.links.first(), self.end) {
            (Some(Link::Full(Binary::Add, _)), None) if !self.of_8_bits => vec![(first, 0)],
            (Some(Link::Residual(..)), Some(End::Quantized(_))) => vec![(first, 0)],
            _ => vec![],
        }
    }

    /// The arguments that the post-ops read, for operands in this order that start at input number `first`.
    pub fn arguments(first: usize, operands: &[Operand]) -> impl Iterator<Item = Argument> {
        let read = operands.iter().enumerate().filter(|(_, operand)| !operand.in_place);
        read.map(move |(at, _)| Argument::Input(first + at))
    }

    /// All of it but the tensors, for the timing cache: the numbers of schemes change no speed.
    pub fn identity(&self) -> String {
        let describe = |link: &Link| match link {
            Link::Eltwise(e) => format!(" {e:?}"),
            Link::Full(b, _) => format!(" {b:?} full"),
            Link::Channel(b, _) => format!(" {b:?} channel"),
            Link::Residual(..) => " residual".into(),
            Link::Rounded(_) => " rounded".into(),
            Link::Tokens(_) => " per token".into(),
        };
        let end = self.end.map(|end| match end {
            End::Quantized(scheme) => format!(" to {} {}", scheme.dtype, scheme.zero % 2),
            End::Cast(dtype) => format!(" to {dtype}"),
        });
        self.links.iter().map(describe).chain(end).collect()
    }
}
