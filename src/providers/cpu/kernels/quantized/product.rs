//! What convolutions and matrix products of 8 bits share: the operands, the weights, and how they become a candidate.

use super::qlinear_add::{Constants, ThenAdd};
use crate::error::Result;
use crate::network::array::Array;
use crate::network::dtype::DType;
use crate::network::{LayerId, Network, TensorId};
use crate::plan::layout::Layout;
use crate::plan::tactic::tactics;
use crate::plan::{Candidate, Form, Kernel, Prepared, Request};
use crate::providers::common::epilogue::{Epilogue, name};
use crate::providers::common::quantized::{Dequantized, PerToken, Weights as Stored, constant};
use crate::providers::cpu::handle::{Options, Primitive, Quantization};
use crate::providers::cpu::kernels::chain::{self, Chain, Channels};
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
    /// Its scales, where each token has one; that of the scheme is 1 then.
    pub tokens: Option<TensorId>,
    /// The right one.
    pub right: Right,
    /// The bias of the layer, and what dequantizes it.
    pub bias: Option<(Array, Option<LayerId>)>,
}

impl Found {
    /// The operands of the scope's layer, where both have 8 bits; `axis` of the weights counts the channels of the result.
    pub fn of(scope: &Scope, axis: usize) -> Option<Self> {
        let network = scope.network;
        let x = scope.input(0)?;
        let tokens = PerToken::of(network, x);
        let left = match tokens {
            Some(found) => found.integers(),
            None => Dequantized::integers(network, x)?,
        };
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
        let tokens = tokens.map(|found| found.scales);
        Some(Self {
            left,
            tokens,
            right,
            bias,
        })
    }

    /// An epilogue as links.
    fn chain(&self, network: &Network, epilogue: &Epilogue, channels: Channels) -> Option<Chain> {
        match self.tokens {
            Some(scales) => Chain::of_tokens(network, epilogue, channels, scales),
            None => Chain::of_8_bits(network, epilogue, channels, self.bias.is_some()),
        }
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
    pub chain: Chain,
    /// Bias, scales and zero points, as the primitive takes them.
    pub operands: Vec<Operand>,
    /// Whether the first of them is a bias.
    pub has_bias: bool,
    /// The first of the kernel's inputs that the chain reads.
    pub first: usize,
}

tactics! {
    /// How a residual is added to a product that is quantized before.
    enum Way {
        /// By post-ops of the product's primitive.
        PostOps = "only",
        /// By a loop behind the primitive.
        SeparateAdd = "separate QLinearAdd",
    }
}

/// What a primitive is asked.
pub struct Asked {
    /// Its options.
    pub options: Options,
    /// The dtype of its result.
    pub dtype: DType,
    /// What is done behind it.
    add: Option<Constants>,
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
    /// A candidate for every epilogue that the primitive does. `scales` says over which axes of the primitive's weights scales lie, and
    /// how often they are repeated.
    pub fn candidates<K: Kernel + 'static>(
        scope: &Scope,
        found: &Found,
        channels: Channels,
        scales: (u16, usize),
        make: impl Fn(Product) -> K,
    ) -> Vec<Candidate> {
        let network = scope.network;
        let in_front = found.layers();
        let candidate = |epilogue: Epilogue| {
            let chain = found.chain(network, &epilogue, channels)?;
            let added = chain.bias.as_ref().and_then(|(_, layer)| *layer);
            let behind = epilogue.layers_behind(scope.layer);
            let name = format!("int8 {}", name(network, &behind));
            let (product, inputs) = Self::new(found, name, chain, scales)?;
            Some(Candidate {
                kernel: Arc::new(make(product)),
                layers: in_front.iter().copied().chain(added).chain(behind).collect(),
                inputs,
                outputs: vec![epilogue.result()],
            })
        };
        let epilogues = chain::epilogues_of_8_bits(scope, scope.layer().outputs[0], channels);
        epilogues.into_iter().filter_map(candidate).collect()
    }

    fn new(found: &Found, name: String, chain: Chain, (mask, repeats): (u16, usize)) -> Option<(Self, Vec<TensorId>)> {
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
        let factor = f64::from(left.scale) / f64::from(chain.unit);
        let one = scales.len() == 1;
        let scales: Vec<f64> = scales.iter().map(|&s| f64::from(s) * factor).collect();
        let scales = if one { scales } else { scales.repeat(repeats) };
        let bias = found
            .bias
            .as_ref()
            .or(chain.bias.as_ref())
            .map(|(array, _)| array.clone());
        let mut operands = vec![];
        if let Some(bias) = &bias {
            let values: Vec<f64> = bias.to_f64().iter().map(|b| b / f64::from(chain.unit)).collect();
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
        inputs.extend(chain.operands());
        let product = Self {
            name,
            weights,
            quantization: Quantization {
                weight_scales: Some(if one { 0 } else { mask }),
                src_zero,
                ..Quantization::default()
            },
            chain,
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
            self.chain.identity()
        )
    }

    /// The forms in which operands and result lie in this layout.
    pub fn forms(&self, layout: Layout) -> Vec<Form> {
        let form = primitive::form(layout, self.first, self.chain.layouts(layout), layout);
        let separate = self.separate_add().map(|_| Form {
            tactic: Way::SeparateAdd.tactic(),
            ..form.clone()
        });
        [form].into_iter().chain(separate).collect()
    }

    /// As [`Kernel::in_place`].
    pub fn in_place(&self) -> Vec<(usize, usize)> {
        self.chain.in_place(self.first)
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

    /// The chain as far as the quantized product, the dtype of that, and the addition behind it.
    fn separate_add(&self) -> Option<(Chain, DType, Constants)> {
        let (front, add) = self.chain.split_before_add()?;
        Some((front, add.product.dtype, Constants::of(&add)?))
    }

    /// What the primitive is asked, for a result of this shape.
    ///
    /// # Errors
    /// If oneDNN has no such element type.
    pub fn asked(&self, request: &Request, result: &[usize]) -> Result<Asked> {
        let (post, dtype, add) = match Way::of(&request.form.tactic)? {
            Way::PostOps => {
                let post = self.chain.post_ops(result, &request.inputs[self.first..])?;
                (post, request.outputs[0].dtype, None)
            }
            Way::SeparateAdd => {
                let parts = self.separate_add();
                let (front, dtype, add) = parts.ok_or_else(|| request.form.tactic.unknown())?;
                (front.post_ops(result, &[])?, dtype, Some(add))
            }
        };
        let options = Options {
            post,
            quantization: self.quantization,
            ..Options::threads(request.threads)
        };
        Ok(Asked { options, dtype, add })
    }

    /// What runs a primitive.
    ///
    /// # Errors
    /// If oneDNN fails to pack the weights.
    pub fn prepared(&self, primitive: Primitive, request: &Request, asked: Asked) -> Result<Prepared> {
        let weights = self.weights.argument(primitive.weight_format(), request.threads)?;
        let mut arguments = vec![Argument::Input(0), weights];
        arguments.extend(self.operands.iter().map(|operand| match operand {
            Operand::Kept(array) => Argument::Kept(array.clone()),
            Operand::Input(at) => Argument::Input(*at),
            Operand::Widened(at, dtype) => Argument::Widened(*at, *dtype, Box::new(0)),
        }));
        if let Some(add) = asked.add {
            let product = PrimitiveLauncher::new(primitive, arguments);
            return Ok(ThenAdd::new(product, add, self.first, request.outputs[0].elements()).prepared());
        }
        arguments.extend(Chain::arguments(self.first, &request.inputs[self.first..]));
        Ok(PrimitiveLauncher::new(primitive, arguments).prepared())
    }
}
