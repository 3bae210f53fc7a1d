//! BitShift.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attrs, Preset, Read, attr};
use crate::network::dtype::DType;
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, Pointwise, TensorType, Uint64};
use crate::network::ops::pointwise;

/// The bits of an integer moved (ONNX BitShift).
pub static DEF: OpDef = OpDef {
    name: "BitShift",
    doc: "The bits of a moved by b places, with broadcasting; to the right the sign moves in, and so it does for a b \
          that is negative or as large as there are bits (ONNX BitShift)",
    inputs: &["a", "b"],
    attrs: &[attr("direction", Preset::Text("LEFT"), "LEFT or RIGHT")],
    infer,
    evaluate,
    pointwise: Some(SIGNED),
    lowering: Lowering::WIDE,
    uint64: Uint64::Exact,
    ..OpDef::PLAIN
};

const SIGNED: Pointwise = Pointwise {
    float: |attrs, v| shifted(attrs, v[0] as i64, v[1] as i64, i64::wrapping_shr) as f64,
    int: Some(|attrs, v| shifted(attrs, v[0], v[1], i64::wrapping_shr)),
};

/// uint64 comes as the bits of an int64.
const UNSIGNED: Pointwise = Pointwise {
    float: SIGNED.float,
    int: Some(|attrs, v| shifted(attrs, v[0], v[1], |a, b| (a as u64).wrapping_shr(b) as i64)),
};

fn shifted(attrs: &Attrs, a: i64, b: i64, right: fn(i64, u32) -> i64) -> i64 {
    match (attrs.text("direction"), (0..64).contains(&b)) {
        ("LEFT", true) => a << b,
        ("LEFT", false) => 0,
        (_, true) => right(a, b as u32),
        (_, false) => right(right(a, 63), 1),
    }
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    match infer.attrs.text("direction") {
        "LEFT" | "RIGHT" => pointwise::infer_integer(infer),
        other => Err(Error::invalid("attribute \"direction\" is unknown")
            .expected("LEFT or RIGHT")
            .got(other)),
    }
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let unsigned = e.input(0)?.dtype() == DType::UInt64;
    pointwise::evaluate_rule(if unsigned { UNSIGNED } else { SIGNED }, 2, e)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::network::reference::evaluate_op;

    #[test]
    fn the_sign_moves_in_from_the_left() {
        let run = |direction: &str, a: &[i64], b: &[i64]| {
            let attrs = attrs([("direction", Attr::Text(direction.into()))]);
            let int8 = |v: &[i64]| Array::from_i64(DType::Int8, vec![v.len()], v).ok();
            evaluate_op(&DEF, &attrs, &[int8(a), int8(b)]).unwrap()[0].to_i64()
        };
        assert_eq!(run("RIGHT", &[-8, 4, -1, -8], &[1, 9, 127, -1]), [-4, 0, -1, -1]);
        assert_eq!(run("LEFT", &[64, 1, -8], &[1, 7, 8]), [-128, -128, 0]);
    }
}
