//! Flatten.

use crate::error::{Error, Result};
use crate::network::attr::{Preset, Read, attr};
use crate::network::op::{Decomposition, Infer, Lowering, Movement, OpDef, TensorType};
use crate::network::ops::reshape;

/// The input as a matrix (ONNX Flatten).
pub static DEF: OpDef = OpDef {
    name: "Flatten",
    doc: "The input as a matrix: dimensions before `axis` make the rows, the others the columns (ONNX Flatten)",
    inputs: &["x"],
    attrs: &[attr(
        "axis",
        Preset::Int(1),
        "the first axis that goes into the columns",
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
    let x = infer.input(0)?;
    let (axis, rank) = (infer.attrs.int("axis"), x.rank() as i64);
    if !(-rank..=rank).contains(&axis) {
        return Err(Error::shape("axis is out of range")
            .expected(format!("{}..={rank}", -rank))
            .got(axis.to_string()));
    }
    let (rows, columns) = x.shape.split_at((if axis < 0 { axis + rank } else { axis }) as usize);
    let elements = |dims: &[_]| TensorType::new(x.dtype, dims).elements();
    Ok(vec![reshape::same(x, vec![elements(rows), elements(columns)])])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Network;
    use crate::network::attr::Attrs;
    use crate::network::dtype::DType;

    #[test]
    fn columns_multiply() {
        let mut network = Network::new("");
        let shape = ["n", "3", "h", "w"].map(|d| d.parse().unwrap()).to_vec();
        let x = network.add_input("x", DType::Float32, shape).unwrap();
        let out = network.add_layer("f", &DEF, Attrs::new(), &[Some(x)]).unwrap()[0];
        assert_eq!(network[out].ty.describe(), "float32[n, 3*h*w]");
    }
}
