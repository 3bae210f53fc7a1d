//! Products of 8 bits against the reference of the layers that they stand for, on every number that 8 bits hold.

use crate::network::TensorId;
use crate::network::array::Array;
use crate::network::attr::{Attr, Attrs, attrs};
use crate::network::dtype::DType;
use crate::providers::cpu::kernels::testing::Case;

/// A scale and a zero point.
type By = (f64, i64);

fn integers(dtype: DType, shape: &[usize], seed: u64) -> Array {
    let mut state = seed | 1;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as i64
    };
    let values: Vec<i64> = (0..shape.iter().product())
        .map(|_| next() - if dtype == DType::Int8 { 128 } else { 0 })
        .collect();
    Array::from_i64(dtype, shape.to_vec(), &values).unwrap()
}

fn parameters(case: &mut Case, dtype: DType, (scale, zero): By) -> [TensorId; 2] {
    let scale = case.constant(Array::scalar(DType::Float32, scale));
    let zero = case.constant(Array::scalar(dtype, zero as f64));
    [scale, zero]
}

fn quantize(case: &mut Case, x: TensorId, dtype: DType, by: By) -> TensorId {
    let [scale, zero] = parameters(case, dtype, by);
    case.layer("QuantizeLinear", attrs([("to", Attr::Type(dtype))]), &[x, scale, zero])
}

fn dequantize(case: &mut Case, x: TensorId, dtype: DType, by: By) -> TensorId {
    let [scale, zero] = parameters(case, dtype, by);
    case.op("DequantizeLinear", &[x, scale, zero])
}

/// A dequantized activation.
fn activation(case: &mut Case, dims: &str, dtype: DType, by: By) -> TensorId {
    let x = case.input_of(DType::Float32, dims);
    let q = quantize(case, x, dtype, by);
    dequantize(case, q, dtype, by)
}

/// Dequantized weights with a scale for each place along an axis.
fn weights(case: &mut Case, shape: &[usize], axis: usize) -> TensorId {
    let stored = case.constant(integers(DType::Int8, shape, 11));
    let count = shape[axis];
    let scales: Vec<f64> = (0..count).map(|i| 0.01 + 0.001 * i as f64).collect();
    let mut along = vec![1; shape.len()];
    along[axis] = count;
    let scale = case.constant(Array::from_f64(DType::Float32, along, &scales).unwrap());
    case.op("DequantizeLinear", &[stored, scale])
}

fn bias(case: &mut Case, count: usize) -> TensorId {
    let stored: Vec<i64> = (0..count as i64).map(|i| i * 371 - 900).collect();
    let stored = case.constant(Array::from_i64(DType::Int32, vec![count], &stored).unwrap());
    let scale = case.constant(Array::scalar(DType::Float32, 1.3e-4));
    case.op("DequantizeLinear", &[stored, scale])
}

fn ints(name: &'static str, values: &[i64]) -> (&'static str, Attr) {
    (name, Attr::Ints(values.to_vec()))
}

fn has_vnni() -> bool {
    let found = super::sums_exactly();
    if !found {
        eprintln!("this processor has no VNNI: nothing of 8 bits to test");
    }
    found
}

const SIGNED: (DType, By) = (DType::Int8, (0.0157, 0));
const UNSIGNED: (DType, By) = (DType::UInt8, (0.0157, 0));
const ASYMMETRIC: (DType, By) = (DType::UInt8, (0.0157, 127));
const SHIFTED: (DType, By) = (DType::Int8, (0.0157, -9));

#[test]
fn convolutions_of_every_sort() {
    if !has_vnni() {
        return;
    }
    for (dtype, by) in [SIGNED, UNSIGNED, ASYMMETRIC, SHIFTED] {
        for (c, m, group) in [(3, 17, 1), (16, 24, 1), (24, 24, 24), (32, 48, 4)] {
            let mut case = Case::new(DType::Float32);
            let x = activation(&mut case, &format!("n {c} h 9"), dtype, by);
            let w = weights(&mut case, &[m, c / group, 3, 3], 0);
            let b = bias(&mut case, m);
            let a = attrs([
                ("group", Attr::Int(group as i64)),
                ints("pads", &[1, 0, 1, 2]),
                ints("strides", &[2, 1]),
            ]);
            let y = case.layer("Conv", a, &[x, w, b]);
            let y = quantize(&mut case, y, dtype, (0.0631, by.1));
            let y = dequantize(&mut case, y, dtype, (0.0631, by.1));
            case.output(y);
            let names = case.check_fast(&[("n", 2), ("h", 7)]);
            assert!(names.contains(&"int8 Conv+QuantizeLinear".into()), "{names:?}");
            assert!(names.contains(&"int8 Conv".into()), "{names:?}");
        }
    }
}

#[test]
fn activations_and_residuals_are_done_at_once() {
    if !has_vnni() {
        return;
    }
    for (dtype, by) in [SIGNED, UNSIGNED, ASYMMETRIC, SHIFTED] {
        for activate in ["Relu", "Silu", ""] {
            let mut case = Case::new(DType::Float32);
            let x = activation(&mut case, "n 16 h 8", dtype, by);
            let skip = activation(&mut case, "n 20 h 8", dtype, (0.0161, by.1));
            let w = weights(&mut case, &[20, 16, 1, 1], 0);
            let y = case.layer("Conv", Attrs::new(), &[x, w]);
            let y = case.op("Add", &[skip, y]);
            let y = if activate.is_empty() {
                y
            } else {
                case.op(activate, &[y])
            };
            let y = quantize(&mut case, y, dtype, (0.0537, by.1));
            case.output(y);
            let names = case.check_fast(&[("n", 2), ("h", 5)]);
            let plus = if activate.is_empty() {
                String::new()
            } else {
                format!("+{activate}")
            };
            let want = format!("int8 Conv+DequantizeLinear+Add{plus}+QuantizeLinear");
            assert!(names.contains(&want), "{names:?}");
        }
    }
}

#[test]
fn what_is_quantized_on_the_way_is_rounded_there() {
    if !has_vnni() {
        return;
    }
    let mut case = Case::new(DType::Float32);
    let x = activation(&mut case, "n 16 h 8", DType::UInt8, (0.0157, 127));
    let skip = activation(&mut case, "n 20 h 8", DType::UInt8, (0.0161, 121));
    let w = weights(&mut case, &[20, 16, 1, 1], 0);
    let y = case.layer("Conv", Attrs::new(), &[x, w]);
    let y = quantize(&mut case, y, DType::UInt8, (0.21, 117));
    let y = dequantize(&mut case, y, DType::UInt8, (0.21, 117));
    let y = case.op("Add", &[y, skip]);
    let y = case.op("Relu", &[y]);
    let y = quantize(&mut case, y, DType::UInt8, (0.19, 0));
    case.output(y);
    let names = case.check_fast(&[("n", 1), ("h", 5)]);
    let want = "int8 Conv+QuantizeLinear+DequantizeLinear+DequantizeLinear+Add+Relu+QuantizeLinear";
    assert!(names.contains(&want.into()), "{names:?}");
}

#[test]
fn what_is_rounded_and_quantized_at_once_keeps_its_halves() {
    if !has_vnni() {
        return;
    }
    let mut case = Case::new(DType::Float32);
    let x = activation(&mut case, "n 16 h 8", DType::UInt8, (0.0173, 128));
    let w = weights(&mut case, &[20, 16, 1, 1], 0);
    let y = case.layer("Conv", Attrs::new(), &[x, w]);
    let y = quantize(&mut case, y, DType::UInt8, (0.05, 0));
    let y = dequantize(&mut case, y, DType::UInt8, (0.05, 0));
    let y = quantize(&mut case, y, DType::UInt8, (0.02, 0));
    case.output(y);
    let names = case.check_fast(&[("n", 1), ("h", 5)]);
    let together = |name: &String| name.ends_with("DequantizeLinear+QuantizeLinear") && name.starts_with("int8");
    assert!(!names.iter().any(together), "{names:?}");
}

#[test]
fn of_two_products_the_one_in_floats_adds_the_other_in_8_bits() {
    if !has_vnni() {
        return;
    }
    let mut case = Case::new(DType::Float32);
    let x = activation(&mut case, "n 16 h 8", DType::UInt8, (0.0157, 127));
    let z = activation(&mut case, "n 12 h 8", DType::UInt8, (0.0161, 0));
    let w = weights(&mut case, &[20, 16, 1, 1], 0);
    let v = weights(&mut case, &[20, 12, 1, 1], 0);
    let y = case.layer("Conv", Attrs::new(), &[x, w]);
    let y = quantize(&mut case, y, DType::UInt8, (0.21, 117));
    let y = dequantize(&mut case, y, DType::UInt8, (0.21, 117));
    let skip = case.layer("Conv", Attrs::new(), &[z, v]);
    let y = case.op("Add", &[y, skip]);
    let y = case.op("Relu", &[y]);
    let y = quantize(&mut case, y, DType::UInt8, (0.19, 0));
    case.output(y);
    let names = case.check_fast(&[("n", 1), ("h", 5)]);
    for want in [
        "int8 Conv+QuantizeLinear",
        "int8 Conv+DequantizeLinear+Add+Relu+QuantizeLinear",
    ] {
        assert!(names.contains(&want.into()), "{names:?}");
    }
}

#[test]
fn transposed_convolutions_and_other_numbers_of_axes() {
    if !has_vnni() {
        return;
    }
    for group in [1, 2] {
        let mut case = Case::new(DType::Float32);
        let x = activation(&mut case, "n 16 h 5", DType::Int8, (0.0157, 0));
        let w = weights(&mut case, &[16, 8, 2, 2], 1);
        let a = attrs([ints("strides", &[2, 2]), ("group", Attr::Int(group))]);
        let y = case.layer("ConvTranspose", a, &[x, w]);
        let y = quantize(&mut case, y, DType::Int8, (0.113, 0));
        case.output(y).check_fast(&[("n", 1), ("h", 5)]);
    }
    let mut case = Case::new(DType::Float32);
    let x = activation(&mut case, "1 5 h", DType::UInt8, (0.0157, 128));
    let w = weights(&mut case, &[7, 5, 3], 0);
    let y = case.layer("Conv", attrs([ints("dilations", &[2])]), &[x, w]);
    let z = activation(&mut case, "1 4 h 6 5", DType::Int8, (0.0157, 0));
    let v = weights(&mut case, &[18, 4, 2, 3, 1], 0);
    let z = case.layer("Conv", Attrs::new(), &[z, v]);
    let z = quantize(&mut case, z, DType::Int8, (0.0571, 0));
    case.output(y).output(z).check_fast(&[("h", 9)]);
}

#[test]
fn transposed_convolutions_that_end_behind_the_last_window() {
    if !has_vnni() {
        return;
    }
    // The kernel, strides, `pads` and `output_padding`; the last is one that oneDNN gives all of.
    for (kernel, stride, pad, more) in [(2, 2, 0, 1), (1, 3, 0, 0), (2, 4, 1, 0), (3, 3, 1, 2), (3, 2, 1, 1)] {
        let mut case = Case::new(DType::Float32);
        let x = activation(&mut case, "1 16 h 6", DType::Int8, (0.0157, 0));
        let w = weights(&mut case, &[16, 4, kernel, kernel], 1);
        let a = attrs([
            ints("strides", &[stride; 2]),
            ints("pads", &[pad; 4]),
            ints("output_padding", &[more; 2]),
            ("group", Attr::Int(4)),
        ]);
        let y = case.layer("ConvTranspose", a, &[x, w]);
        let y = quantize(&mut case, y, DType::Int8, (0.113, 0));
        let names = case.output(y).check_fast(&[("h", 5)]);
        let is_fused = names.iter().any(|name| name.starts_with("int8 ConvTranspose"));
        assert_eq!(is_fused, stride <= kernel as i64 && more <= pad, "{names:?}");
    }
}

#[test]
fn matrices_of_weights_and_of_activations() {
    if !has_vnni() {
        return;
    }
    for (dtype, by) in [SIGNED, UNSIGNED, ASYMMETRIC, SHIFTED] {
        for transposed in [0, 1] {
            let mut case = Case::new(DType::Float32);
            let x = activation(&mut case, "b s 17", dtype, by);
            let shape = if transposed == 1 { [24, 17] } else { [17, 24] };
            let w = weights(&mut case, &shape, 1 - transposed);
            let y = case.layer("MatMul", attrs([("transB", Attr::Int(transposed as i64))]), &[x, w]);
            let b = bias(&mut case, 24);
            let y = case.op("Add", &[y, b]);
            let y = case.op("Gelu", &[y]);
            let y = quantize(&mut case, y, dtype, (0.0433, by.1));
            case.output(y);
            let names = case.check_fast(&[("b", 2), ("s", 5)]);
            assert!(
                names.contains(&"int8 MatMul+Add+Gelu+QuantizeLinear".into()),
                "{names:?}"
            );
            case.check_fast(&[("b", 1), ("s", 1)]);
            case.check_fast(&[("b", 1), ("s", 0)]);
        }
        let mut case = Case::new(DType::Float32);
        let q = activation(&mut case, "b 4 s 16", dtype, by);
        let k = activation(&mut case, "b 4 s 16", DType::Int8, (0.0143, 0));
        let scores = case.layer("MatMul", attrs([("transB", Attr::Int(1))]), &[q, k]);
        case.output(scores);
        let names = case.check_fast(&[("b", 2), ("s", 7)]);
        assert!(names.contains(&"int8 MatMul".into()), "{names:?}");
    }
}

#[test]
fn weights_alone_in_8_bits_are_unpacked_once() {
    let mut case = Case::new(DType::Float32);
    let x = case.input("n 16 h 8");
    let w = weights(&mut case, &[20, 16, 3, 3], 0);
    let b = bias(&mut case, 20);
    let y = case.layer("Conv", Attrs::new(), &[x, w, b]);
    let y = case.op("Relu", &[y]);
    case.output(y);
    let names = case.check_fast(&[("n", 1), ("h", 5)]);
    assert!(names.contains(&"Conv+Relu".into()), "{names:?}");
}

#[test]
fn sums_of_integers_are_exact_and_scaled_at_once() {
    if !has_vnni() {
        return;
    }
    for (left, right) in [(DType::UInt8, DType::Int8), (DType::Int8, DType::UInt8)] {
        for columns in [false, true] {
            let mut case = Case::new(DType::Float32);
            let x = case.input_of(left, "b s 17");
            let zero = case.input_of(left, "");
            let w = case.constant(match right {
                DType::Int8 => integers(right, &[17, 24], 5),
                // As far as int8 holds the weights less their zero point.
                _ => integers(right, &[17, 24], 5).cast(DType::UInt8),
            });
            let w_zero = case.constant(Array::scalar(right, if right == DType::UInt8 { 128.0 } else { 0.0 }));
            let sums = case.op("MatMulInteger", &[x, w, zero, w_zero]);
            let y = case.layer("Cast", attrs([("to", Attr::Type(DType::Float32))]), &[sums]);
            let scale = case.input_of(DType::Float32, if columns { "24" } else { "" });
            let y = case.op("Mul", &[y, scale]);
            let bias = case.weights(&[24]);
            let y = case.op("Add", &[y, bias]);
            case.output(y);
            let names = case.check_fast(&[("b", 2), ("s", 5)]);
            assert!(names.contains(&"int8 MatMulInteger+Cast+Mul+Add".into()), "{names:?}");
            assert!(names.contains(&"int8 MatMulInteger".into()), "{names:?}");
        }
    }
}
