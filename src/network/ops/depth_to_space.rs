//! DepthToSpace.

use crate::error::{Error, Result};
use crate::network::attr::{Attrs, Preset, Read, attr};
use crate::network::op::{Decomposition, Lowering, Movement, OpDef, TensorType};
use crate::network::ops::blocks::{self, Plan};

/// Channels spread over blocks of height and width (ONNX DepthToSpace).
pub static DEF: OpDef = OpDef {
    name: "DepthToSpace",
    doc: "Channels of x [N, C, H, W] spread over blocks of height and width (ONNX DepthToSpace)",
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
    let depth = blocks::exact(&c, &(b.clone() * b.clone()))?;
    let shape = vec![n.clone(), depth.clone(), h.clone() * b.clone(), w.clone() * b.clone()];
    let (split, perm) = match attrs.text("mode") {
        "DCR" => (vec![n, b.clone(), b, depth, h, w], [0, 3, 4, 1, 5, 2]),
        "CRD" => (vec![n, depth, b.clone(), b, h, w], [0, 1, 4, 2, 5, 3]),
        other => {
            return Err(Error::invalid("attribute \"mode\" is unknown")
                .expected("DCR or CRD")
                .got(other));
        }
    };
    Ok(Plan { split, perm, shape })
}
