//! Writes quantization by a scale for each token in front of matrix products.

use super::place::in_8_bits;
use super::points::{channel_axis, is_kept, name};
use crate::error::{Error, Result};
use crate::network::attr::{Attrs, Read};
use crate::network::dtype::DType;
use crate::network::ops;
use crate::network::patch::Patch;
use crate::network::{LayerId, Network, TensorId};
use std::collections::{HashMap, HashSet};

/// DynamicQuantizePerToken -> Dequantize in front of the matrix products that are named, and their weights as int8 with a scale for each
/// channel; without those that `keep` names. Products that read one tensor share its integers. Biases and residuals stay floats.
///
/// # Errors
/// If there is no product of a name with constant weights of float32, on rows that lie along the last axis.
pub(super) fn place(network: &mut Network, products: &HashSet<String>, keep: &HashSet<String>) -> Result<()> {
    let named = network.layers().filter(|(_, layer)| products.contains(&layer.name));
    let found: Vec<LayerId> = named.map(|(id, _)| id).collect();
    if let Some(missing) = missing(network, products, &found) {
        return Err(
            Error::unsupported("there is no product that could have a scale for each token")
                .layer(missing)
                .expected("a MatMul of float32 with constant weights of two axes"),
        );
    }
    let mut quantized: HashMap<TensorId, TensorId> = HashMap::new();
    for id in found {
        if is_kept(&network[id], keep) {
            continue;
        }
        let x = network[id].inputs[0].ok_or_else(|| Error::internal("a product of nothing"))?;
        let tokens = match quantized.get(&x) {
            Some(&tokens) => tokens,
            None => around(network, x)?,
        };
        quantized.insert(x, tokens);
        rewrite(network, id, tokens)?;
    }
    Ok(())
}

/// A name that is none of a product that can be quantized so.
fn missing(network: &Network, products: &HashSet<String>, found: &[LayerId]) -> Option<String> {
    let able = |id: &&LayerId| {
        let layer = &network[**id];
        let rows = layer.inputs[0].is_some_and(|x| {
            let x = &network[x];
            x.ty.rank() >= 2 && x.ty.dtype == DType::Float32 && x.constant().is_none()
        });
        rows && layer.op.name == "MatMul" && !layer.attrs.flag("transA") && channel_axis(network, layer).is_some()
    };
    let able: HashSet<&str> = found.iter().filter(able).map(|&id| network[id].name.as_str()).collect();
    products.iter().find(|name| !able.contains(name.as_str())).cloned()
}

fn around(network: &mut Network, x: TensorId) -> Result<TensorId> {
    let name = name(network, x);
    let (quantize, dequantize) = (ops::find("DynamicQuantizePerToken")?, ops::find("DequantizeLinear")?);
    let integers = network.add_layer(&format!("{name}.quantize"), quantize, Attrs::new(), &[Some(x)])?;
    let inputs = [Some(integers[0]), Some(integers[1])];
    Ok(network.add_layer(&format!("{name}.dequantize"), dequantize, Attrs::new(), &inputs)?[0])
}

/// The product on tokens, with weights of 8 bits.
fn rewrite(network: &mut Network, id: LayerId, tokens: TensorId) -> Result<()> {
    let layer = &network[id];
    let axis = channel_axis(network, layer).ok_or_else(|| Error::internal("a product without channels"))?;
    let mut patch = Patch::new(network);
    let (weights, _) = in_8_bits(&mut patch, &layer.name, layer.inputs[1], axis, DType::Int8, None)?;
    let new = patch.add_named("", layer.op, layer.attrs.clone(), &[Some(tokens), Some(weights)])?;
    patch.shunt(layer.outputs[0], new[0])?;
    patch.finish().apply(network);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::place::{Dtypes, place};
    use super::*;
    use crate::passes::testing::{Graph, assert_same_within};

    const INT8: Dtypes = Dtypes {
        weights: DType::Int8,
        symmetric: false,
    };

    fn ops(network: &Network) -> Vec<&'static str> {
        network.layers().map(|(_, layer)| layer.op.name).collect()
    }

    #[test]
    fn products_of_one_tensor_share_its_integers_and_others_stay() {
        let mut g = Graph::new();
        let (x, w, v) = (g.input("x", "n 4 8"), g.weights(&[8, 5]), g.weights(&[8, 5]));
        let (a, b) = (g.op("MatMul", &[x, w]), g.op("MatMul", &[x, v]));
        let y = g.op("Add", &[a, b]);
        let u = g.weights(&[5, 5]);
        let z = g.op("MatMul", &[y, u]);
        g.output(z);
        let before = g.network.clone();
        let names = |tensors: &[TensorId]| -> HashSet<String> {
            let name = |&t: &TensorId| before.producer(t).unwrap().1.name.clone();
            tensors.iter().map(name).collect()
        };
        let none = HashSet::new();
        place(
            &mut g.network,
            Some(&Default::default()),
            INT8,
            &names(&[z]),
            &names(&[a, b]),
        )
        .unwrap();
        let count = |name: &str| ops(&g.network).iter().filter(|op| **op == name).count();
        assert_eq!((count("DynamicQuantizePerToken"), count("DequantizeLinear")), (1, 3));
        assert_same_within(&before, &g.network, 0.05);
        let strange = HashSet::from(["nothing".to_owned()]);
        let error = place(&mut g.network, None, INT8, &none, &strange).unwrap_err();
        assert!(error.to_string().contains("nothing"), "{error}");
    }
}
