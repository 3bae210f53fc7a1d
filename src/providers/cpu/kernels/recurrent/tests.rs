//! Every op in every variant, against the reference.

use crate::network::array::Array;
use crate::network::attr::{Attr, Attrs, attrs};
use crate::network::dtype::DType;
use crate::providers::cpu::kernels::testing::Case;

/// How the operands of a case are given.
#[derive(Clone, Copy)]
struct How {
    op: &'static str,
    constant: bool,
    all: bool,
    directions: usize,
    layout: i64,
    /// Few sequences have a product of their own.
    batch: usize,
}

fn check(dtype: DType, how: How, more: Attrs) {
    let (hidden, input) = (19, 7);
    let gates = match how.op {
        "LSTM" => 4,
        "GRU" => 3,
        _ => 1,
    };
    let (d, batch) = (how.directions, how.batch);
    let mut case = Case::new(dtype);
    let x = case.input(&if how.layout == 1 {
        format!("{batch} s {input}")
    } else {
        format!("s {batch} {input}")
    });
    let weights = |case: &mut Case, shape: &[usize]| match how.constant {
        true => case.weights(shape),
        false => case.input(&shape.iter().map(usize::to_string).collect::<Vec<_>>().join(" ")),
    };
    let mut inputs = vec![
        Some(x),
        Some(weights(&mut case, &[d, gates * hidden, input])),
        Some(weights(&mut case, &[d, gates * hidden, hidden])),
    ];
    if how.all {
        inputs.push(Some(weights(&mut case, &[d, 2 * gates * hidden])));
        let lengths = Array::from_i64(
            DType::Int32,
            vec![batch],
            &[4, 0, 2, 5, 1, 3, 5, 5, 0, 1, 2, 4][..batch],
        )
        .unwrap();
        inputs.push(Some(case.constant(lengths)));
        let states = if how.layout == 1 {
            format!("{batch} {d} {hidden}")
        } else {
            format!("{d} {batch} {hidden}")
        };
        inputs.push(Some(case.input(&states)));
        if how.op == "LSTM" {
            inputs.push(Some(case.input(&states)));
            inputs.push(Some(case.input(&format!("{d} {}", 3 * hidden))));
        }
    }
    let mut given = more;
    given.insert("layout".into(), Attr::Int(how.layout));
    if d == 2 {
        given.insert("direction".into(), Attr::Text("bidirectional".into()));
    }
    for y in case.layer_of(how.op, given, &inputs) {
        case.output(y);
    }
    case.check_fast(&[("s", 5)]);
    if !how.all {
        case.check_fast(&[("s", 1)]);
        case.check_fast(&[("s", 0)]);
    }
}

#[test]
fn every_op_with_everything_and_with_nothing() {
    for op in ["LSTM", "GRU", "RNN"] {
        for dtype in [DType::Float32, DType::Float16] {
            for (constant, all, directions, layout) in [(true, false, 1, 0), (false, true, 2, 0), (true, true, 2, 1)] {
                let how = How {
                    op,
                    constant,
                    all,
                    directions,
                    layout,
                    batch: 3,
                };
                check(dtype, how, attrs([("clip", Attr::Float(if all { 0.7 } else { 0.0 }))]));
            }
        }
    }
}

#[test]
fn variants() {
    let how = |op| How {
        op,
        constant: true,
        all: true,
        directions: 1,
        layout: 0,
        batch: 3,
    };
    let text = |name: &'static str, value: &str| (name, Attr::Text(value.into()));
    check(DType::Float32, how("LSTM"), attrs([("input_forget", Attr::Int(1))]));
    for (all, batch) in [(true, 3), (false, 3), (true, 12)] {
        let how = How {
            all,
            batch,
            ..how("GRU")
        };
        check(DType::Float32, how, attrs([("linear_before_reset", Attr::Int(1))]));
    }
    for op in ["LSTM", "GRU"] {
        for batch in [1, 5, 12] {
            let how = How {
                batch,
                directions: 2,
                ..how(op)
            };
            check(DType::Float32, how, Attrs::new());
        }
    }
    check(DType::Float32, how("RNN"), attrs([text("direction", "reverse")]));
    let functions = [
        "Relu",
        "Softsign",
        "Softplus",
        "Affine",
        "LeakyRelu",
        "ThresholdedRelu",
        "ScaledTanh",
        "HardSigmoid",
        "Elu",
    ];
    for function in functions {
        let mut given = attrs([text("activations", function)]);
        if matches!(function, "Affine" | "ScaledTanh") {
            given.insert("activation_alpha".into(), Attr::Floats(vec![0.5]));
            given.insert("activation_beta".into(), Attr::Floats(vec![0.25]));
        }
        given.insert("clip".into(), Attr::Float(2.0));
        check(DType::Float32, how("RNN"), given);
    }
}
