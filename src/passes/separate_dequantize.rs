//! Gives each reader of a quantized tensor a Dequantize layer of its own, so that a kernel may take both.

use super::matching::input;
use super::{Found, Pass, Settings, rewrite_with, rule_if, rule_if_some};
use crate::error::Result;
use crate::network::dtype::DType;
use crate::network::patch::Patch;
use crate::network::{LayerId, Network, TensorId};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "separate_dequantize",
    doc: "Dequantize of 8 bits, or of a bias, that several layers read => another one in front of each product and Add, with Settings::quantized",
    apply,
};

fn apply(network: &mut Network, settings: &Settings) -> Result<usize> {
    if !settings.quantized {
        return Ok(0);
    }
    rewrite_with(network, |network, id| Ok(rule(network, id)?.map(Patch::finish)))
}

fn rule(network: &Network, id: LayerId) -> Found<'_> {
    let layer = &network[id];
    rule_if!(matches!(layer.op.name, "Conv" | "ConvTranspose" | "MatMul" | "Add"));
    let mut patch = Patch::new(network);
    let mut inputs = layer.inputs.clone();
    let mut found = false;
    for (at, slot) in inputs.iter_mut().enumerate() {
        let Some((name, shared)) = input(layer, at).and_then(|tensor| shared(network, tensor)) else {
            continue;
        };
        // The last reader keeps the layer that is there.
        *slot = Some(patch.add_named(&name, shared.op, shared.attrs.clone(), &shared.inputs)?[0]);
        found = true;
    }
    rule_if!(found);
    let new = patch.add_named("", layer.op, layer.attrs.clone(), &inputs)?;
    rule_if_some!(&new = new.first());
    patch.shunt(layer.outputs[0], new)?;
    Ok(Some(patch))
}

/// The Dequantize layer that gives a tensor to others, too, and its name.
fn shared(network: &Network, tensor: TensorId) -> Option<(String, &crate::network::Layer)> {
    let (_, layer) = network.producer(tensor)?;
    let quantized = network[input(layer, 0)?].ty.dtype;
    // Biases have 32 bits, and exporters write those that are equal once.
    let narrow = matches!(
        quantized,
        DType::Int8 | DType::UInt8 | DType::Float8E4M3FN | DType::Int32
    );
    let several = network.sole_user(tensor).is_none();
    (layer.op.name == "DequantizeLinear" && narrow && several).then(|| (layer.name.clone(), layer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::testing::Graph;

    #[test]
    fn each_product_and_sum_has_its_own() {
        let mut g = Graph::new();
        let x = g.input_of("x", DType::Int8, "n 4");
        let scale = g.scalar(0.5);
        let w = g.weights(&[4, 4]);
        let d = g.op("DequantizeLinear", &[x, scale]);
        let y = g.op("MatMul", &[d, w]);
        let y = g.op("Add", &[y, d]);
        let z = g.op("Relu", &[d]);
        g.output(y);
        g.output(z);
        let settings = Settings {
            quantized: true,
            ..Settings::default()
        };
        g.becomes_by(
            &[&PASS],
            &settings,
            "%DequantizeLinear: float32[n, 4] = DequantizeLinear(%x, float32[](0.5))
             %DequantizeLinear~1: float32[n, 4] = DequantizeLinear(%x, float32[](0.5))
             %DequantizeLinear~2: float32[n, 4] = DequantizeLinear(%x, float32[](0.5))
             %Relu: float32[n, 4] = Relu(%DequantizeLinear)
             %MatMul: float32[n, 4] = MatMul(%DequantizeLinear~1, float32[4, 4](...)) {transA=0, transB=0}
             %Add: float32[n, 4] = Add(%MatMul, %DequantizeLinear~2)",
        );
    }
}
