//! Unsqueeze.

use crate::error::Result;
use crate::network::attr::{Preset, Read, attr};
use crate::network::op::{Decomposition, Infer, Lowering, Movement, OpDef, TensorType};
use crate::network::ops::{reduce, reshape};

/// The input with dimensions of extent 1 put in (ONNX Unsqueeze).
pub static DEF: OpDef = OpDef {
    name: "Unsqueeze",
    doc: "The input with dimensions of extent 1 put in (ONNX Unsqueeze)",
    inputs: &["x"],
    attrs: &[attr(
        "axes",
        Preset::RequiredInts,
        "the axes of the output that are new",
    )],
    infer,
    evaluate: reshape::evaluate,
    lowering: Lowering::COMPUTES,
    movement: Movement::View,
    narrow: true,
    decomposition: Decomposition::Always(reshape::decompose),
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (x, axes) = (infer.input(0)?, infer.attrs.ints("axes"));
    let grown = TensorType::new(x.dtype, vec![1i64.into(); x.rank() + axes.len()]);
    let mut shape = x.shape.clone();
    for axis in reduce::distinct(axes, &grown)? {
        shape.insert(axis, 1i64.into());
    }
    Ok(vec![reshape::same(x, shape)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::array::Array;
    use crate::network::attr::{Attr, attrs};
    use crate::network::reference::evaluate_op;

    #[test]
    fn axes_are_those_of_the_output() {
        let unsqueeze = |axes: &[i64]| {
            let axes = attrs([("axes", Attr::Ints(axes.to_vec()))]);
            evaluate_op(&DEF, &axes, &[Some(Array::ints(&[1, 2]))])
        };
        assert_eq!(unsqueeze(&[-1, 0]).unwrap()[0].shape(), [1, 2, 1]);
        assert!(unsqueeze(&[0, -3]).is_err());
    }
}
