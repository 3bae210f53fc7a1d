//! What a product of 8 bits is, as the network has it.

use super::blocks::Blocks;
use super::constants::{Constants, Lie};
use super::image::Image;
use super::linear::Linear;
use super::{AXES, Operation, Quantized};
use crate::network::attr::Read;
use crate::network::{LayerId, TensorId};
use crate::providers::common::Why;
use crate::providers::common::epilogue::{Broadcast, Epilogue, name};
use crate::providers::common::quantized::{Dequantized, PerToken, Weights, constant};
use crate::providers::common::scope::Scope;
use crate::providers::cuda::kernels::Gpu;
use crate::providers::cuda::kernels::conv::geometry::Geometry;
use crate::providers::cuda::kernels::matmul::behind::Behind;
use crate::providers::cuda::kernels::singles::Single;
use std::sync::{Arc, OnceLock};

/// A product between Dequantize layers.
#[derive(Clone)]
pub struct Found {
    /// The left operand.
    pub left: Dequantized,
    /// The scales of its rows, where each has one; that of the scheme is 1 then.
    pub tokens: Option<TensorId>,
    /// What the kernel quantizes to that itself.
    pub image: Option<Image>,
    weights: Weights,
    bias: Option<(Vec<f64>, Option<LayerId>)>,
    /// What is multiplied.
    pub operation: Operation,
}

impl Found {
    /// That of the scope's layer.
    pub fn of(scope: &Scope) -> Option<Self> {
        let network = scope.network;
        let attrs = &scope.layer().attrs;
        let x = scope.input(0)?;
        let tokens = PerToken::of(network, x).filter(|_| scope.op() == "MatMul");
        let left = tokens.map(PerToken::integers).or_else(|| Dequantized::of(network, x))?;
        let [x, w] = [scope.input_type(0)?, scope.input_type(1)?];
        let (operation, axis) = match scope.op() {
            "Conv" if x.rank() <= AXES + 2 && attrs.ints("pads").iter().all(|&pad| pad >= 0) => (
                Operation::Conv(Geometry {
                    attrs: attrs.clone(),
                    weights: w.shape.clone(),
                    transposed: false,
                }),
                0,
            ),
            "ConvTranspose" => (Operation::ConvTranspose(Blocks::of(attrs, &w.shape)?), 1),
            "MatMul" if x.rank() >= 2 && w.rank() == 2 && !attrs.flag("transA") => (
                Operation::MatMul(attrs.flag("transB")),
                1 - attrs.flag("transB") as usize,
            ),
            _ => return None,
        };
        let bias = match scope.input(2) {
            Some(bias) => {
                let (array, layer) = constant(network, bias)?;
                Some((array.to_f64(), layer))
            }
            None => None,
        };
        Some(Self {
            left,
            tokens: tokens.map(|found| found.scales),
            image: None,
            weights: Weights::of(network, scope.input(1)?, axis, left.scheme)?,
            bias,
            operation,
        })
    }

    /// Why a GPU does not multiply so.
    pub fn refused(&self, gpu: &Gpu) -> Option<&'static str> {
        match self.left.scheme.is_int() {
            true if !gpu.has_int8() => Some("GPUs below compute capability 8.0 multiply 8 bits in floating point"),
            false if !gpu.has_fp8() => Some("GPUs below compute capability 8.9 multiply float8_e4m3fn in wider floats"),
            _ => None,
        }
    }

    /// It with the constant that an Add behind it adds to each channel for its bias, and that Add.
    pub fn added(&self, scope: &Scope, axis: usize) -> Option<(LayerId, Self)> {
        let (network, product) = (scope.network, scope.layer().outputs[0]);
        let add = network
            .sole_user(product)
            .filter(|_| self.bias.is_none() && self.tokens.is_none())?;
        let layer = &network[add];
        let &[Some(a), Some(b)] = layer.inputs.as_slice() else {
            return None;
        };
        let other = if a == product { b } else { a };
        let broadcast = Broadcast::of(network, other, product, axis)?;
        let fits =
            layer.op.name == "Add" && other != product && matches!(broadcast, Broadcast::Column | Broadcast::Scalar);
        let (array, dequantize) = constant(network, other).filter(|_| fits)?;
        let found = Self {
            bias: Some((array.to_f64(), dequantize)),
            ..self.clone()
        };
        Some((add, found))
    }

    /// Its constants, or why sums of it do not fit.
    pub fn constants(&self) -> std::result::Result<Constants, Why> {
        let lie = match self.operation {
            Operation::Conv(_) => Lie::Conv,
            Operation::ConvTranspose(_) => Lie::Blocks,
            Operation::MatMul(false) => Lie::Matrix,
            Operation::MatMul(true) => Lie::Turned,
        };
        let bias = self.bias.as_ref().map(|(bias, _)| bias.clone());
        Constants::new(&self.weights, lie, self.left.scheme, bias)
            .ok_or_else(|| Why::new("sums of so many products of 8 bits may not fit into 32 bits"))
    }

    /// It with what is in front of it.
    pub fn quantizing(&self, image: Image) -> Self {
        Self {
            image: Some(image),
            ..self.clone()
        }
    }

    /// With these layers behind it, one of which may be the Add of its bias.
    pub fn single(
        &self,
        scope: &Scope,
        gpu: &Arc<Gpu>,
        constants: &Arc<Constants>,
        axis: usize,
        add: Option<LayerId>,
        layers: &[LayerId],
    ) -> Option<Single<Quantized>> {
        let network = scope.network;
        let sums = network[add.unwrap_or(scope.layer)].outputs[0];
        let bias = self.bias.as_ref().and_then(|(_, layer)| *layer);
        let others: Vec<LayerId> = layers
            .iter()
            .copied()
            .filter(|&id| Some(id) != add && Some(id) != bias)
            .collect();
        let epilogue = Epilogue::new(network, sums, axis, &others)?;
        let behind = Behind::numbered(network, &epilogue, self.tokens);
        // Sums of floats may be no numbers, of which layers one by one make others.
        let simple = self.left.scheme.is_int() && self.tokens.is_none();
        let linear = Linear::of(network, &epilogue).filter(|_| simple);
        let (source, quantizing) = match &self.image {
            Some(image) => (image.tensor, image.layers.as_slice()),
            None => (self.left.tensor, [].as_slice()),
        };
        let named = quantizing.iter().rev().chain([&scope.layer]).chain(layers);
        let named: Vec<LayerId> = named.copied().collect();
        let mut inputs = vec![source];
        inputs.extend(behind.operands.iter().map(|operand| operand.tensor));
        let in_front = [self.left.layer, self.weights.layer];
        let outputs = behind.outputs.clone();
        let kernel = Quantized {
            name: format!("{} {}", self.left.scheme.word(), name(network, &named)),
            operation: self.operation.clone(),
            scheme: self.left.scheme,
            image: self.image.as_ref().map(|image| image.dtype),
            constants: constants.clone(),
            behind,
            linear,
            lists: OnceLock::new(),
            gpu: gpu.clone(),
        };
        Some(Single {
            kernel,
            layers: quantizing
                .iter()
                .copied()
                .chain(in_front)
                .chain(bias.filter(|id| !layers.contains(id)))
                .chain([scope.layer])
                .chain(layers.iter().copied())
                .collect(),
            inputs,
            outputs,
        })
    }
}
