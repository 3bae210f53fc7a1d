//! Expand.

use crate::error::Result;
use crate::network::array::Array;
use crate::network::op::{Evaluate, Infer, Lowering, Movement, OpDef, TensorType};
use crate::network::ops::{indexing, pointwise, values};

/// The input broadcast together with a shape (ONNX Expand).
pub static DEF: OpDef = OpDef {
    name: "Expand",
    doc: "The input broadcast together with a shape: a 1 in either takes the other's dimension (ONNX Expand)",
    inputs: &["x", "shape"],
    attrs: &[],
    infer,
    evaluate,
    lowering: Lowering::COMPUTES,
    movement: Movement::Broadcast,
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let x = infer.input(0)?;
    let target = values::target(infer, 1)?;
    let outputs = vec![TensorType::new(x.dtype, infer.broadcast(&[&x.shape, &target])?)];
    Ok(values::moved(infer, &[0], outputs, evaluate))
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (x, shape) = (e.input(0)?, &e.outputs[0].1);
    let places = pointwise::broadcast_places(x.shape(), shape);
    Ok(vec![indexing::pick(x, shape.clone(), &places)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::Attrs;
    use crate::network::reference::evaluate_op;

    #[test]
    fn ones_on_either_side_give_way() {
        let x = Array::ints(&[1, 2]).reshaped(vec![2, 1]).unwrap();
        let expand = |shape: &[i64]| evaluate_op(&DEF, &Attrs::new(), &[Some(x.clone()), Some(Array::ints(shape))]);
        let out = expand(&[2, 1, 2]).unwrap();
        assert_eq!(
            (out[0].shape(), out[0].to_i64()),
            (&[2, 2, 2][..], vec![1, 1, 2, 2, 1, 1, 2, 2])
        );
        assert!(expand(&[3, 1]).is_err());
    }
}
