//! The layers behind a convolution or matrix product that it can do to its result before it stores it.

use super::pointwise::{Unary, scalar, unary};
use super::primitive::Argument;
use super::scope::Scope;
use crate::error::Result;
use crate::network::dim::Dim;
use crate::network::dtype::{DType, has_exact_inverse};
use crate::network::{LayerId, Network, TensorId};
use crate::plan::layout::{Layout, Operand};
use crate::providers::cpu::handle::{Binary, Desc, Eltwise, PostOp};

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

/// A fused operation on the result.
#[derive(Debug, Clone)]
pub enum LinkOp {
    /// A function of one number.
    Eltwise(Eltwise),
    /// Combined with a tensor of the result's shape.
    Full(Binary, TensorId),
    /// Combined with one number per channel.
    Channel(Binary, TensorId),
}

/// A fused operation, with the layers that it stands for and the tensor that it gives.
#[derive(Debug, Clone)]
pub struct Link {
    /// The operation.
    pub op: LinkOp,
    /// The layers.
    pub layers: Vec<LayerId>,
    /// The tensor.
    pub output: TensorId,
}

/// More links than this never paid.
const LONGEST: usize = 8;

/// The links that can follow the scope's layer.
pub fn follow(scope: &Scope, channels: Channels) -> Vec<Link> {
    let axis = channels.of(scope.output_type(0).rank());
    let network = scope.network;
    let mut links: Vec<Link> = vec![];
    let mut tensor = scope.layer().outputs[0];
    while links.len() < LONGEST {
        let Some(link) = next(network, tensor, axis) else { break };
        tensor = link.output;
        links.push(link);
    }
    links
}

/// The link that follows a tensor, whose channels lie along an axis.
pub fn next(network: &Network, tensor: TensorId, axis: usize) -> Option<Link> {
    let Some(user) = network.sole_user(tensor) else {
        return gated(network, tensor);
    };
    let layer = &network[user];
    let output = layer.outputs[0];
    let (from, to) = (&network[tensor].ty, &network[output].ty);
    if from.dtype != to.dtype || from.shape != to.shape {
        return None;
    }
    let op = if layer.inputs.first() == Some(&Some(tensor))
        && let Some(eltwise) = unary(network, layer).and_then(eltwise)
    {
        LinkOp::Eltwise(eltwise)
    } else {
        two_sided(network, user, tensor, axis)?
    };
    Some(Link {
        op,
        layers: vec![user],
        output,
    })
}

/// `x * f(x)`, where f is a Sigmoid, perhaps of a multiple of x, or a HardSigmoid.
fn gated(network: &Network, tensor: TensorId) -> Option<Link> {
    let &[a, b] = network[tensor].users.as_slice() else {
        return None;
    };
    if network.is_output(tensor) || a == b {
        return None;
    }
    [(a, b), (b, a)]
        .into_iter()
        .find_map(|(gate, product)| gated_by(network, tensor, gate, product))
}

fn gated_by(network: &Network, tensor: TensorId, first: LayerId, product: LayerId) -> Option<Link> {
    let (mut layers, mut alpha) = (vec![first], 1.0);
    if network[first].op.name == "Mul" {
        alpha = [0, 1].iter().find_map(|&i| scalar(network, &network[first], i))? as f32;
        layers.push(network.sole_user(network[first].outputs[0])?);
    }
    let gate = *layers.last()?;
    let eltwise = match unary(network, &network[gate])? {
        Unary::Sigmoid => Eltwise::Swish { alpha },
        Unary::HardSigmoid(alpha, beta) if layers.len() == 1 => Eltwise::HardSwish { alpha, beta },
        _ => return None,
    };
    let gated = network[gate].outputs[0];
    let inputs = &network[product].inputs;
    let both = inputs.contains(&Some(tensor)) && inputs.contains(&Some(gated));
    let (from, to) = (&network[tensor].ty, &network[network[product].outputs[0]].ty);
    let fits = network[product].op.name == "Mul" && both && network.sole_user(gated) == Some(product);
    layers.push(product);
    (fits && from.shape == to.shape).then(|| Link {
        op: LinkOp::Eltwise(eltwise),
        layers,
        output: network[product].outputs[0],
    })
}

fn two_sided(network: &Network, user: LayerId, tensor: TensorId, axis: usize) -> Option<LinkOp> {
    let layer = &network[user];
    let &[Some(a), Some(b)] = layer.inputs.as_slice() else {
        return None;
    };
    let (first, other) = (a == tensor, if a == tensor { b } else { a });
    let constant = scalar(network, layer, first as usize).map(|s| s as f32);
    if let Some(s) = constant {
        return linear(layer.op.name, first, s).map(LinkOp::Eltwise);
    }
    let binary = match layer.op.name {
        "Add" => Binary::Add,
        "Mul" => Binary::Mul,
        "Sub" if first => Binary::Sub,
        "Div" if first => Binary::Div,
        _ => return None,
    };
    let (ty, result) = (&network[other].ty, &network[tensor].ty);
    if ty.dtype != result.dtype {
        return None;
    }
    if ty.shape == result.shape {
        return Some(LinkOp::Full(binary, other));
    }
    is_per_channel(&ty.shape, &result.shape, axis).then_some(LinkOp::Channel(binary, other))
}

fn linear(op: &str, first: bool, s: f32) -> Option<Eltwise> {
    let linear = |scale: f32, shift: f32| Eltwise::Linear { scale, shift };
    Some(match (op, first) {
        ("Add", _) => linear(1.0, s),
        ("Sub", true) => linear(1.0, -s),
        ("Sub", false) => linear(-1.0, s),
        // Of a product that is -0, the sum with 0 would be 0.
        ("Mul", _) => linear(s, -0.0),
        // Of other numbers the inverse is rounded, too.
        ("Div", true) if has_exact_inverse(f64::from(s), DType::Float32) => linear(1.0 / s, -0.0),
        ("Max", _) if !s.is_nan() => Eltwise::Clip {
            low: s,
            high: f32::INFINITY,
        },
        ("Min", _) if !s.is_nan() => Eltwise::Clip {
            low: f32::NEG_INFINITY,
            high: s,
        },
        _ => return None,
    })
}

/// Whether a shape has the result's extent on `axis` and 1 elsewhere.
fn is_per_channel(shape: &[Dim], result: &[Dim], axis: usize) -> bool {
    let Some(lead) = result.len().checked_sub(shape.len()) else {
        return false;
    };
    (0..shape.len()).all(|a| {
        if a + lead == axis {
            shape[a] == result[axis]
        } else {
            shape[a].is(1)
        }
    }) && axis >= lead
}

/// oneDNN's name for a function of one number. Not softplus: behind a product of oneDNN 3.2 it is off by 2e-6 where it is next to nothing, and
/// below zero, so that a logarithm of it is NaN.
fn eltwise(function: Unary) -> Option<Eltwise> {
    Some(match function {
        Unary::Relu => Eltwise::Relu { slope: 0.0 },
        Unary::LeakyRelu(slope) => Eltwise::Relu { slope },
        Unary::Clip(low, high) if low <= high => Eltwise::Clip { low, high },
        Unary::Silu => Eltwise::Swish { alpha: 1.0 },
        Unary::HardSwish => Eltwise::HardSwish {
            alpha: 1.0 / 6.0,
            beta: 0.5,
        },
        Unary::HardSigmoid(alpha, beta) => Eltwise::HardSigmoid { alpha, beta },
        Unary::Sigmoid => Eltwise::Sigmoid,
        Unary::Tanh => Eltwise::Tanh,
        Unary::Gelu => Eltwise::GeluErf,
        Unary::GeluTanh => Eltwise::GeluTanh,
        Unary::Mish => Eltwise::Mish,
        Unary::Abs => Eltwise::Abs,
        Unary::Square => Eltwise::Square,
        Unary::Sqrt => Eltwise::Sqrt,
        Unary::Elu {
            alpha,
            gamma: 1.0,
            inner: 1.0,
        } => Eltwise::Elu { alpha },
        _ => return None,
    })
}

/// The post-ops of a chain at concrete shapes.
#[derive(Clone)]
pub struct Chain {
    links: Vec<Link>,
    channels: Channels,
}

impl Chain {
    /// A chain of these links.
    pub fn new(links: &[Link], channels: Channels) -> Self {
        Self {
            links: links.to_vec(),
            channels,
        }
    }

    /// The links.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The tensors that the links read, in order.
    pub fn operands(&self) -> Vec<TensorId> {
        let operand = |link: &Link| match link.op {
            LinkOp::Full(_, tensor) | LinkOp::Channel(_, tensor) => Some(tensor),
            LinkOp::Eltwise(_) => None,
        };
        self.links.iter().filter_map(operand).collect()
    }

    /// The layout of each operand when the result lies in `layout`.
    pub fn layouts(&self, layout: Layout) -> Vec<Layout> {
        let operand = |link: &Link| match link.op {
            LinkOp::Full(..) => Some(layout),
            LinkOp::Channel(..) => Some(Layout::Plain),
            LinkOp::Eltwise(_) => None,
        };
        self.links.iter().filter_map(operand).collect()
    }

    /// The input, the operands starting with number `first`, in whose memory the output may lie: the result is added to
    /// what stands there. Only where that comes first; elsewhere oneDNN has its reference alone.
    pub fn in_place(&self, first: usize) -> Vec<(usize, usize)> {
        match self.links.first().map(|link| &link.op) {
            Some(LinkOp::Full(Binary::Add, _)) => vec![(first, 0)],
            _ => vec![],
        }
    }

    /// The arguments that the post-ops read, for operands in this order that start at input number `first`.
    pub fn arguments(first: usize, operands: &[Operand]) -> impl Iterator<Item = Argument> {
        let read = operands.iter().enumerate().filter(|(_, operand)| !operand.in_place);
        read.map(move |(at, _)| Argument::Input(first + at))
    }

    /// All of it but the tensors, for the timing cache.
    pub fn identity(&self) -> String {
        let describe = |link: &Link| match &link.op {
            LinkOp::Eltwise(e) => format!(" {e:?}"),
            LinkOp::Full(b, _) => format!(" {b:?} full"),
            LinkOp::Channel(b, _) => format!(" {b:?} channel"),
        };
        self.links.iter().map(describe).collect()
    }

    /// The post-ops, for a result of this shape with operands in this order.
    ///
    /// # Errors
    /// If oneDNN has no such element type.
    pub fn post_ops(&self, result: &[usize], operands: &[Operand]) -> Result<Vec<PostOp>> {
        let mut operands = operands.iter();
        let mut next = || operands.next();
        let mut post = vec![];
        for link in &self.links {
            post.push(match &link.op {
                LinkOp::Eltwise(e) => PostOp::Eltwise(*e),
                LinkOp::Full(binary, _) => {
                    let operand = next().unwrap_or(&NONE);
                    if operand.in_place {
                        post.push(PostOp::Sum);
                        continue;
                    }
                    // A result that is seen under another shape (batches as rows) has operands seen so too.
                    let shape = result.to_vec();
                    PostOp::Binary(
                        *binary,
                        Desc::of(&Operand {
                            shape,
                            ..operand.clone()
                        })?,
                    )
                }
                LinkOp::Channel(binary, _) => {
                    let mut shape = vec![1; result.len()];
                    let axis = self.channels.of(result.len());
                    shape[axis] = result[axis];
                    let dtype = next().unwrap_or(&NONE).dtype;
                    PostOp::Binary(*binary, Desc::plain(dtype, &shape)?)
                }
            });
        }
        Ok(post)
    }
}

/// Stands in for an operand that the planner did not give; it always gives all.
static NONE: Operand = Operand {
    dtype: DType::Float32,
    shape: vec![],
    layout: Layout::Plain,
    parent_channels: None,
    in_place: false,
};

/// A constant that the first link adds per channel: the bias of a layer that has none.
pub fn bias(network: &Network, links: &[Link]) -> Option<crate::network::array::Array> {
    match links.first()?.op {
        LinkOp::Channel(Binary::Add, tensor) => network[tensor].constant().cloned(),
        _ => None,
    }
}

/// For names: `+Relu+Add`.
pub fn name(network: &Network, links: &[Link]) -> String {
    let layers = links.iter().flat_map(|link| &link.layers);
    layers.map(|&l| format!("+{}", network[l].op.name)).collect()
}

/// A layer and those of the links behind it.
pub fn layers(first: LayerId, links: &[Link]) -> Vec<LayerId> {
    let behind = links.iter().flat_map(|link| link.layers.iter().copied());
    std::iter::once(first).chain(behind).collect()
}
