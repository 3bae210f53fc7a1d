//! CumProd.

use crate::network::op::{Lowering, OpDef, Uint64};
use crate::network::ops::cumulative::{self, Fold};

/// Products of all elements up to each along an axis (ONNX CumProd).
pub static DEF: OpDef = OpDef {
    name: "CumProd",
    doc: "Products of all elements up to each along an axis; integers wrap (ONNX CumProd)",
    inputs: &["x", "axis"],
    attrs: cumulative::ATTRS,
    infer: cumulative::infer,
    evaluate: |e| cumulative::evaluate(e, &FOLD),
    lowering: Lowering::WIDE,
    uint64: Uint64::Exact,
    ..OpDef::PLAIN
};

const FOLD: Fold = Fold {
    float: (1.0, |a, b| a * b),
    int: (1, i64::wrapping_mul),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::array::Array;
    use crate::network::attr::{Attr, attrs};
    use crate::network::reference::evaluate_op;

    #[test]
    fn both_directions() {
        let run = |exclusive, reverse| {
            let flags = [("exclusive", exclusive), ("reverse", reverse)];
            let inputs = [Some(Array::ints(&[1, 2, 3])), Some(Array::ints(&[0]))];
            evaluate_op(&DEF, &attrs(flags.map(|(n, v)| (n, Attr::Int(v)))), &inputs).unwrap()[0].to_i64()
        };
        assert_eq!(
            [run(0, 0), run(1, 0), run(0, 1), run(1, 1)],
            [[1, 2, 6], [1, 1, 2], [6, 6, 3], [6, 3, 1]]
        );
    }
}
