//! What layers compute in, and how much: the shares per dtype that reports give.

use crate::engine::{Engine, Plan};
use crate::network::attr::Read;
use crate::network::dim::Binding;
use crate::network::dtype::DType;
use crate::network::op::Sizes;
use crate::network::ops::{matmul_n_bits, tf32};
use crate::network::{Layer, LayerId, Network, Source, TensorId};
use std::collections::{BTreeMap, HashMap};

/// Shares of layers or operations by what they compute in.
pub type Shares = BTreeMap<String, f64>;

/// The layers, or the operations, of networks per dtype.
#[derive(Default)]
pub struct Tally(Shares);

impl Tally {
    /// Counts the layers of a network, each by its `weight`.
    pub fn add(&mut self, part: &Engine, weight: impl Fn(&Network, &Layer) -> f64) {
        let network = &part.network;
        let mut providers = part.plans.iter().flat_map(|plan| &plan.program.providers);
        let rounds = providers.any(|provider| provider.has_tf32());
        let small = in_8_bits(part);
        for (id, layer) in network.layers() {
            let label = match small.get(&id).filter(|_| layer.op.multiplications.is_some()) {
                Some(dtype) => dtype.to_string(),
                None => label(network, layer, rounds),
            };
            *self.0.entry(label).or_insert(0.0) += weight(network, layer);
        }
    }

    /// The shares, which sum up to 1; dtypes without any are left out.
    pub fn shares(mut self) -> Shares {
        let total = self.0.values().sum::<f64>();
        self.0.retain(|_, share| *share > 0.0);
        self.0.values_mut().for_each(|share| *share /= total);
        self.0
    }
}

/// The layers that run in kernels which multiply 8 bits, in each of its plans, and what these are.
pub(super) fn in_8_bits(part: &Engine) -> HashMap<LayerId, DType> {
    let of = |plan: &Plan| -> HashMap<LayerId, DType> {
        let commands = plan.program.commands.iter();
        let small = commands.filter_map(|command| Some((command, command.kernel.products_of_8_bits()?)));
        small
            .flat_map(|(command, dtype)| command.layers.iter().map(move |&layer| (layer, dtype)))
            .collect()
    };
    let all = part.plans.iter().map(of);
    all.reduce(|mut a, b| {
        a.retain(|layer, dtype| b.get(layer) == Some(dtype));
        a
    })
    .unwrap_or_default()
}

/// What a layer computes in. Products of float32 that may round what they multiply are tf32, and those whose weights alone
/// are quantized say in what.
fn label(network: &Network, layer: &Layer, rounds: bool) -> String {
    let dtype = match network[layer.outputs[0]].ty.dtype {
        _ if rounds && tf32::is_allowed(layer) => tf32::TF32.name.to_string(),
        dtype => dtype.to_string(),
    };
    match quantized_weights(network, layer) {
        Some(stored) => format!("{dtype} with {stored} weights"),
        None => dtype,
    }
}

/// In what the weights of a product are stored, where they alone are quantized.
fn quantized_weights(network: &Network, layer: &Layer) -> Option<String> {
    if *layer.op == matmul_n_bits::DEF {
        return Some(format!("int{}", layer.attrs.int("bits")));
    }
    let quantized = |tensor: TensorId| match network[tensor].source {
        Source::Layer(id, _) if network[id].op.name == "DequantizeLinear" => network[id].inputs[0],
        _ => None,
    };
    let operand = |at: usize| layer.inputs.get(at).copied().flatten();
    let stored = quantized(operand(1).filter(|_| tf32::applies(layer))?)?;
    let constant = network[stored].constant().is_some();
    (constant && quantized(operand(0)?).is_none()).then(|| network[stored].ty.dtype.to_string())
}

/// Multiplications and additions of a layer that is a product, and else the elements that it gives; 0 where sizes are not
/// known.
pub fn operations(network: &Network, layer: &Layer, binding: &Binding) -> f64 {
    let extents = |tensor: TensorId| -> Option<Vec<f64>> {
        let dims = network[tensor].ty.shape.iter();
        dims.map(|dim| dim.eval(binding).ok().map(|size| size as f64)).collect()
    };
    let output = layer.outputs.first().and_then(|&output| extents(output));
    let inputs: Vec<_> = layer.inputs.iter().map(|input| extents((*input)?)).collect();
    let count = |output: Vec<f64>| {
        let sizes = Sizes {
            attrs: &layer.attrs,
            inputs: &inputs,
            output: &output,
        };
        match layer.op.multiplications {
            Some(multiplications) => Some(2.0 * multiplications(&sizes)?),
            None => Some(sizes.given()),
        }
    };
    output.and_then(count).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, Attrs};
    use crate::network::ops;

    fn operations_of(op: &str, shapes: &[&[i64]], attrs: &[(&str, i64)]) -> f64 {
        let mut network = Network::new("");
        let input = |network: &mut Network, (at, shape): (usize, &&[i64])| {
            let dims: Vec<_> = shape.iter().map(|&size| size.into()).collect();
            network.add_input(&format!("x{at}"), DType::Float32, dims).unwrap()
        };
        let inputs: Vec<_> = shapes
            .iter()
            .enumerate()
            .map(|s| Some(input(&mut network, s)))
            .collect();
        let attrs: Attrs = attrs
            .iter()
            .map(|&(name, value)| (name.into(), Attr::Int(value)))
            .collect();
        let outputs = network.add_layer("y", ops::find(op).unwrap(), attrs, &inputs).unwrap();
        let (id, _) = network.producer(outputs[0]).unwrap();
        operations(&network, &network[id], &Binding::new())
    }

    #[test]
    fn products_count_multiplications_and_additions() {
        assert_eq!(
            operations_of("Conv", &[&[1, 4, 8, 8], &[6, 4, 3, 3]], &[]),
            2.0 * (6 * 36 * 36) as f64
        );
        let grouped = operations_of("Conv", &[&[1, 4, 8, 8], &[6, 2, 3, 3]], &[("group", 2)]);
        assert_eq!(grouped, (6 * 36 * 36) as f64);
        assert_eq!(
            operations_of("ConvTranspose", &[&[1, 4, 8, 8], &[4, 6, 2, 2]], &[]),
            2.0 * (256 * 24) as f64
        );
        assert_eq!(
            operations_of("MatMul", &[&[5, 2, 3], &[3, 4]], &[]),
            2.0 * (5 * 2 * 3 * 4) as f64
        );
        assert_eq!(
            operations_of("Gemm", &[&[3, 2], &[3, 4]], &[("transA", 1)]),
            2.0 * (2 * 3 * 4) as f64
        );
        let heads: &[i64] = &[1, 2, 5, 4];
        assert_eq!(
            operations_of("Attention", &[heads, &[1, 2, 7, 4], &[1, 2, 7, 4]], &[]),
            2.0 * (2 * 5 * 7 * 8) as f64
        );
        assert_eq!(operations_of("Relu", &[&[3, 4]], &[]), 12.0);
    }

    #[test]
    fn weights_that_alone_are_quantized_are_told() {
        let mut network = Network::new("");
        let x = network
            .add_input("x", DType::Float32, vec![1i64.into(), 2i64.into()])
            .unwrap();
        let add = |network: &mut Network, op, inputs: &[TensorId]| {
            let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
            network
                .add_layer(op, ops::find(op).unwrap(), Attrs::new(), &inputs)
                .unwrap()[0]
        };
        let constant = |network: &mut Network, name: &str, dtype, shape: &[usize]| {
            let values = vec![1.0; shape.iter().product()];
            let array = crate::network::array::Array::from_f64(dtype, shape.to_vec(), &values).unwrap();
            network.add_constant(name, array)
        };
        let stored = constant(&mut network, "w", DType::Int8, &[2, 2]);
        let scale = constant(&mut network, "scale", DType::Float32, &[]);
        let weights = add(&mut network, "DequantizeLinear", &[stored, scale]);
        let y = add(&mut network, "MatMul", &[x, weights]);
        let label_of = |tensor| label(&network, &network[network.producer(tensor).unwrap().0], false);
        assert_eq!(label_of(y), "float32 with int8 weights");
        assert_eq!(label_of(weights), "float32");
    }
}
