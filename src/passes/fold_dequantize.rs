//! Computes what constants of few bits stand for, where that is no weight of a product.

use super::fold_constants::fold;
use super::{Pass, Settings, rewrite_with, rule_if};
use crate::error::Result;
use crate::network::op::Movement;
use crate::network::patch::Change;
use crate::network::{LayerId, Network};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "fold_dequantize",
    doc: "Dequantize of a constant that no product reads, nor what moves elements => a constant, within Settings::fold_bytes and fold_work",
    apply: |network, settings| rewrite_with(network, |network, id| rule(network, id, settings)),
};

/// Products take weights as they are stored, and rows of a table are chosen as they are. For all others the numbers would be
/// written anew in each call, and rules that ask for constants (LayerNormalization's) would not see any.
fn rule(network: &Network, id: LayerId, settings: &Settings) -> Result<Option<Change>> {
    let layer = &network[id];
    rule_if!(layer.op.name == "DequantizeLinear");
    let takes_stored = |user: &LayerId| {
        let op = network[*user].op;
        op.multiplications.is_some() || op.movement != Movement::None
    };
    rule_if!(!network[layer.outputs[0]].users.iter().any(takes_stored));
    fold(network, layer, settings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::TensorId;
    use crate::network::array::Array;
    use crate::network::dtype::DType;
    use crate::passes::testing::Graph;

    fn stored(g: &mut Graph, shape: &[usize]) -> TensorId {
        let values: Vec<f64> = (0..shape.iter().product::<usize>()).map(|i| i as f64).collect();
        let array = Array::from_f64(DType::Int8, shape.to_vec(), &values).unwrap();
        let (q, scale) = (g.network.add_constant("w", array), g.scalar(0.5));
        g.op("DequantizeLinear", &[q, scale])
    }

    #[test]
    fn scales_and_biases_are_numbers_and_weights_stay_small() {
        let mut g = Graph::new();
        let x = g.input("x", "n 4");
        let (w, bias) = (stored(&mut g, &[4, 4]), stored(&mut g, &[4]));
        let y = g.op("MatMul", &[x, w]);
        let y = g.op("Mul", &[y, bias]);
        g.output(y);
        g.becomes(
            &PASS,
            "%DequantizeLinear: float32[4, 4] = DequantizeLinear(int8[4, 4](...), float32[](0.5))
             %MatMul: float32[n, 4] = MatMul(%x, %DequantizeLinear) {transA=0, transB=0}
             %Mul: float32[n, 4] = Mul(%MatMul, float32[4](...))",
        );
    }
}
