//! The layers behind a product of 8 bits that it does to its sums before it stores them.

use crate::error::Result;
use crate::network::array::Array;
use crate::network::dtype::DType;
use crate::network::quantization::Scheme;
use crate::network::{LayerId, Network, TensorId};
use crate::plan::layout::{Layout, Operand};
use crate::providers::common::quantized::{self, Dequantized, constant};
use crate::providers::cpu::handle::{Binary, Desc, Eltwise, Matmul, Options, PostOp};
use crate::providers::cpu::kernels::chain::{self, Channels, LinkOp};
use crate::providers::cpu::kernels::scope::Scope;
use std::sync::OnceLock;

/// One operation on the sums.
#[derive(Debug, Clone)]
pub enum Stage {
    /// A function of one number.
    Eltwise(Eltwise),
    /// Combined with float32 numbers, one for each element.
    Full(Binary, TensorId),
    /// Combined with float32 numbers, one for each channel.
    Channel(Binary, TensorId),
    /// What a tensor of 8 bits stands for is added.
    Residual(TensorId, Scheme),
    /// Quantized and dequantized again: rounded to what the scheme has.
    Rounded(Scheme),
    /// A constant for each channel is added, which is the bias.
    Bias(Array),
}

/// A stage with the layers that it stands for and the tensor that it gives.
#[derive(Debug, Clone)]
pub struct Link {
    /// The operation.
    pub stage: Stage,
    /// The layers.
    pub layers: Vec<LayerId>,
    /// The tensor.
    pub output: TensorId,
}

/// How the result is stored where it is not float32.
#[derive(Debug, Clone, Copy)]
pub enum End {
    /// As integers of 8 bits.
    Quantized(Scheme),
    /// As floats of 16 bits.
    Cast(DType),
}

impl End {
    /// The layer that alone reads a tensor, if it is an end.
    pub fn behind(network: &Network, tensor: TensorId) -> Option<(LayerId, Self)> {
        if let Some((id, scheme)) = quantized::end(network, tensor) {
            return Some((id, Self::Quantized(scheme)));
        }
        let id = network.sole_user(tensor)?;
        let layer = &network[id];
        let to = network[layer.outputs[0]].ty.dtype;
        let stored = layer.op.name == "Cast" && matches!(to, DType::Float16 | DType::BFloat16);
        (stored && stores(to)).then_some((id, Self::Cast(to)))
    }
}

/// Whether oneDNN stores sums of integers in a dtype on this processor: it is asked once, for a small product.
fn stores(dtype: DType) -> bool {
    static HALF: OnceLock<bool> = OnceLock::new();
    static BRAIN: OnceLock<bool> = OnceLock::new();
    let small = || {
        let matrix = |dtype| Desc::plain(dtype, &[64, 64]);
        let spec = Matmul {
            a: matrix(DType::UInt8)?,
            b: matrix(DType::Int8)?,
            bias: None,
            dst: matrix(dtype)?,
            pack_b: true,
        };
        spec.create(None, &Options::threads(1))
    };
    let asked = if dtype == DType::Float16 { &HALF } else { &BRAIN };
    *asked.get_or_init(|| small().is_ok_and(|made| made.implementation().contains("brg")))
}

/// More than this never paid.
const LONGEST: usize = 8;

/// The links that can follow the scope's layer, which has a bias already or not.
pub fn follow(scope: &Scope, channels: Channels, biased: bool) -> Vec<Link> {
    follow_from(scope.network, scope.layer().outputs[0], channels, biased)
}

/// As [`follow`], behind a tensor.
pub fn follow_from(network: &Network, mut tensor: TensorId, channels: Channels, biased: bool) -> Vec<Link> {
    let rank = network[tensor].ty.rank();
    let mut links: Vec<Link> = vec![];
    while links.len() < LONGEST {
        let first = links.is_empty() && !biased;
        let Some(link) = rounded(network, tensor).or_else(|| next(network, tensor, channels, rank, first)) else {
            break;
        };
        tensor = link.output;
        links.push(link);
    }
    links
}

/// Quantize -> Dequantize by the same numbers.
fn rounded(network: &Network, tensor: TensorId) -> Option<Link> {
    let (quantize, scheme) = quantized::end(network, tensor)?;
    let dequantize = network.sole_user(network[quantize].outputs[0])?;
    let layer = &network[dequantize];
    let same = layer.op.name == "DequantizeLinear" && Scheme::of(network, layer) == Some(scheme);
    (same && !quantized::is_added_to_product(network, dequantize)).then(|| Link {
        stage: Stage::Rounded(scheme),
        layers: vec![quantize, dequantize],
        output: layer.outputs[0],
    })
}

fn next(network: &Network, tensor: TensorId, channels: Channels, rank: usize, first: bool) -> Option<Link> {
    let found = chain::next(network, tensor, channels.of(rank))?;
    let mut layers = found.layers;
    let stage = match found.op {
        LinkOp::Eltwise(eltwise) => Stage::Eltwise(eltwise),
        LinkOp::Channel(Binary::Add, operand) if first && constant(network, operand).is_some() => {
            let (array, layer) = constant(network, operand)?;
            layers.extend(layer);
            Stage::Bias(array)
        }
        LinkOp::Channel(binary, operand) => Stage::Channel(binary, operand),
        LinkOp::Full(Binary::Add, operand) => match Dequantized::integers(network, operand) {
            Some(residual) => {
                layers.push(residual.layer);
                Stage::Residual(residual.tensor, residual.scheme)
            }
            None => Stage::Full(Binary::Add, operand),
        },
        LinkOp::Full(binary, operand) => Stage::Full(binary, operand),
    };
    Some(Link {
        stage,
        layers,
        output: found.output,
    })
}

/// The bias that the first of some links is.
pub fn bias(links: &[Link]) -> Option<&Array> {
    match &links.first()?.stage {
        Stage::Bias(array) => Some(array),
        _ => None,
    }
}

/// Stages, and how the result is stored.
#[derive(Clone)]
pub struct Stages {
    stages: Vec<Stage>,
    channels: Channels,
    end: Option<End>,
    /// The sums are counted in this: the scale of the result where nothing on the way depends on the unit.
    pub unit: f32,
}

impl Stages {
    /// Stages in order.
    pub fn new(links: &[Link], channels: Channels, end: Option<End>) -> Self {
        let stages = links.iter().map(|link| link.stage.clone());
        let stages: Vec<Stage> = stages.filter(|stage| !matches!(stage, Stage::Bias(_))).collect();
        let scales = |stage: &Stage| {
            matches!(
                stage,
                Stage::Eltwise(Eltwise::Relu { .. }) | Stage::Residual(..) | Stage::Rounded(_)
            )
        };
        let unit = match end {
            Some(End::Quantized(scheme)) if stages.iter().all(scales) => scheme.scale,
            _ => 1.0,
        };
        Self {
            stages,
            channels,
            end,
            unit,
        }
    }

    /// The tensors that the stages read, in order.
    pub fn operands(&self) -> Vec<TensorId> {
        let operand = |stage: &Stage| match stage {
            Stage::Full(_, tensor) | Stage::Channel(_, tensor) | Stage::Residual(tensor, _) => Some(*tensor),
            Stage::Eltwise(_) | Stage::Rounded(_) | Stage::Bias(_) => None,
        };
        self.stages.iter().filter_map(operand).collect()
    }

    /// The layout of each operand when the result lies in `layout`.
    pub fn layouts(&self, layout: Layout) -> Vec<Layout> {
        let operand = |stage: &Stage| match stage {
            Stage::Full(..) | Stage::Residual(..) => Some(layout),
            Stage::Channel(..) => Some(Layout::Plain),
            Stage::Eltwise(_) | Stage::Rounded(_) | Stage::Bias(_) => None,
        };
        self.stages.iter().filter_map(operand).collect()
    }

    /// The input, the operands starting with number `first`, in whose memory the result may lie.
    pub fn in_place(&self, first: usize) -> Vec<(usize, usize)> {
        match (self.stages.first(), self.end) {
            (Some(Stage::Residual(..)), Some(End::Quantized(_))) => vec![(first, 0)],
            _ => vec![],
        }
    }

    /// All of it but the tensors, for the timing cache: the numbers of schemes change no speed.
    pub fn identity(&self) -> String {
        let describe = |stage: &Stage| match stage {
            Stage::Eltwise(e) => format!(" {e:?}"),
            Stage::Full(b, _) => format!(" {b:?} full"),
            Stage::Channel(b, _) => format!(" {b:?} channel"),
            Stage::Residual(..) => " residual".into(),
            Stage::Rounded(_) => " rounded".into(),
            Stage::Bias(_) => " bias".into(),
        };
        let end = self.end.map(|end| match end {
            End::Quantized(scheme) => format!(" to {} {}", scheme.dtype, scheme.zero % 2),
            End::Cast(dtype) => format!(" to {dtype}"),
        });
        self.stages.iter().map(describe).chain(end).collect()
    }

    /// The post-ops, for a result of this shape with operands in this order.
    ///
    /// # Errors
    /// If oneDNN has no such element type.
    pub fn post_ops(&self, result: &[usize], operands: &[Operand]) -> Result<Vec<PostOp>> {
        let mut post = Post { ops: vec![] };
        let mut operands = operands.iter();
        let mut operand = || {
            operands
                .next()
                .cloned()
                .unwrap_or_else(|| Operand::dense(DType::Float32, vec![], Layout::Plain))
        };
        // A result that is seen under another shape (batches as rows) has operands seen so too.
        let seen = |operand: Operand| {
            Desc::of(&Operand {
                shape: result.to_vec(),
                ..operand
            })
        };
        for stage in &self.stages {
            match stage {
                Stage::Eltwise(e) => post.eltwise(*e),
                Stage::Full(binary, _) => post.ops.push(PostOp::Binary(*binary, seen(operand())?)),
                Stage::Channel(binary, _) => {
                    let mut shape = vec![1; result.len()];
                    let axis = self.channels.of(result.len());
                    shape[axis] = result[axis];
                    post.ops
                        .push(PostOp::Binary(*binary, Desc::plain(operand().dtype, &shape)?));
                }
                Stage::Residual(_, scheme) => {
                    let (operand, scale) = (operand(), scheme.scale / self.unit);
                    if operand.in_place {
                        post.ops.push(PostOp::Dequantized {
                            scale,
                            zero: scheme.zero,
                            dtype: scheme.dtype,
                        });
                        continue;
                    }
                    post.linear(1.0 / scale, -scheme.zero as f32);
                    post.ops.push(PostOp::Binary(Binary::Add, seen(operand)?));
                    post.linear(scale, 0.0);
                }
                Stage::Rounded(scheme) => {
                    let scale = scheme.scale / self.unit;
                    let (low, high) = scheme.ends();
                    post.linear(1.0 / scale, 0.0);
                    post.ops.push(PostOp::Eltwise(Eltwise::Round));
                    post.eltwise(Eltwise::Clip { low, high });
                    post.linear(scale, 0.0);
                }
                Stage::Bias(_) => {}
            }
        }
        if let Some(End::Quantized(scheme)) = self.end {
            post.finish(scheme, self.unit);
        }
        Ok(post.ops)
    }
}

/// Post-ops in the making.
struct Post {
    ops: Vec<PostOp>,
}

impl Post {
    fn eltwise(&mut self, eltwise: Eltwise) {
        match eltwise {
            Eltwise::Linear { scale, shift } => self.linear(scale, shift),
            other => self.ops.push(PostOp::Eltwise(other)),
        }
    }

    /// `scale * x + shift`, together with such a function before it.
    fn linear(&mut self, scale: f32, shift: f32) {
        let last = match self.ops.last() {
            Some(&PostOp::Eltwise(Eltwise::Linear { scale, shift })) => Some((scale, shift)),
            _ => None,
        };
        let (mut scale, mut shift) = (scale, shift);
        if let Some((inner, by)) = last {
            self.ops.pop();
            (scale, shift) = (scale * inner, scale * by + shift);
        }
        if (scale, shift) != (1.0, 0.0) {
            self.ops.push(PostOp::Eltwise(Eltwise::Linear { scale, shift }));
        }
    }

    /// What is left to do before oneDNN rounds, halves to even, and saturates.
    fn finish(&mut self, scheme: Scheme, unit: f32) {
        self.linear(unit / scheme.scale, 0.0);
        // Halves go to the even quotient, which an odd zero point makes an odd number.
        if scheme.zero % 2 != 0 {
            self.ops.push(PostOp::Eltwise(Eltwise::Round));
        }
        self.linear(1.0, scheme.zero as f32);
        // Below zero nothing is left of it anyway.
        if let (0, [.., PostOp::Eltwise(Eltwise::Relu { slope: 0.0 })]) = (scheme.ends().0 as i32, self.ops.as_slice())
        {
            self.ops.pop();
        }
    }
}
