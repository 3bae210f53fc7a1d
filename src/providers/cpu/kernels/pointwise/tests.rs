use crate::network::TensorId;
use crate::network::array::Array;
use crate::network::attr::{Attr, Attrs, attrs};
use crate::network::dtype::DType;
use crate::plan::layout::Layout;
use crate::providers::cpu::kernels::testing::Case;

const SHAPES: [(&str, i64, i64); 5] = [
    ("1 1 h 5", 3, 0),
    ("2 3 h 7", 5, 0),
    ("n 16 h 3", 4, 2),
    ("2 17 h 9", 41, 0),
    ("1 24 h 64", 8, 0),
];

fn sizes(h: i64, n: i64) -> [(&'static str, i64); 2] {
    [("h", h), ("n", n)]
}

#[test]
fn functions_of_one_tensor() {
    let plain = [
        "Neg",
        "Abs",
        "Exp",
        "Tanh",
        "Sigmoid",
        "Relu",
        "Silu",
        "HardSwish",
        "HardSigmoid",
        "LeakyRelu",
        "Elu",
        "Selu",
        "Celu",
        "Mish",
        "Softplus",
        "Softsign",
        "ThresholdedRelu",
        "Floor",
        "Ceil",
        "Round",
        "Sign",
        "Sin",
        "Cos",
        "Tan",
        "Reciprocal",
        "Cosh",
        "Asinh",
        "Erf",
        "Gelu",
    ];
    for op in plain {
        if crate::network::ops::find(op).is_err() {
            continue;
        }
        let mut case = Case::new(DType::Float32);
        let x = case.input("1 17 h 3");
        let y = case.op(op, &[x]);
        case.output(y).check_fast(&[("h", 5)]);
    }
}

#[test]
fn gates_biases_and_residuals_in_every_layout() {
    for dtype in [DType::Float32, DType::BFloat16] {
        for (dims, h, n) in SHAPES {
            let channels: usize = dims.split(' ').nth(1).unwrap().parse().unwrap();
            let mut case = Case::new(dtype);
            let x = case.input(dims);
            let skip = case.input(dims);
            let gate = case.input(&format!("1 {channels} 1 1"));
            let row = case.input("1 1 h 1");
            let bias = case.weights(&[channels, 1, 1]);
            let a = case.op("Mul", &[x, gate]);
            let b = case.op("Add", &[a, bias]);
            let c = case.op("Sigmoid", &[b]);
            let d = case.op("Mul", &[b, c]);
            let e = case.op("Add", &[d, skip]);
            let f = case.op("Sub", &[e, row]);
            case.output(d).output(f);
            let names = case.check_fast(&sizes(h, n));
            assert!(names.iter().any(|n| n == "Mul+Add+Sigmoid+Mul+Add+Sub"), "{names:?}");
        }
    }
}

#[test]
fn broadcasting_over_several_axes() {
    let mut case = Case::new(DType::Float32);
    let x = case.input("3 1 h 1 6");
    let y = case.input("4 1 5 1");
    let z = case.op("Mul", &[x, y]);
    let z = case.op("Exp", &[z]);
    case.output(z).check_fast(&[("h", 70)]);
}

#[test]
fn integers_bools_and_casts() {
    let mut case = Case::new(DType::Int64);
    let x = case.input("2 h 7");
    let y = case.input("h 1");
    let sum = case.op("Add", &[x, y]);
    let less = case.op("Less", &[sum, y]);
    let small = case.layer("Cast", attrs([("to", Attr::Type(DType::UInt8))]), &[sum]);
    let float = case.layer("Cast", attrs([("to", Attr::Type(DType::Float32))]), &[sum]);
    let back = case.layer("Cast", attrs([("to", Attr::Type(DType::Int32))]), &[float]);
    let not = case.op("Not", &[less]);
    for t in [less, small, back, not] {
        case.output(t);
    }
    case.check_fast(&[("h", 111)]);
}

#[test]
fn clips_and_powers_take_their_constants_in() {
    let mut case = Case::new(DType::Float32);
    let x = case.input("2 h 5");
    let (zero, six, two) = (case.scalar(0.0), case.scalar(6.0), case.scalar(2.0));
    let a = case.op("Clip", &[x, zero, six]);
    let b = case.op("Pow", &[a, two]);
    let c = case.layer_of("Clip", Attrs::new(), &[Some(x), None, Some(six)])[0];
    let d = case.op("Add", &[b, c]);
    let many = case.constant(Array::from_f64(DType::Float32, vec![5], &[0.5, 1.0, 2.0, 3.0, 0.0]).unwrap());
    let e = case.op("Abs", &[d]);
    let e = case.op("Pow", &[e, many]);
    case.output(e).check_fast(&[("h", 3)]);
}

#[test]
fn nothing_is_computed_for_no_elements() {
    let mut case = Case::new(DType::Float32);
    let x = case.input("n 3 4 4");
    let y = case.op("Exp", &[x]);
    case.output(y).check_fast(&[("n", 0)]);
}

/// The bits of a float came out as an integer.
#[test]
fn integers_to_the_power_of_floats_in_a_chain() {
    for dtype in [DType::Int64, DType::Int32, DType::Int8, DType::UInt8] {
        for exponent in [0.5, 1.0, 1.5, 2.0, 3.0, -1.0] {
            let mut case = Case::new(dtype);
            let (x, condition) = (case.input("2 h"), case.input_of(DType::Bool, "2 h"));
            let exponent = case.constant(Array::scalar(DType::Float32, exponent));
            let power = case.op("Pow", &[x, exponent]);
            let chosen = case.op("Where", &[condition, x, power]);
            let sum = case.op("Add", &[chosen, x]);
            case.output(power).output(sum);
            let names = case.check(&[("h", 40)]);
            // Of 8 bits, the power is a table.
            let together = if dtype.size() == 1 {
                "Where+Add"
            } else {
                "Pow+Where+Add"
            };
            assert!(names.contains(&together.into()), "{names:?}");
        }
    }
}

/// An f32 holds neither all integers nor all exponents.
#[test]
fn what_mixes_wide_integers_with_floats_is_exact() {
    let large = Array::ints(&[(1 << 40) + 1, 3_i64.pow(20), 1 << 53]);
    for (dtype, other) in [(DType::Int64, DType::Float32), (DType::Float32, DType::Int64)] {
        let mut case = Case::new(dtype);
        let (x, y) = (case.input_of(dtype, "h"), case.input_of(other, "h"));
        let power = case.op("Pow", &[x, y]);
        let sum = case.op("Add", &[power, x]);
        case.output(sum).check(&[("h", 7)]);
    }
    let mut case = Case::new(DType::Int64);
    let (x, one) = (case.input("3"), case.constant(Array::scalar(DType::Float32, 1.0)));
    let offset = case.constant(large);
    let sum = case.op("Add", &[x, offset]);
    let power = case.op("Pow", &[sum, one]);
    let doubled = case.op("Add", &[power, sum]);
    case.output(doubled).check_fast(&[]);
}

fn rounded(case: &mut Case, op: &str, x: TensorId, scale: f64, zero: f64, dtype: DType) -> TensorId {
    let scale = case.constant(Array::scalar(DType::Float32, scale));
    let zero = case.constant(Array::scalar(dtype, zero));
    let attrs = match op {
        "QuantizeLinear" => attrs([("to", Attr::Type(dtype))]),
        _ => Attrs::new(),
    };
    case.layer(op, attrs, &[x, scale, zero])
}

/// What a quantizer makes of HardSwish: a function of one byte, in whatever layout the bytes lie.
#[test]
fn chains_between_bytes_are_tables_of_what_they_give() {
    for (from, to) in [
        (DType::UInt8, DType::UInt8),
        (DType::Int8, DType::UInt8),
        (DType::UInt8, DType::Int8),
    ] {
        for (dims, h, n) in SHAPES {
            let mut case = Case::new(DType::Float32);
            let x = case.input(dims);
            let bytes = rounded(&mut case, "QuantizeLinear", x, 0.03, 3.0, from);
            let y = rounded(&mut case, "DequantizeLinear", bytes, 0.03, 3.0, from);
            let gate = case.op("HardSigmoid", &[y]);
            let gate = rounded(&mut case, "QuantizeLinear", gate, 1.0 / 255.0, 0.0, DType::UInt8);
            let gate = rounded(&mut case, "DequantizeLinear", gate, 1.0 / 255.0, 0.0, DType::UInt8);
            let product = case.op("Mul", &[y, gate]);
            let product = rounded(&mut case, "QuantizeLinear", product, 0.02, 7.0, to);
            case.output(product);
            let names = case.check_fast(&sizes(h, n));
            let part = "DequantizeLinear+HardSigmoid+QuantizeLinear+DequantizeLinear+Mul+QuantizeLinear";
            assert!(names.iter().any(|name| name == part), "{names:?}");
        }
    }
}

/// Infinities, NaN, and numbers that no dtype of 8 or 16 bits has.
#[test]
fn quantized_numbers_are_held_within_their_dtype_and_nan_is_zero() {
    let values = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1e30,
        -1e30,
        3e9,
        -0.5,
        0.5,
        1.5,
        2.5,
    ];
    let values = Array::from_f64(DType::Float32, vec![values.len()], &values).unwrap();
    for dtype in [DType::Int8, DType::UInt8, DType::Int16, DType::UInt16] {
        let mut case = Case::new(DType::Float32);
        let (x, values) = (case.input("10"), case.constant(values.clone()));
        let x = case.op("Abs", &[x]);
        let x = case.op("Mul", &[x, values]);
        let y = rounded(&mut case, "QuantizeLinear", x, 1.0, 0.0, dtype);
        let z = rounded(&mut case, "DequantizeLinear", y, 0.5, 0.0, dtype);
        let wide = case.layer("Cast", attrs([("to", Attr::Type(DType::Int32))]), &[y]);
        let sum = case.op("Add", &[y, y]);
        for t in [y, z, wide, sum] {
            case.output(t);
        }
        case.check_fast(&[]);
    }
}

/// A picture: rounded in the caller's layout, and read with channels last.
#[test]
fn pictures_are_rounded_and_transposed_at_once() {
    for dims in ["2 3 h 7", "1 1 h 5", "1 4 6 h 5", "2 16 h"] {
        let mut case = Case::new(DType::Float32);
        let x = case.input(dims);
        let y = rounded(&mut case, "QuantizeLinear", x, 0.03, 3.0, DType::UInt8);
        case.output(y);
        case.check_fast(&[("h", 41)]);
        case.check_fast(&[("h", 1001)]);
        let transposes = |c: &crate::plan::Candidate| {
            let form = |f: &crate::plan::Form| f.inputs == [Layout::Plain] && f.outputs == [Layout::ChannelsLast];
            c.kernel.forms().iter().any(form)
        };
        assert!(case.candidates().iter().any(transposes), "{dims}");
    }
}

#[test]
fn channels_of_pictures_are_rounded_each_by_its_scale() {
    let mut case = Case::new(DType::Float32);
    let x = case.input("2 3 h 7");
    let scales = case.constant(Array::from_f64(DType::Float32, vec![3, 1, 1], &[0.03, 0.01, 0.2]).unwrap());
    let zeros = case.constant(Array::from_f64(DType::Int8, vec![3, 1, 1], &[0.0, 5.0, -7.0]).unwrap());
    let y = case.layer(
        "QuantizeLinear",
        attrs([("to", Attr::Type(DType::Int8))]),
        &[x, scales, zeros],
    );
    case.output(y);
    case.check_fast(&[("h", 41)]);
    case.check_fast(&[("h", 1001)]);
}
