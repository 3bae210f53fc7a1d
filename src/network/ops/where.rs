//! Where.

use crate::error::{Error, Result};
use crate::network::dtype::DType;
use crate::network::op::{Infer, Lowering, Movement, OpDef, Pointwise, TensorType};
use crate::network::ops::{pointwise, values};

/// `x` where the condition holds, else `y` (ONNX Where).
pub static DEF: OpDef = OpDef {
    name: "Where",
    doc: "x where the condition holds, else y, with broadcasting (ONNX Where)",
    inputs: &["condition", "x", "y"],
    attrs: &[],
    infer,
    evaluate,
    pointwise: Some(Pointwise {
        float: |_, v| if v[0] != 0.0 { v[1] } else { v[2] },
        int: Some(|_, v| if v[0] != 0 { v[1] } else { v[2] }),
    }),
    lowering: Lowering::COMPUTES,
    movement: Movement::Select,
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (condition, x, y) = (infer.input(0)?, infer.input(1)?, infer.input(2)?);
    if condition.dtype != DType::Bool {
        return Err(Error::dtype("the condition must be bool")
            .got(condition.dtype.name())
            .hint("insert a Cast"));
    }
    pointwise::same_dtype(&[x, y])?;
    let shape = infer.broadcast(&[&condition.shape, &x.shape, &y.shape])?;
    let outputs = vec![TensorType::new(x.dtype, shape)];
    Ok(values::moved(infer, &[1, 2], outputs, evaluate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::array::Array;
    use crate::network::attr::Attrs;
    use crate::network::ops::{equal, shape};
    use crate::network::{Network, TensorId};

    /// What torch writes for `x.expand(n, -1)`: the shape, with 1 for -1.
    #[test]
    fn a_condition_on_dimensions_is_decided() {
        let mut network = Network::new("");
        let dims = ["n", "3"].map(|d| d.parse().unwrap()).to_vec();
        let x = network.add_input("x", DType::Float32, dims).unwrap();
        let three = network.add_constant("", Array::ints(&[3]));
        let minus = network.add_constant("", Array::ints(&[-1]));
        let ones = network.add_constant("", Array::ints(&[1, 1]));
        let mut layer = |op, inputs: &[_]| {
            let inputs: Vec<_> = inputs.iter().map(|&t| Some(t)).collect();
            network.add_layer("", op, Attrs::new(), &inputs).unwrap()[0]
        };
        let s = layer(&shape::DEF, &[x]);
        let open = layer(&equal::DEF, &[s, minus]);
        let kept = layer(&DEF, &[open, ones, s]);
        let unsure = layer(&equal::DEF, &[s, three]);
        let value = |t: TensorId| network[t].ty.value.clone();
        assert_eq!(value(kept), value(s));
        assert_eq!(value(unsure), None);
    }
}
