//! Every variant, against the reference.

use crate::network::array::Array;
use crate::network::attr::{Attr, attrs};
use crate::network::dtype::DType;
use crate::providers::cpu::kernels::testing::Case;
use crate::providers::cpu::simd::Isa;

/// Weights whose products differ so little that a step of a state, which a last bit may decide, is not seen.
fn check(weights: DType, directions: usize, hidden: usize, all: bool, columns: bool) {
    let (input, gates) = (7, 4 * hidden);
    let mut case = Case::new(DType::Float32);
    let x = case.input(&format!("s 3 {input}"));
    let low = if weights == DType::Int8 { -128 } else { 0 };
    let stored = |case: &mut Case, rows: usize| {
        let values: Vec<i64> = (0..directions * rows * gates)
            .map(|i| (i * 73 % 256) as i64 + low)
            .collect();
        case.constant(Array::from_i64(weights, vec![directions, rows, gates], &values).unwrap())
    };
    let (w, r) = (stored(&mut case, input), stored(&mut case, hidden));
    let count = if columns {
        vec![directions, gates]
    } else {
        vec![directions]
    };
    let parameter = |case: &mut Case, dtype, of: &dyn Fn(usize) -> f64| {
        let values: Vec<f64> = (0..count.iter().product()).map(of).collect();
        case.constant(Array::from_f64(dtype, count.clone(), &values).unwrap())
    };
    let zero = |case: &mut Case| parameter(case, weights, &|i| if low < 0 { 0.0 } else { 120.0 + (i % 9) as f64 });
    let small = |case: &mut Case| parameter(case, DType::Float32, &|i| 1e-7 * (1 + i % 3) as f64);
    let larger = parameter(&mut case, DType::Float32, &|i| 2e-3 * (1 + i % 3) as f64);
    let mut inputs = vec![x, w, r, larger, zero(&mut case), small(&mut case), zero(&mut case)]
        .into_iter()
        .map(Some)
        .collect::<Vec<_>>();
    let mut given = attrs([]);
    if all {
        inputs.push(Some(case.weights(&[directions, 2 * gates])));
        let lengths = Array::from_i64(DType::Int32, vec![3], &[4, 0, 2]).unwrap();
        inputs.push(Some(case.constant(lengths)));
        inputs.push(Some(case.input(&format!("{directions} 3 {hidden}"))));
        inputs.push(Some(case.input(&format!("{directions} 3 {hidden}"))));
        inputs.push(Some(case.input(&format!("{directions} {}", 3 * hidden))));
    }
    if directions == 2 {
        given.insert("direction".into(), Attr::Text("bidirectional".into()));
    }
    for y in case.layer_of("DynamicQuantizeLSTM", given, &inputs) {
        case.output(y);
    }
    case.check_fast(&[("s", 5)]);
    if !all {
        case.check_fast(&[("s", 1)]);
        case.check_fast(&[("s", 0)]);
    }
}

#[test]
fn every_variant() {
    if Isa::here() != Isa::Avx512 || !is_x86_feature_detected!("avx512vnni") {
        return;
    }
    for weights in [DType::Int8, DType::UInt8] {
        for (directions, hidden) in [(1, 40), (2, 19)] {
            for (all, columns) in [(false, true), (true, false), (true, true)] {
                check(weights, directions, hidden, all, columns);
            }
        }
    }
}
