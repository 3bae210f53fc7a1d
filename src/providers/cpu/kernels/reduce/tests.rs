use crate::network::array::Array;
use crate::network::attr::{Attr, Attrs, attrs};
use crate::network::dtype::DType;
use crate::providers::cpu::kernels::testing::Case;

const FLOATS: [&str; 9] = [
    "ReduceSum",
    "ReduceMean",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSum",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
];

fn over(axes: &[i64], keep: bool) -> Attrs {
    attrs([
        ("axes", Attr::Ints(axes.to_vec())),
        ("keepdims", Attr::Int(keep as i64)),
    ])
}

fn check(dtype: DType, op: &str, shape: &str, axes: &[i64], keep: bool, h: i64) {
    let mut case = Case::new(dtype);
    let x = case.input(shape);
    let y = case.layer(op, over(axes, keep), &[x]);
    case.output(y).check_fast(&[("h", h)]);
}

#[test]
fn any_axes_from_any_layout() {
    for axes in [&[2, 3][..], &[3], &[1], &[0], &[0, 2], &[1, 3], &[-1, 1, 2], &[2], &[]] {
        for channels in [1, 3, 16, 17, 24] {
            for keep in [true, false] {
                for (op, batch) in [("ReduceMean", 1), ("ReduceMax", 2)] {
                    check(DType::Float32, op, &format!("{batch} {channels} h 7"), axes, keep, 5);
                }
            }
        }
    }
}

#[test]
fn every_reduction_in_every_dtype() {
    for op in FLOATS {
        for dtype in [DType::Float32, DType::BFloat16, DType::Float16, DType::Float64] {
            check(dtype, op, "2 17 h 3", &[2, 3], true, 2);
            check(dtype, op, "2 h 35", &[1], false, 4);
        }
    }
    for op in [
        "ReduceSum",
        "ReduceMean",
        "ReduceL1",
        "ReduceSumSquare",
        "ReduceMax",
        "ReduceMin",
        "ReduceProd",
    ] {
        for dtype in [DType::Int64, DType::Int32, DType::UInt8, DType::Int16] {
            check(dtype, op, "2 17 h 3", &[1, 3], true, 5);
        }
    }
    check(DType::Bool, "ReduceMax", "3 h", &[1], false, 5);
}

#[test]
fn nothing_at_all_and_nothing_to_reduce() {
    for (op, axes) in [
        ("ReduceSum", &[2][..]),
        ("ReduceMax", &[2]),
        ("ReduceMin", &[1]),
        ("ReduceMean", &[2]),
    ] {
        check(DType::Float32, op, "2 3 h 4", axes, true, 0);
        check(DType::Float32, op, "2 3 h", axes, false, 0);
    }
    check(DType::Int32, "ReduceMax", "2 h", &[1], true, 0);
    check(DType::UInt8, "ReduceMin", "2 h", &[1], true, 0);
    let mut case = Case::new(DType::Float32);
    let x = case.input("2 3 h 4");
    let same = case.layer("ReduceSum", attrs([("noop_with_empty_axes", Attr::Int(1))]), &[x]);
    case.output(same).check_fast(&[("h", 3)]);
}

#[test]
fn long_reductions_are_shared_and_precise() {
    for (shape, axes) in [
        ("1 24 h 32", &[][..]),
        ("1 24 h 32", &[2, 3]),
        ("1 17 h 32", &[1, 2, 3]),
        ("300 h", &[0]),
        ("h 70 30", &[0]),
    ] {
        for op in ["ReduceSum", "ReduceSumSquare", "ReduceMin"] {
            check(DType::Float32, op, shape, axes, true, 200);
        }
    }
}

#[test]
fn nan_wins() {
    for at in [0, 3, 16, 63, 64, 70] {
        let mut values = vec![1.0; 71];
        values[at] = f64::NAN;
        for shape in [vec![1, 71], vec![71, 1], vec![1, 1, 71, 1]] {
            for op in ["ReduceMax", "ReduceMin"] {
                let mut case = Case::new(DType::Float32);
                let x = case.constant(Array::from_f64(DType::Float32, shape.clone(), &values).unwrap());
                let y = case.layer(op, over(&[], true), &[x]);
                case.output(y).check_fast(&[]);
            }
        }
    }
}

#[test]
#[ignore = "a measurement"]
fn speed() {
    for (shape, axes) in [
        ("8 2048 7 7", &[2, 3][..]),
        ("1 64 112 112", &[2, 3]),
        ("4096 768", &[1]),
        ("4096 768", &[0]),
        ("1 64 112 112", &[1]),
        ("65536 16", &[1]),
        ("3145728", &[]),
    ] {
        for (dtype, op) in [
            (DType::Float32, "ReduceMean"),
            (DType::Float32, "ReduceMax"),
            (DType::BFloat16, "ReduceMean"),
        ] {
            let mut case = Case::new(dtype);
            let x = case.input(shape);
            let y = case.layer(op, over(axes, true), &[x]);
            case.output(y).report_speed(&format!("{op} {shape} {axes:?}"));
        }
    }
}
