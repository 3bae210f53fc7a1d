use crate::network::array::Array;
use crate::network::attr::{Attr, Attrs, attrs};
use crate::network::dtype::DType;
use crate::providers::cpu::kernels::testing::Case;

fn text(name: &str, value: &str) -> Attrs {
    attrs([(name, Attr::Text(value.into()))])
}

fn linear() -> Attrs {
    text("mode", "linear")
}

fn case(dtype: DType, shape: &str, attrs: Attrs, scales: &[f64]) -> Case {
    let mut case = Case::new(dtype);
    let x = case.input(shape);
    let scales = case.constant(Array::from_f64(DType::Float32, vec![scales.len()], scales).unwrap());
    let y = case.layer_of("Resize", attrs, &[Some(x), None, Some(scales)])[0];
    case.output(y);
    case
}

fn check(dtype: DType, shape: &str, attrs: Attrs, scales: &[f64]) {
    case(dtype, shape, attrs, scales).check_fast(&[("h", 5)]);
}

#[test]
fn every_mode_at_every_number_of_channels() {
    for channels in [1, 3, 16, 17, 24] {
        for mode in ["nearest", "linear", "cubic"] {
            for scales in [[2.0, 2.0], [0.6, 1.5], [1.0, 3.0], [1.7, 1.0]] {
                let shape = format!("2 {channels} h 7");
                check(
                    DType::Float32,
                    &shape,
                    text("mode", mode),
                    &[1.0, 1.0, scales[0], scales[1]],
                );
            }
        }
    }
}

#[test]
fn every_transformation_and_rounding() {
    for transformation in [
        "half_pixel",
        "half_pixel_symmetric",
        "pytorch_half_pixel",
        "align_corners",
        "asymmetric",
    ] {
        for nearest in ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"] {
            let mut attrs = text("coordinate_transformation_mode", transformation);
            attrs.extend(text("nearest_mode", nearest));
            check(DType::Float32, "1 5 h 9", attrs.clone(), &[1.0, 1.0, 1.4, 0.7]);
            attrs.extend(linear());
            check(DType::Float32, "1 5 h 9", attrs.clone(), &[1.0, 1.0, 1.4, 0.7]);
            attrs.extend(text("mode", "cubic"));
            attrs.extend([("exclude_outside".to_string(), Attr::Int(1))]);
            check(DType::Float32, "1 5 h 9", attrs, &[1.0, 1.0, 1.4, 0.7]);
        }
    }
}

#[test]
fn other_dtypes() {
    for dtype in [DType::BFloat16, DType::Float16] {
        check(dtype, "2 17 h 3", linear(), &[1.0, 1.0, 2.0, 1.5]);
        check(dtype, "2 17 h 3", Attrs::new(), &[1.0, 1.0, 2.0, 1.5]);
    }
    for dtype in [DType::UInt8, DType::Int32, DType::Int64, DType::Float64] {
        check(dtype, "2 17 h 3", Attrs::new(), &[1.0, 1.0, 2.0, 1.5]);
    }
}

#[test]
fn one_and_three_axes_and_the_leading_ones() {
    for mode in ["nearest", "linear"] {
        check(DType::Float32, "2 3 h", text("mode", mode), &[1.0, 1.0, 2.5]);
        check(
            DType::Float32,
            "2 17 h 3 4",
            text("mode", mode),
            &[1.0, 1.0, 2.0, 1.5, 3.0],
        );
        check(DType::Float32, "2 3 h 3", text("mode", mode), &[2.0, 3.0, 1.0, 1.5]);
        check(DType::Float32, "h 3", text("mode", mode), &[2.0, 1.0]);
        check(DType::Float32, "2 3 h", text("mode", mode), &[1.0, 1.0, 1.0]);
    }
}

#[test]
fn extents_may_be_given_and_be_nothing() {
    for mode in ["nearest", "linear"] {
        let mut case = Case::new(DType::Float32);
        let x = case.input("1 17 h 4");
        let sizes = case.constant(Array::ints(&[1, 17, 7, 6]));
        let y = case.layer_of("Resize", text("mode", mode), &[Some(x), None, None, Some(sizes)])[0];
        case.output(y).check_fast(&[("h", 5)]);
        let attrs = text("mode", mode);
        self::case(DType::Float32, "1 3 h 4", attrs, &[1.0, 1.0, 2.0, 1.5]).check_fast(&[("h", 0)]);
    }
}

#[test]
#[ignore = "a measurement"]
fn speed() {
    for (shape, scales) in [
        ("1 64 80 80", [2.0, 2.0]),
        ("1 3 480 640", [0.5, 0.5]),
        ("1 256 20 20", [2.0, 2.0]),
    ] {
        for mode in ["nearest", "linear", "cubic"] {
            let scales = [1.0, 1.0, scales[0], scales[1]];
            case(DType::Float32, shape, text("mode", mode), &scales).report_speed(&format!("{mode} {shape}"));
        }
        let scales = [1.0, 1.0, scales[0], scales[1]];
        case(DType::BFloat16, shape, linear(), &scales).report_speed(&format!("bf16 linear {shape}"));
    }
}
