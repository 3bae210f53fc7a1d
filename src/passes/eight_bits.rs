//! Which float32 layers belong to products of 8 bits, and so stay float32 where the others compute in floats of 16 bits: kernels of
//! 8 bits read `Dequantize -> product -> ... -> Quantize` as it is written, and compute in 8 bits what stands there in float32.

use super::matching::{input, is_constant};
use crate::network::dtype::DType;
use crate::network::op::Movement;
use crate::network::ops::resize;
use crate::network::quantization::{Scheme, scales_of_tokens};
use crate::network::{Layer, LayerId, Network, TensorId};
use std::collections::{HashMap, HashSet};

const PRODUCTS: [&str; 4] = ["Conv", "ConvTranspose", "MatMul", "Gemm"];

/// The dtypes of 8 bits that some provider multiplies.
pub const EIGHT_BITS: [DType; 3] = [DType::Int8, DType::UInt8, DType::Float8E4M3FN];

/// Where a float32 tensor that belongs to products of 8 bits comes from.
#[derive(Debug, Clone, Copy)]
enum Origin {
    /// A Dequantize layer of 8 bits, perhaps through what moves or picks elements; of one scale, if that is known.
    Stored(Option<Scheme>),
    /// A Dequantize layer with a scale for each token.
    Tokens,
    /// A product of such tensors, perhaps through pointwise layers.
    Product,
}

/// The layers that stay float32 where tensors of these dtypes are multiplied: products of dequantized operands; pointwise layers all of
/// whose operands come from such products, from Dequantize layers or from constants; and what moves elements between these and Quantize
/// layers.
pub fn kept(network: &Network, order: &[LayerId], dtypes: &[DType]) -> HashSet<LayerId> {
    let found = Search {
        network,
        dtypes,
        quantized: quantized_next(network, order, dtypes),
        origins: HashMap::new(),
    };
    found.run(order)
}

struct Search<'n> {
    network: &'n Network,
    dtypes: &'n [DType],
    /// Tensors that nothing but Quantize layers read, perhaps through what moves elements.
    quantized: HashSet<TensorId>,
    origins: HashMap<TensorId, Origin>,
}

impl Search<'_> {
    fn run(mut self, order: &[LayerId]) -> HashSet<LayerId> {
        let mut kept = HashSet::new();
        for &id in order {
            let layer = &self.network[id];
            if let Some(origin) = self.origin(layer) {
                self.origins.insert(layer.outputs[0], origin);
                kept.insert(id);
            }
        }
        kept
    }

    /// Where what a layer gives comes from; none where the layer does not belong to products of 8 bits.
    fn origin(&self, layer: &Layer) -> Option<Origin> {
        let network = self.network;
        if layer.op.name == "DequantizeLinear" {
            let stored = self.dtypes.contains(&network[input(layer, 0)?].ty.dtype);
            if stored && scales_of_tokens(network, layer).is_some() {
                return Some(Origin::Tokens);
            }
            return stored.then(|| Origin::Stored(Scheme::of(network, layer)));
        }
        if PRODUCTS.contains(&layer.op.name) {
            let known = |at: usize| matches!(input(layer, at).and_then(|t| self.of(t)), Some(Origin::Stored(Some(_))));
            // Weights may have a scale for each channel.
            let weights = || input(layer, 1).is_some_and(|weights| is_numbers(network, weights));
            let of_tokens = matches!(input(layer, 0).and_then(|t| self.of(t)), Some(Origin::Tokens)) && weights();
            return (of_tokens || known(0) && (known(1) || weights())).then_some(Origin::Product);
        }
        if layer.outputs.len() != 1 {
            return None;
        }
        if layer.op.name == "Concat" {
            return self.joined(layer);
        }
        if moves(layer) || picks(layer) {
            return match self.of(input(layer, 0)?)? {
                stored @ Origin::Stored(_) => Some(stored),
                Origin::Product => self.is_quantized(layer).then_some(Origin::Product),
                Origin::Tokens => None,
            };
        }
        (layer.op.pointwise.is_some() && self.all_known(layer)).then_some(Origin::Product)
    }

    fn of(&self, tensor: TensorId) -> Option<Origin> {
        self.origins.get(&tensor).copied()
    }

    fn is_quantized(&self, layer: &Layer) -> bool {
        moves(layer) && self.quantized.contains(&layer.outputs[0])
    }

    /// Of a Concat: of 8 bits where all parts stand for numbers in the same way.
    fn joined(&self, layer: &Layer) -> Option<Origin> {
        let parts = layer.inputs.iter().map(|part| self.of((*part)?));
        let parts: Vec<Origin> = parts.collect::<Option<_>>()?;
        let schemes = parts.iter().map(|part| match part {
            Origin::Stored(scheme) => *scheme,
            Origin::Product | Origin::Tokens => None,
        });
        let schemes: Option<Vec<Scheme>> = schemes.collect();
        match schemes.as_deref() {
            Some([first, rest @ ..]) if rest.iter().all(|other| other == first) => Some(Origin::Stored(Some(*first))),
            _ => self.is_quantized(layer).then_some(Origin::Product),
        }
    }

    /// Whether all floats that a pointwise layer reads are constants or belong to products of 8 bits, and some do.
    fn all_known(&self, layer: &Layer) -> bool {
        let is_float = |&tensor: &TensorId| self.network[tensor].ty.dtype.is_float();
        let floats = layer.inputs.iter().copied().flatten().filter(is_float);
        let mut floats = floats.filter(|&tensor| !is_numbers(self.network, tensor)).peekable();
        is_float(&layer.outputs[0]) && floats.peek().is_some() && floats.all(|tensor| self.of(tensor).is_some())
    }
}

/// Whether a tensor is a constant, or a Dequantize layer makes it of constants, as of a bias.
fn is_numbers(network: &Network, tensor: TensorId) -> bool {
    let dequantized = || {
        let (_, layer) = network.producer(tensor)?;
        let all = layer
            .inputs
            .iter()
            .flatten()
            .all(|&tensor| is_constant(network, tensor));
        (layer.op.name == "DequantizeLinear" && all).then_some(())
    };
    is_constant(network, tensor) || dequantized().is_some()
}

/// Whether quantizing before or behind a layer of one operand is the same: it gives elements of its input at places that no data
/// decides, or the greatest ones of windows.
pub fn moves(layer: &Layer) -> bool {
    let picks = match layer.op.name {
        "MaxPool" | "Concat" => true,
        "Resize" => resize::takes_elements(&layer.attrs),
        _ => layer.op.movement.keeps_all(),
    };
    layer.outputs.len() == 1 && picks
}

/// The inputs whose elements a layer that [`moves`] gives.
pub fn moved(layer: &Layer) -> &[Option<TensorId>] {
    match layer.op.name {
        "Concat" => &layer.inputs,
        _ => &layer.inputs[..1],
    }
}

/// Whether a layer gives some elements of its first input alone: fewer are to be dequantized behind it, or a table stays small.
pub fn picks(layer: &Layer) -> bool {
    layer.outputs.len() == 1 && matches!(layer.op.movement, Movement::Slice | Movement::Pick)
}

/// The tensors that nothing but Quantize layers to these dtypes read, perhaps through what moves elements.
fn quantized_next(network: &Network, order: &[LayerId], dtypes: &[DType]) -> HashSet<TensorId> {
    let mut found = HashSet::new();
    for &id in order.iter().rev() {
        for &tensor in &network[id].outputs {
            let reads = |user: &LayerId| {
                let user = &network[*user];
                let quantizes = user.op.name == "QuantizeLinear" && dtypes.contains(&network[user.outputs[0]].ty.dtype);
                quantizes || (moves(user) && found.contains(&user.outputs[0]))
            };
            let users = &network[tensor].users;
            if !network.is_output(tensor) && !users.is_empty() && users.iter().all(reads) {
                found.insert(tensor);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::array::Array;
    use crate::network::attr::{Attr, attrs};
    use crate::passes::testing::Graph;
    use crate::passes::{
        Settings, assign_precision, clean_casts, fold_constants, lowered, move_quantization, plan_precision,
    };

    fn settings() -> Settings {
        Settings {
            compute: DType::BFloat16,
            quantized: true,
            eight_bits: EIGHT_BITS.to_vec(),
            ..Settings::default()
        }
    }

    fn quantize(g: &mut Graph, x: TensorId) -> TensorId {
        let scale = g.scalar(0.0625);
        g.op_with("QuantizeLinear", attrs([("to", Attr::Type(DType::Int8))]), &[x, scale])
    }

    fn dequantize(g: &mut Graph, x: TensorId) -> TensorId {
        let scale = g.scalar(0.0625);
        g.op("DequantizeLinear", &[x, scale])
    }

    /// A tensor rounded to 8 bits.
    fn rounded(g: &mut Graph, x: TensorId) -> TensorId {
        let q = quantize(g, x);
        dequantize(g, q)
    }

    fn weights(g: &mut Graph, shape: &[usize]) -> TensorId {
        let values: Vec<f64> = (0..shape.iter().product::<usize>())
            .map(|i| (i % 7) as f64 - 3.0)
            .collect();
        let array = Array::from_f64(DType::Int8, shape.to_vec(), &values).unwrap();
        let q = g.network.add_constant("w", array);
        dequantize(g, q)
    }

    fn bias(g: &mut Graph, shape: &[usize]) -> TensorId {
        let array = Array::from_f64(DType::Int32, shape.to_vec(), &vec![3.0; shape.iter().product()]).unwrap();
        let q = g.network.add_constant("b", array);
        dequantize(g, q)
    }

    /// The ops that are lowered, in order.
    fn ops(g: &Graph, settings: &Settings) -> Vec<&'static str> {
        let found = lowered(&g.network, settings).unwrap();
        found.into_iter().map(|id| g.network[id].op.name).collect()
    }

    #[test]
    fn a_product_of_8_bits_stays_with_its_bias_residual_and_activation() {
        let mut g = Graph::new();
        let x = g.input("x", "n 4 6 6");
        let x = g.op("Tanh", &[x]);
        let x = rounded(&mut g, x);
        let (w, b) = (weights(&mut g, &[4, 4, 1, 1]), bias(&mut g, &[4]));
        let y = g.op("Conv", &[x, w, b]);
        let y = g.op("Add", &[y, x]);
        let y = g.op("Relu", &[y]);
        let y = rounded(&mut g, y);
        let y = g.op("Conv", &[y, w, b]);
        let y = g.op("GlobalAveragePool", &[y]);
        let y = rounded(&mut g, y);
        let y = g.op("Conv", &[y, w]);
        let y = g.op("Softmax", &[y]);
        g.output(y);
        assert_eq!(ops(&g, &settings()), ["Tanh", "GlobalAveragePool", "Softmax"]);
        let others = Settings {
            eight_bits: vec![],
            ..settings()
        };
        assert_eq!(ops(&g, &others).iter().filter(|op| **op == "Conv").count(), 3);
        (plan_precision::PASS.apply)(&mut g.network, &settings()).unwrap();
        let compiled = (assign_precision::PASS.apply)(&mut g.network, &settings()).unwrap();
        assert_eq!(compiled, 3);
        g.network.verify().unwrap();
        let quantized = |name: &str| g.network.layers().filter(|(_, l)| l.op.name == name).count();
        assert_eq!(quantized("QuantizeLinear"), 3);
    }

    #[test]
    fn an_operand_from_elsewhere_is_added_in_16_bits() {
        let mut g = Graph::new();
        let x = g.input("x", "n 4");
        let x = g.op("Softmax", &[x]);
        let q = rounded(&mut g, x);
        let (w, b) = (weights(&mut g, &[4, 4]), bias(&mut g, &[4]));
        let y = g.op("MatMul", &[q, w]);
        let y = g.op("Add", &[y, b]);
        let y = g.op("Add", &[y, x]);
        let y = g.op("Relu", &[y]);
        g.output(y);
        assert_eq!(ops(&g, &settings()), ["Softmax", "Add", "Relu"]);
    }

    #[test]
    fn weights_that_alone_have_8_bits_are_read_in_16() {
        let mut g = Graph::new();
        let x = g.input("x", "n 4");
        let w = weights(&mut g, &[4, 4]);
        let y = g.op("MatMul", &[x, w]);
        g.output(y);
        assert_eq!(ops(&g, &settings()), ["MatMul"]);
    }

    #[test]
    fn a_product_of_two_tensors_of_8_bits_stays_and_what_moves_them_too() {
        let mut g = Graph::new();
        let (x, y) = (g.input("x", "n 4 4"), g.input("y", "n 4 4"));
        let (x, y) = (rounded(&mut g, x), rounded(&mut g, y));
        let y = g.op_with("Transpose", attrs([("perm", Attr::Ints(vec![0, 2, 1]))]), &[y]);
        let z = g.op("MatMul", &[x, y]);
        g.output(z);
        assert!(ops(&g, &settings()).is_empty());
    }

    #[test]
    fn what_moves_a_result_is_lowered_but_in_front_of_a_quantize_layer() {
        for end in [true, false] {
            let mut g = Graph::new();
            let x = g.input("x", "n 4 4");
            let x = rounded(&mut g, x);
            let w = weights(&mut g, &[4, 4]);
            let y = g.op("MatMul", &[x, w]);
            let y = g.op_with("Transpose", attrs([("perm", Attr::Ints(vec![0, 2, 1]))]), &[y]);
            let y = if end {
                quantize(&mut g, y)
            } else {
                g.op("Softmax", &[y])
            };
            g.output(y);
            let want: &[&str] = if end { &[] } else { &["Transpose", "Softmax"] };
            assert_eq!(ops(&g, &settings()), want);
        }
    }

    #[test]
    fn parts_that_stand_for_numbers_in_other_ways_are_joined_as_floats() {
        for (other, count) in [(0.0625, 0), (0.07, 2)] {
            let mut g = Graph::new();
            let (x, y) = (g.input("x", "n 2"), g.input("y", "n 2"));
            let (x, y) = (rounded(&mut g, x), quantize(&mut g, y));
            let scale = g.scalar(other);
            let y = g.op("DequantizeLinear", &[y, scale]);
            let joined = g.op_with("Concat", attrs([("axis", Attr::Int(1))]), &[x, y]);
            let w = weights(&mut g, &[4, 4]);
            let z = g.op("MatMul", &[joined, w]);
            g.output(z);
            assert_eq!(ops(&g, &settings()).len(), count);
        }
    }

    #[test]
    fn a_quantize_layer_moves_past_a_transpose_of_16_bits() {
        let mut g = Graph::new();
        let x = g.input("x", "n 4 6");
        let y = g.op("Softmax", &[x]);
        let y = g.op_with("Transpose", attrs([("perm", Attr::Ints(vec![0, 2, 1]))]), &[y]);
        let y = quantize(&mut g, y);
        g.output(y);
        g.becomes_by(
            &[
                &plan_precision::PASS,
                &assign_precision::PASS,
                &clean_casts::PASS,
                &fold_constants::PASS,
                &move_quantization::PASS,
            ],
            &settings(),
            "
            %Softmax: bfloat16[n, 4, 6] = Cast(%x) {elidable=1, round_mode=up, saturate=1, to=bfloat16}
            %Softmax~1: bfloat16[n, 4, 6] = Softmax(%Softmax) {axis=-1}
            %Transpose: float32[n, 4, 6] = Cast(%Softmax~1) {elidable=1, round_mode=up, saturate=1, to=float32}
            %Transpose~1: int8[n, 4, 6] = QuantizeLinear(%Transpose, float32[](0.0625)) {saturate=1, to=int8}
            %Transpose~2: int8[n, 6, 4] = Transpose(%Transpose~1) {perm=[0, 2, 1]}",
        );
    }
}
