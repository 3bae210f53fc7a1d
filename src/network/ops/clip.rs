//! Clip.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::Attrs;
use crate::network::dtype::DType;
use crate::network::least::Least;
use crate::network::op::{Evaluate, Infer, IntegerRule, Lowering, OpDef, Pointwise, TensorType, Uint64};
use crate::network::ops::pointwise::{self, greater, lesser};
use crate::network::unsigned::bits;

/// `min(max(x, min), max)`; a bound that is left out is none (ONNX Clip).
pub static DEF: OpDef = OpDef {
    name: "Clip",
    doc: "min(max(x, min), max); a bound that is left out is none, NaN stays (ONNX Clip)",
    inputs: &["x", "min?", "max?"],
    attrs: &[],
    infer,
    evaluate,
    pointwise: Some(Pointwise {
        float: |_, v| {
            let low = if v[1].is_nan() { v[0] } else { greater(v[0], v[1]) };
            if v[2].is_nan() { low } else { lesser(low, v[2]) }
        },
        int: Some(|_, v| {
            let low = v[0].max(v[1]);
            if v[2] == i64::MIN { low } else { low.min(v[2]) }
        }),
    }),
    lowering: Lowering::COMPUTES,
    uint64: Uint64::Exact,
    least: Least::Bounds,
    ..OpDef::PLAIN
};

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    if e.input(0)?.dtype() != DType::UInt64 {
        return pointwise::evaluate(&DEF, e);
    }
    // No number of 64 bits stands for a bound that is left out.
    let int: IntegerRule = match [1, 2].map(|bound| e.optional(bound).is_some()) {
        [false, false] => |_, v| v[0],
        [true, false] => |_, v| bits(v)[0].max(bits(v)[1]) as i64,
        [false, true] => |_, v| (v[0] as u64).min(v[2] as u64) as i64,
        [true, true] => |_, v| bits(v)[0].max(bits(v)[1]).min(v[2] as u64) as i64,
    };
    let float = |_: &Attrs, v: &[f64]| v[0];
    pointwise::evaluate_rule(Pointwise { float, int: Some(int) }, DEF.inputs.len(), e)
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    for bound in (1..=2).filter_map(|i| infer.optional(i)) {
        if !bound.shape.iter().all(|d| d.is(1)) {
            return Err(Error::shape("a bound must be a scalar").got(bound.describe()));
        }
    }
    pointwise::one_way(infer, pointwise::common_number(infer)?)
}

#[cfg(test)]
mod tests {
    use crate::network::array::Array;
    use crate::network::attr::Attrs;
    use crate::network::dtype::DType;
    use crate::network::reference::evaluate_op;

    #[test]
    fn missing_bounds_are_none_and_nan_stays() {
        let x = Array::from_f64(DType::Float32, vec![3], &[-1.0, f64::NAN, 9.0]).unwrap();
        let six = Array::scalar(DType::Float32, 6.0);
        let out = evaluate_op(&super::DEF, &Attrs::new(), &[Some(x), None, Some(six)]).unwrap();
        let out = out[0].to_f64();
        assert!(out[0] == -1.0 && out[1].is_nan() && out[2] == 6.0);
        let ints = Array::ints(&[-5, 5]);
        let out = evaluate_op(&super::DEF, &Attrs::new(), &[Some(ints), Some(Array::ints(&[0]))]).unwrap();
        assert_eq!(out[0].to_i64(), [0, 5]);
    }
}
