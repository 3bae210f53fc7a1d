//! MatMulInteger with constant weights: as its sums, or `MatMulInteger -> Cast -> Mul -> ...` as numbers, in one primitive of oneDNN.
//! The zero point of the left operand, and the scale, may come with the call.

use super::product::{Operand, Product};
use super::{MatMul, sums_exactly};
use crate::network::array::Array;
use crate::network::dtype::DType;
use crate::network::{LayerId, Network, TensorId};
use crate::plan::Candidate;
use crate::providers::common::epilogue::{Epilogue, name};
use crate::providers::common::quantized::signed;
use crate::providers::cpu::handle::Quantization;
use crate::providers::cpu::kernels::Answer;
use crate::providers::cpu::kernels::chain::{self, Chain, Channels};
use crate::providers::cpu::kernels::primitive::{Source, Weights};
use crate::providers::cpu::kernels::scope::Scope;
use std::sync::Arc;

/// The layer alone, and with what makes numbers of its sums.
pub fn offer(scope: &Scope) -> Answer {
    if scope.op() != "MatMulInteger" || !sums_exactly() {
        return Ok(vec![]);
    }
    let Some(found) = Integers::of(scope) else {
        return Ok(vec![]);
    };
    let mut candidates = vec![];
    if let Some(scaled) = scaled(scope) {
        let epilogues = chain::epilogues_of_8_bits(scope, scaled.output, Channels::Last).into_iter();
        candidates.extend(epilogues.filter_map(|epilogue| found.candidate(scope, Some(&scaled), &epilogue)));
    }
    let (sums, axis) = (scope.layer().outputs[0], scope.output_type(0).rank().saturating_sub(1));
    let alone = Epilogue::new(scope.network, sums, axis, &[]);
    candidates.extend(alone.and_then(|alone| found.candidate(scope, None, &alone)));
    Ok(candidates)
}

/// The operands.
struct Integers {
    weights: Array,
    /// The zero point of the left operand: a tensor of one element and its dtype.
    zero: Option<(TensorId, DType)>,
}

impl Integers {
    fn of(scope: &Scope) -> Option<Self> {
        let a = scope.input_type(0)?;
        let stored = scope.constant(1)?;
        let none = Array::scalar(stored.dtype(), 0.0);
        let zero = match scope.input(3) {
            Some(_) => scope.constant(3)?,
            None => &none,
        };
        let left = match scope.input(2) {
            Some(zero) if scope.network[zero].ty.rank() == 0 => Some((zero, a.dtype)),
            Some(_) => return None,
            None => None,
        };
        let fits = a.rank() >= 2 && stored.shape().len() == 2 && !stored.is_empty();
        Some(Self {
            weights: fits.then(|| signed(stored, zero))??,
            zero: left,
        })
    }

    /// A candidate with what makes numbers of its sums and an epilogue behind these, or for the sums alone.
    fn candidate(&self, scope: &Scope, scaled: Option<&Scaled>, epilogue: &Epilogue) -> Option<Candidate> {
        let network = scope.network;
        let chain = Chain::of_8_bits(network, epilogue, Channels::Last, false).filter(|chain| !chain.has_end())?;
        let mut inputs: Vec<TensorId> = scope.input(0).into_iter().collect();
        let mut operands = vec![];
        let mut quantization = Quantization::default();
        let bias = chain.bias.clone();
        let has_bias = bias.is_some();
        let added = bias.as_ref().and_then(|(_, layer)| *layer);
        if let Some((bias, _)) = bias {
            operands.push(Operand::Kept(
                Array::from_f64(DType::Float32, vec![bias.len()], &bias.to_f64()).ok()?,
            ));
        }
        if let Some(scaled) = scaled {
            inputs.push(scaled.scale);
            operands.push(Operand::Input(inputs.len() - 1));
            quantization.weight_scales = Some(if scaled.single { 0 } else { 0b10 });
        }
        if let Some((zero, dtype)) = self.zero {
            quantization.src_zero = true;
            match network[zero].constant() {
                Some(array) => operands.push(Operand::Kept(array.cast(DType::Int32))),
                None => {
                    inputs.push(zero);
                    operands.push(Operand::Widened(inputs.len() - 1, dtype));
                }
            }
        }
        let first = inputs.len();
        inputs.extend(chain.operands());
        let scaling = scaled.iter().flat_map(|scaled| scaled.layers.iter().copied());
        let layers = std::iter::once(scope.layer).chain(scaling).chain(epilogue.layers());
        let layers: Vec<LayerId> = layers.chain(added).collect();
        let product = Product {
            name: format!("int8 {}", name(network, &layers)),
            weights: Source::Constant(Weights::new(self.weights.clone())),
            quantization,
            chain,
            operands,
            has_bias,
            first,
        };
        Some(Candidate {
            kernel: Arc::new(MatMul {
                product,
                transposed: [false; 2],
                tokens: false,
            }),
            layers,
            inputs,
            outputs: vec![epilogue.result()],
        })
    }
}

/// What makes numbers of sums: Cast -> Mul by a scale.
struct Scaled {
    layers: Vec<LayerId>,
    scale: TensorId,
    /// Whether there is one scale, and not one for each column.
    single: bool,
    output: TensorId,
}

fn scaled(scope: &Scope) -> Option<Scaled> {
    let network: &Network = scope.network;
    let cast = network
        .sole_user(scope.layer().outputs[0])
        .filter(|&id| network[id].op.name == "Cast")?;
    let numbers = network[cast].outputs[0];
    let mul = network.sole_user(numbers).filter(|&id| network[id].op.name == "Mul")?;
    let &[Some(a), Some(b)] = network[mul].inputs.as_slice() else {
        return None;
    };
    let scale = if a == numbers { b } else { a };
    let (ty, columns) = (&network[scale].ty, network[numbers].ty.shape.last()?);
    let single = ty.shape.iter().all(|dim| dim.is(1));
    let each = ty.rank() == 1 && ty.shape[0] == *columns;
    let output = network[mul].outputs[0];
    let floats = network[numbers].ty.dtype == DType::Float32 && ty.dtype == DType::Float32;
    // The scale must not come from what it scales.
    let fits = a != b && floats && (single || each) && network[output].ty.shape == network[numbers].ty.shape;
    fits.then_some(Scaled {
        layers: vec![cast, mul],
        scale,
        single,
        output,
    })
}
