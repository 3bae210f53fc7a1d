use crate::network::array::Array;
use crate::network::attr::{Attr, Attrs, attrs};
use crate::network::dtype::DType;
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
