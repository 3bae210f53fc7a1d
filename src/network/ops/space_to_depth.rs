//! SpaceToDepth.

use crate::error::{Error, Result};
use crate::network::attr::{Attrs, Preset, Read, attr};
use crate::network::op::{Decomposition, Lowering, Movement, OpDef, TensorType};
use crate::network::ops::blocks::{self, Plan};

/// Blocks of height and width gathered in channels (ONNX SpaceToDepth).
pub static DEF: OpDef = OpDef {
    name: "SpaceToDepth",
    doc: "Blocks of height and width of x [N, C, H, W] gathered in channels (ONNX SpaceToDepth)",
    inputs: &["x"],
    attrs: &[
        blocks::BLOCKSIZE,
        attr(
            "mode",
            Preset::Text("DCR"),
            "DCR: the block's place is the outer part of the channel; CRD: the inner one",
        ),
    ],
    infer: |infer| blocks::infer(infer, plan),
    evaluate: |e| blocks::evaluate(e, plan),
    lowering: Lowering::COMPUTES,
    movement: Movement::Permute,
    decomposition: Decomposition::Always(|network, id| blocks::decompose(network, id, plan)),
    ..OpDef::PLAIN
};

fn plan(attrs: &Attrs, x: &TensorType) -> Result<Plan> {
    let [n, c, h, w] = [0, 1, 2, 3].map(|i| x.shape[i].clone());
    let b = blocks::size(attrs);
    let (h, w) = (blocks::exact(&h, &b)?, blocks::exact(&w, &b)?);
    let perm = match attrs.text("mode") {
        "DCR" => [0, 3, 5, 1, 2, 4],
        "CRD" => [0, 1, 3, 5, 2, 4],
        other => {
            return Err(Error::invalid("attribute \"mode\" is unknown")
                .expected("DCR or CRD")
                .got(other));
        }
    };
    Ok(Plan {
        shape: vec![n.clone(), c.clone() * b.clone() * b.clone(), h.clone(), w.clone()],
        split: vec![n, c, h, b.clone(), w, b],
        perm,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Network;
    use crate::network::attr::{Attr, attrs};
    use crate::network::dtype::DType;

    #[test]
    fn what_divides_is_guarded() {
        let mut network = Network::new("");
        let shape = ["n", "3", "h", "8"].map(|d| d.parse().unwrap()).to_vec();
        let x = network.add_input("x", DType::Float32, shape).unwrap();
        let size = attrs([("blocksize", Attr::Int(2))]);
        let out = network.add_layer("s", &DEF, size, &[Some(x)]).unwrap()[0];
        assert_eq!(network[out].ty.describe(), "float32[n, 12, floordiv(h, 2), 4]");
        assert_eq!(network.guards.len(), 1);
    }
}
