//! What convolutions and matrix products of 8 bits share: the operands, the weights, and how they become a candidate.

use super::stages::{self, End, Link, Stages};
use crate::error::Result;
use crate::network::array::Array;
use crate::network::dtype::DType;
use crate::network::{LayerId, Network, TensorId};
use crate::plan::layout::{self, Layout};
use crate::plan::{Candidate, Form, Kernel, Prepared, Request};
use crate::providers::common::quantized::{Dequantized, Weights as Stored, constant};
use crate::providers::cpu::handle::{Options, Primitive, Quantization};
use crate::providers::cpu::kernels::chain::Channels;
use crate::providers::cpu::kernels::primitive::{self, Argument, PrimitiveLauncher, Source, Weights};
use crate::providers::cpu::kernels::scope::Scope;
use std::sync::Arc;

/// The right operand.
pub enum Right {
    /// Constant weights.
    Constant(Stored),
    /// A tensor of the network, as int8 without a zero point.
    Given(Dequantized),
}

/// A product of tensors of 8 bits, before it is said what behind it belongs to it.
pub struct Found {
    /// The left operand.
    pub left: Dequantized,
    /// The right one.
    pub right: Right,
    /// The bias of the layer, and what dequantizes it.
    pub bias: Option<(Array, Option<LayerId>)>,
}

impl Found {
    /// The operands of the scope's layer, where both have 8 bits; `axis` of the weights counts the channels of the result.
    pub fn of(scope: &Scope, axis: usize) -> Option<Self> {
        let network = scope.network;
        let left = Dequantized::integers(network, scope.input(0)?)?;
        let right = match Stored::of(network, scope.input(1)?, axis, left.scheme) {
            Some(weights) => Right::Constant(weights),
            None => Right::Given(Dequantized::integers(network, scope.input(1)?).filter(|right| {
                let scheme = right.scheme;
                scheme.dtype == DType::Int8 && scheme.zero == 0
            })?),
        };
        let bias = match scope.input(2) {
            Some(bias) => Some(constant(network, bias)?),
            None => None,
        };
        Some(Self { left, right, bias })
    }

    /// The layers in front of the product that the kernel runs.
    fn layers(&self) -> Vec<LayerId> {
        let right = match &self.right {
            Right::Constant(weights) => weights.layer,
            Right::Given(right) => right.layer,
        };
        let bias = self.bias.as_ref().and_then(|(_, layer)| *layer);
        [self.left.layer, right].into_iter().chain(bias).collect()
    }
}

/// The part of a kernel that does not depend on how its operands meet.
pub struct Product {
    /// For reports.
    pub name: String,
    /// The weights.
    pub weights: Source,
    /// Which scales and zero points the primitive takes.
    pub quantization: Quantization,
    /// What is done to the sums.
    pub stages: Stages,
    /// Bias, scales and zero points, as the primitive takes them.
    pub operands: Vec<Operand>,
    /// Whether the first of them is a bias.
    pub has_bias: bool,
    /// The first of the kernel's inputs that a stage reads.
    pub first: usize,
}

/// A bias, scales, or a zero point.
pub enum Operand {
    /// Known at build time.
    Kept(Array),
    /// An input of the kernel.
    Input(usize),
    /// An input of one integer of 8 bits, of which the primitive wants 32.
    Widened(usize, DType),
}

impl Product {
    /// Candidates for every number of links, with and without a Quantize layer or a Cast behind them, the longest first. `scales`
    /// says over which axes of the primitive's weights scales lie, and how often they are repeated.
    pub fn candidates<K: Kernel + 'static>(
        scope: &Scope,
        found: &Found,
        channels: Channels,
        scales: (u16, usize),
        make: impl Fn(Product) -> K,
    ) -> Vec<Candidate> {
        let network = scope.network;
        let links = stages::follow(scope, channels, found.bias.is_some());
        let mut candidates = vec![];
        for count in (0..=links.len()).rev() {
            let links = &links[..count];
            // Who reads what is dequantized there had better read 8 bits.
            if links
                .last()
                .is_some_and(|link| matches!(link.stage, stages::Stage::Rounded(_)))
            {
                continue;
            }
            let last = links.last().map_or(scope.layer().outputs[0], |link| link.output);
            for end in [End::behind(network, last), None] {
                let Some((product, inputs)) = Self::new(scope, found, links, channels, end, scales) else {
                    continue;
                };
                let mut layers = found.layers();
                layers.push(scope.layer);
                layers.extend(links.iter().flat_map(|link| link.layers.iter().copied()));
                layers.extend(end.map(|(id, _)| id));
                candidates.push(Candidate {
                    kernel: Arc::new(make(product)),
                    layers,
                    inputs,
                    outputs: vec![end.map_or(last, |(id, _)| network[id].outputs[0])],
                });
                if end.is_none() {
                    break;
                }
            }
        }
        candidates
    }

    fn new(
        scope: &Scope,
        found: &Found,
        links: &[Link],
        channels: Channels,
        end: Option<(LayerId, End)>,
        (mask, repeats): (u16, usize),
    ) -> Option<(Self, Vec<TensorId>)> {
        let stages = Stages::new(links, channels, end.map(|(_, end)| end));
        let mut inputs = vec![found.left.tensor];
        let (weights, scales) = match &found.right {
            Right::Constant(stored) => (
                Source::Constant(Weights::new(stored.array.clone())),
                stored.scales.clone(),
            ),
            Right::Given(right) => {
                inputs.push(right.tensor);
                (Source::Input(1), vec![right.scheme.scale])
            }
        };
        let left = found.left.scheme;
        let factor = f64::from(left.scale) / f64::from(stages.unit);
        let one = scales.len() == 1;
        let scales: Vec<f64> = scales.iter().map(|&s| f64::from(s) * factor).collect();
        let scales = if one { scales } else { scales.repeat(repeats) };
        let bias = bias(found, links);
        let mut operands = vec![];
        if let Some(bias) = &bias {
            let values: Vec<f64> = bias.to_f64().iter().map(|b| b / f64::from(stages.unit)).collect();
            operands.push(Operand::Kept(
                Array::from_f64(DType::Float32, vec![values.len()], &values).ok()?,
            ));
        }
        operands.push(Operand::Kept(
            Array::from_f64(DType::Float32, vec![scales.len()], &scales).ok()?,
        ));
        let src_zero = left.zero != 0;
        if src_zero {
            operands.push(Operand::Kept(
                Array::from_i64(DType::Int32, vec![1], &[i64::from(left.zero)]).ok()?,
            ));
        }
        let first = inputs.len();
        inputs.extend(stages.operands());
        let product = Self {
            name: name(
                scope.network,
                scope.layer,
                &found.layers(),
                links,
                end.map(|(id, _)| id),
            ),
            weights,
            quantization: Quantization {
                weight_scales: Some(if one { 0 } else { mask }),
                src_zero,
                ..Quantization::default()
            },
            stages,
            operands,
            has_bias: bias.is_some(),
            first,
        };
        Some((product, inputs))
    }

    /// What the speed depends on, for the timing cache.
    pub fn identity(&self) -> String {
        let weights = match &self.weights {
            Source::Constant(weights) => format!("{:?}", weights.source().shape()),
            Source::Input(_) => "given".into(),
        };
        format!(
            "{weights} {:?} bias {}{}",
            self.quantization,
            self.has_bias,
            self.stages.identity()
        )
    }

    /// The form in which operands and result lie in these layouts.
    pub fn form(&self, from: Layout, to: Layout) -> Form {
        primitive::form(from, self.first, self.stages.layouts(to), to)
    }

    /// As [`Kernel::in_place`].
    pub fn in_place(&self) -> Vec<(usize, usize)> {
        self.stages.in_place(self.first)
    }

    /// The dtype of the bias, if there is one.
    pub fn bias(&self) -> Option<DType> {
        self.has_bias.then_some(DType::Float32)
    }

    /// The shape of the weights at the shapes of a request.
    pub fn weights_shape<'a>(&'a self, request: &'a Request) -> &'a [usize] {
        match &self.weights {
            Source::Constant(weights) => weights.source().shape(),
            Source::Input(i) => &request.inputs[*i].shape,
        }
    }

    /// What the primitive is asked, for a result of this shape.
    ///
    /// # Errors
    /// If oneDNN has no such element type.
    pub fn options(&self, request: &Request, result: &[usize]) -> Result<Options> {
        Ok(Options {
            post: self.stages.post_ops(result, &request.inputs[self.first..])?,
            quantization: self.quantization,
            ..Options::threads(request.threads)
        })
    }

    /// What runs a primitive.
    ///
    /// # Errors
    /// If oneDNN fails to pack the weights.
    pub fn prepared(&self, primitive: Primitive, request: &Request) -> Result<Prepared> {
        let weights = self.weights.argument(primitive.weight_format(), request.threads)?;
        let mut arguments = vec![Argument::Input(0), weights];
        arguments.extend(self.operands.iter().map(|operand| match operand {
            Operand::Kept(array) => Argument::Kept(array.clone()),
            Operand::Input(at) => Argument::Input(*at),
            Operand::Widened(at, dtype) => Argument::Widened(*at, *dtype, Box::new(0)),
        }));
        let operands: &[layout::Operand] = &request.inputs[self.first..];
        let read = operands.iter().enumerate().filter(|(_, operand)| !operand.in_place);
        arguments.extend(read.map(|(at, _)| Argument::Input(self.first + at)));
        Ok(PrimitiveLauncher::new(primitive, arguments).prepared())
    }
}

/// The bias of the layer, or what is added first.
fn bias(found: &Found, links: &[Link]) -> Option<Array> {
    let own = found.bias.as_ref().map(|(array, _)| array);
    own.or_else(|| stages::bias(links)).cloned()
}

fn name(network: &Network, id: LayerId, before: &[LayerId], links: &[Link], end: Option<LayerId>) -> String {
    let behind = links.iter().flat_map(|link| &link.layers);
    let behind = behind.filter(|id| !before.contains(id)).map(|&id| network[id].op.name);
    let all = std::iter::once(network[id].op.name).chain(behind);
    let names: Vec<&str> = all.chain(end.map(|id| network[id].op.name)).collect();
    format!("int8 {}", names.join("+"))
}
