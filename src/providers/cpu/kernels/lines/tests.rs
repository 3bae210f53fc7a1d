use super::*;
use crate::network::array::Array;
use crate::network::attr::{Attr, Attrs, attrs};
use crate::plan::Tactic;
use crate::plan::layout::Operand;
use crate::providers::cpu::kernels::testing::Case;

const DTYPES: [DType; 6] = [
    DType::Float32,
    DType::BFloat16,
    DType::Float64,
    DType::Int64,
    DType::Int32,
    DType::UInt8,
];

fn flags<const N: usize>(pairs: [(&str, i64); N]) -> Attrs {
    attrs(pairs.map(|(name, value)| (name, Attr::Int(value))))
}

#[test]
fn the_best_place_along_any_axis() {
    for dtype in DTYPES {
        for op in ["ArgMax", "ArgMin"] {
            for (shape, axis) in [
                ("2 17 h 7", 1),
                ("2 3 h", -1),
                ("h 70", 0),
                ("2 24 h 3", 2),
                ("h", 0),
                ("2 1 h", 1),
            ] {
                for last in [0, 1] {
                    let mut case = Case::new(dtype);
                    let x = case.input(shape);
                    let how = flags([("axis", axis), ("keepdims", last), ("select_last_index", last)]);
                    let y = case.layer(op, how, &[x]);
                    case.output(y).check_fast(&[("h", 5)]);
                }
            }
        }
    }
}

#[test]
fn nan_is_the_best() {
    for at in [0, 3, 40] {
        for shape in [vec![41, 1], vec![1, 41], vec![41]] {
            for last in [0, 1] {
                let mut values = vec![1.0; 41];
                (values[at], values[20]) = (f64::NAN, f64::NAN);
                let mut case = Case::new(DType::Float32);
                let x = case.constant(Array::from_f64(DType::Float32, shape.clone(), &values).unwrap());
                let axis = shape.iter().position(|&d| d > 1).unwrap() as i64;
                let y = case.layer("ArgMin", flags([("axis", axis), ("select_last_index", last)]), &[x]);
                case.output(y).check_fast(&[]);
            }
        }
    }
}

#[test]
fn running_sums_and_products() {
    for dtype in DTYPES {
        for (op, axis) in [0, 1, -1]
            .into_iter()
            .flat_map(|axis| [("CumSum", axis), ("CumProd", axis)])
        {
            for (exclusive, reverse) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
                for h in [5, 0] {
                    let mut case = Case::new(dtype);
                    let x = case.input("3 h 70");
                    let axis = case.constant(Array::ints(&[axis]));
                    let how = flags([("exclusive", exclusive), ("reverse", reverse)]);
                    let y = case.layer(op, how, &[x, axis]);
                    case.output(y).check_fast(&[("h", h)]);
                }
            }
        }
    }
}

#[test]
fn the_best_few() {
    for dtype in DTYPES {
        for (axis, k) in [(0, 2), (1, 5), (-1, 3), (-1, 70), (1, 0), (0, 1)] {
            for largest in [0, 1] {
                let mut case = Case::new(dtype);
                let x = case.input("3 h 70");
                let k = case.constant(Array::ints(&[k]));
                let how = flags([("axis", axis), ("largest", largest)]);
                let outs = case.layer_of("TopK", how, &[Some(x), Some(k)]);
                case.output(outs[0]).output(outs[1]).check_fast(&[("h", 6)]);
                case.check_fast(&[("h", 7)]);
            }
        }
    }
}

#[test]
#[ignore = "a measurement"]
fn speed() {
    for (op, shape, axis) in [
        ("ArgMax", "1 21 512 512", 1),
        ("ArgMax", "1000 4096", 1),
        ("TopK", "100 10000", 1),
        ("CumSum", "1000 4096", 1),
        ("CumSum", "1000 4096", 0),
    ] {
        let mut case = Case::new(DType::Float32);
        let x = case.input(shape);
        let (number, along) = match op {
            "TopK" => (case.constant(Array::ints(&[10])), flags([("axis", axis)])),
            _ => (case.constant(Array::ints(&[axis])), Attrs::new()),
        };
        let y = match op {
            "ArgMax" => case.layer(op, flags([("axis", axis)]), &[x]),
            _ => case.layer(op, along, &[x, number]),
        };
        case.output(y).report_speed(&format!("{op} {shape} axis {axis}"));
    }
}

/// Lines that are loaded in several parts.
#[test]
fn long_lines() {
    let sorted = |outs: &[crate::network::TensorId], case: &mut Case| {
        for &out in outs {
            case.output(out);
        }
    };
    for dtype in [DType::Float32, DType::BFloat16, DType::Int64] {
        for (shape, length) in [("h", 40_000), ("2 h 3", 9_000), ("h 70", 1_100)] {
            for flag in [0, 1] {
                let axis = shape.split(' ').position(|d| d == "h").unwrap() as i64;
                let mut case = Case::new(dtype);
                let x = case.input(shape);
                let how = flags([("axis", axis), ("select_last_index", flag)]);
                let best = case.layer("ArgMax", how, &[x]);
                let along = case.constant(Array::ints(&[axis]));
                let running = case.layer("CumSum", flags([("reverse", flag), ("exclusive", flag)]), &[x, along]);
                sorted(&[best, running], &mut case);
                for k in [3, length * 8 / 9] {
                    let k = case.constant(Array::ints(&[k]));
                    let how = flags([("axis", axis), ("largest", flag)]);
                    let outs = case.layer_of("TopK", how, &[Some(x), Some(k)]);
                    sorted(&outs, &mut case);
                }
                case.check_fast(&[("h", length)]);
            }
        }
    }
}

#[test]
fn nan_is_the_best_wherever_it_is_loaded() {
    for at in [[0, 39_999], [5, 20_000], [16_383, 16_384]] {
        for last in [0, 1] {
            let mut values = vec![1.0; 40_000];
            at.into_iter().for_each(|i| values[i] = f64::NAN);
            let mut case = Case::new(DType::Float32);
            let x = case.constant(Array::from_f64(DType::Float32, vec![40_000], &values).unwrap());
            let y = case.layer("ArgMin", flags([("select_last_index", last)]), &[x]);
            let k = case.constant(Array::ints(&[3]));
            let outs = case.layer_of("TopK", flags([("largest", last)]), &[Some(x), Some(k)]);
            case.output(y).output(outs[0]).output(outs[1]).check_fast(&[]);
        }
    }
}

/// What a thread holds does not grow with its lines: a thousand million elements abort no process.
#[test]
fn lines_of_any_length_take_little_memory() {
    let request = |shape: Vec<usize>, kept: usize, run: &dyn Fn(&Request)| {
        let form = Form {
            tactic: Tactic::ONLY,
            inputs: vec![Layout::Plain],
            outputs: vec![Layout::Plain; 2],
        };
        let inputs = [Operand::dense(DType::Float32, shape.clone(), Layout::Plain)];
        let outputs = [DType::Float32, DType::Int64].map(|dtype| {
            let shape = [&[kept], &shape[1..]].concat();
            Operand::dense(dtype, shape, Layout::Plain)
        });
        run(&Request {
            form: &form,
            inputs: &inputs,
            outputs: &outputs,
            binding: &Default::default(),
            opt: &Default::default(),
            threads: 4,
        });
    };
    let how = How {
        product: false,
        exclusive: false,
        reverse: false,
    };
    let workspace = |rule: Rule, request: &Request| {
        let rank = request.inputs[0].shape.len();
        let lines = Lines {
            name: "",
            rule,
            axis: 0,
            rank,
        };
        lines.prepare(request).and_then(Prepared::finish).unwrap().workspace
    };
    for shape in [vec![1 << 30], vec![1 << 24, 64]] {
        request(shape, 100, &|request| {
            let [greatest, last] = [true, false];
            assert_eq!(workspace(Rule::Arg { greatest, last }, request), 0);
            assert_eq!(workspace(Rule::Cumulative(how), request), 0);
            assert_eq!(workspace(Rule::TopK { greatest }, request), 0);
        });
    }
    // What is sorted whole lies in the workspace, which the plan counts.
    request(vec![1 << 24], 1 << 24, &|request| {
        assert!(workspace(Rule::TopK { greatest: true }, request) >= 16 << 24);
    });
}
