//! Split.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::op::{Evaluate, Infer, Lowering, Movement, OpDef, TensorType};
use crate::network::ops::{indexing, values};

/// Consecutive parts of the input along an axis (ONNX Split).
pub static DEF: OpDef = OpDef {
    name: "Split",
    doc: "Consecutive parts of the input along an axis, one output each (ONNX Split)",
    inputs: &["x"],
    attrs: &[
        attr("axis", Preset::Int(0), "the axis to split"),
        attr("split", Preset::RequiredInts, "the extent of each part"),
    ],
    infer,
    evaluate,
    lowering: Lowering::COMPUTES,
    movement: Movement::Slice,
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (x, parts) = (infer.input(0)?, infer.attrs.ints("split"));
    let axis = x.axis(infer.attrs.int("axis"))?;
    if parts.is_empty() || parts.iter().any(|&p| p < 0) {
        return Err(Error::invalid("the parts of a split must be extents").got(format!("{parts:?}")));
    }
    let total = parts.iter().sum::<i64>().into();
    infer.require_equal(&x.shape[axis], &total, "the parts of a split make up the whole")?;
    let part = |&extent: &i64| {
        let mut shape = x.shape.clone();
        shape[axis] = extent.into();
        TensorType::new(x.dtype, shape)
    };
    let outputs = parts.iter().map(part).collect();
    Ok(values::moved(infer, &[0], outputs, evaluate))
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let x = e.input(0)?;
    let axis = crate::network::constant_type(x).axis(e.attrs.int("axis"))?;
    let mut first = 0;
    let part = |(_, shape): &(_, Vec<usize>)| {
        let range = first..first + shape[axis];
        first = range.end;
        indexing::pick(
            x,
            shape.clone(),
            &indexing::along_axis(x.shape(), axis, range.collect()),
        )
    };
    e.outputs.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::network::reference::evaluate_op;

    #[test]
    fn parts_follow_each_other() {
        let split = |parts: &[i64]| {
            let attrs = attrs([("axis", Attr::Int(-1)), ("split", Attr::Ints(parts.to_vec()))]);
            evaluate_op(&DEF, &attrs, &[Some(Array::ints(&[1, 2, 3]))])
        };
        let out = split(&[1, 0, 2]).unwrap();
        assert_eq!(
            out.iter().map(Array::to_i64).collect::<Vec<_>>(),
            [vec![1], vec![], vec![2, 3]]
        );
        assert!(split(&[1, 1]).is_err());
    }
}
