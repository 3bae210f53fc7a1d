//! Softmax.

use crate::error::Result;
use crate::network::array::Array;
use crate::network::attr::{AttrDef, Preset, Read, attr};
use crate::network::least::Least;
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType};
use crate::network::ops::{normalization, pointwise, reduce};

/// `axis`, the last one by default.
pub const AXIS: AttrDef = attr("axis", Preset::Int(-1), "the axis along which elements belong together");

/// `exp(x) / sum(exp(x))` along an axis (ONNX Softmax).
pub static DEF: OpDef = OpDef {
    name: "Softmax",
    doc: "exp(x) / sum(exp(x)) along an axis (ONNX Softmax)",
    inputs: &["x"],
    attrs: &[AXIS],
    infer,
    evaluate: |e| {
        evaluate_along(e, |group, greatest, sum| {
            group.iter_mut().for_each(|v| *v = (*v - greatest).exp() / sum);
        })
    },
    lowering: Lowering::BEARS,
    least: Least::Unit,
    ..OpDef::PLAIN
};

/// The rule of ops along one axis that keep the shape.
pub(super) fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let x = normalization::same_float(infer)?;
    x.axis(infer.attrs.int("axis"))?;
    Ok(vec![x])
}

/// Runs `finish` on each group of elements with its greatest and `sum(exp(x - greatest))`.
pub(super) fn evaluate_along(e: &Evaluate, finish: fn(&mut [f64], f64, f64)) -> Result<Vec<Array>> {
    let axis = crate::network::constant_type(e.input(0)?).axis(e.attrs.int("axis"))?;
    reduce::map(e, &[axis], |group| {
        let greatest = group.iter().copied().fold(f64::NEG_INFINITY, pointwise::greater);
        let sum = group.iter().map(|v| (v - greatest).exp()).sum();
        finish(group, greatest, sum);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::network::dtype::DType;
    use crate::network::reference::evaluate_op;

    #[test]
    fn large_inputs_do_not_overflow() {
        let x = Array::from_f64(DType::Float32, vec![2, 2], &[1000.0, 0.0, 1000.0, 0.0]).unwrap();
        let out = evaluate_op(&DEF, &attrs([("axis", Attr::Int(0))]), &[Some(x)]).unwrap();
        assert_eq!(out[0].to_f64(), [0.5; 4]);
    }
}
