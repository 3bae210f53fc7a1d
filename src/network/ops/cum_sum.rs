//! CumSum.

use crate::error::Result;
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::op::{Decomposition, Evaluate, Infer, OpDef, TensorType};
use crate::network::ops::pointwise;
use crate::network::ops::reduce::Groups;

/// Sums of all elements up to each along an axis (ONNX CumSum).
pub static DEF: OpDef = OpDef {
    name: "CumSum",
    doc: "Sums of all elements up to each along an axis; integers wrap (ONNX CumSum, whose axis is an attribute here)",
    inputs: &["x"],
    attrs: &[
        attr("axis", Preset::RequiredInt, "the axis along which to sum"),
        attr("exclusive", Preset::Int(0), "leave the element itself out"),
        attr("reverse", Preset::Int(0), "sum from the back"),
    ],
    infer,
    evaluate,
    pointwise: None,
    decomposition: Decomposition::None,
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    infer.input(0)?.axis(infer.attrs.int("axis"))?;
    pointwise::infer_same(infer)
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (x, (dtype, shape)) = (e.input(0)?, &e.outputs[0]);
    if x.dtype().is_float() {
        return e.output(&sums(e, &x.to_f64(), 0.0, |a, b| a + b)?);
    }
    let sums = sums(e, &x.to_i64(), 0, i64::wrapping_add)?;
    Ok(vec![Array::from_i64(*dtype, shape.clone(), &sums)?])
}

fn sums<T: Copy>(e: &Evaluate, data: &[T], zero: T, add: fn(T, T) -> T) -> Result<Vec<T>> {
    let x = crate::network::constant_type(e.input(0)?);
    let groups = Groups::new(e.input(0)?.shape(), &[x.axis(e.attrs.int("axis"))?]);
    let (reverse, exclusive) = (e.attrs.flag("reverse"), e.attrs.flag("exclusive"));
    let mut out = data.to_vec();
    for mut places in groups.iter() {
        if reverse {
            places.reverse();
        }
        let mut sum = zero;
        for at in places {
            let next = add(sum, data[at]);
            out[at] = if exclusive { sum } else { next };
            sum = next;
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::network::reference::evaluate_op;

    #[test]
    fn both_directions() {
        let run = |exclusive, reverse| {
            let flags = [("axis", 0), ("exclusive", exclusive), ("reverse", reverse)];
            let x = Some(Array::ints(&[1, 2, 3]));
            evaluate_op(&DEF, &attrs(flags.map(|(n, v)| (n, Attr::Int(v)))), &[x]).unwrap()[0].to_i64()
        };
        assert_eq!(
            [run(0, 0), run(1, 0), run(0, 1), run(1, 1)],
            [[1, 3, 6], [0, 1, 3], [6, 5, 3], [5, 3, 0]]
        );
    }
}
