//! CumSum.

use crate::network::op::{Lowering, OpDef, Uint64};
use crate::network::ops::cumulative::{self, Fold};

/// Sums of all elements up to each along an axis (ONNX CumSum).
pub static DEF: OpDef = OpDef {
    name: "CumSum",
    doc: "Sums of all elements up to each along an axis; integers wrap (ONNX CumSum)",
    inputs: &["x", "axis"],
    attrs: cumulative::ATTRS,
    infer: cumulative::infer,
    evaluate: |e| cumulative::evaluate(e, &FOLD),
    lowering: Lowering::COUNTS.exact(&[0]),
    uint64: Uint64::Exact,
    ..OpDef::PLAIN
};

const FOLD: Fold = Fold {
    float: (0.0, |a, b| a + b),
    int: (0, i64::wrapping_add),
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
            [[1, 3, 6], [0, 1, 3], [6, 5, 3], [5, 3, 0]]
        );
    }
}
