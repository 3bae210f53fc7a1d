//! Mod.

use crate::error::Result;
use crate::network::attr::{Preset, Read, attr};
use crate::network::op::{Infer, Lowering, OpDef, Pointwise, TensorType, Uint64};
use crate::network::ops::{pointwise, values};
use crate::network::unsigned::bits;

/// What division leaves, with the sign of the divisor or of the dividend (ONNX Mod).
pub static DEF: OpDef = OpDef {
    name: "Mod",
    doc: "What division leaves, with the sign of the divisor; integers by 0 give 0 (ONNX Mod)",
    inputs: &["a", "b"],
    attrs: &[attr(
        "fmod",
        Preset::Int(0),
        "with the sign of the dividend, as C's fmod",
    )],
    infer,
    evaluate,
    pointwise: Some(Pointwise {
        float: |attrs, v| {
            let rest = v[0] % v[1];
            let other_sign = rest != 0.0 && (rest < 0.0) != (v[1] < 0.0);
            if other_sign && !attrs.flag("fmod") {
                rest + v[1]
            } else {
                rest
            }
        },
        int: Some(|attrs, v| {
            let rest = if v[1] == 0 { 0 } else { v[0].wrapping_rem(v[1]) };
            let other_sign = rest != 0 && (rest < 0) != (v[1] < 0);
            if other_sign && !attrs.flag("fmod") {
                rest + v[1]
            } else {
                rest
            }
        }),
    }),
    lowering: Lowering::WIDE.exact(&[0, 1]),
    uint64: Uint64::Rule(|_, v| bits(v)[0].checked_rem(bits(v)[1]).unwrap_or(0) as i64),
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let outputs = pointwise::infer_same(infer)?;
    Ok(pointwise::combine_values(infer, outputs, |v| {
        let decided = values::bounds(&v[0]).0 >= 0 || !infer.attrs.flag("fmod");
        let positive = values::bounds(&v[1]).0 > 0 || v[1].as_symbol().is_some();
        (decided && positive).then(|| v[0].modulo(&v[1]))
    }))
}

#[cfg(test)]
mod tests {
    use crate::network::array::Array;
    use crate::network::attr::{Attr, attrs};
    use crate::network::reference::evaluate_op;

    #[test]
    fn the_sign_follows_the_divisor_or_the_dividend() {
        let run = |fmod| {
            let (a, b) = (Array::ints(&[-7, 7, -7, 5]), Array::ints(&[3, -3, -3, 0]));
            let attrs = attrs([("fmod", Attr::Int(fmod))]);
            evaluate_op(&super::DEF, &attrs, &[Some(a), Some(b)]).unwrap()[0].to_i64()
        };
        assert_eq!(run(0), [2, -2, -1, 0]);
        assert_eq!(run(1), [-1, 1, -1, 0]);
    }
}
