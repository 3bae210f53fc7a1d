use crate::network::TensorId;
use crate::network::attr::{Attr, Attrs, attrs};
use crate::network::dtype::DType;
use crate::providers::cpu::kernels::testing::Case;

fn attention(case: &mut Case, given: Attrs, inputs: &[TensorId]) -> TensorId {
    case.layer("Attention", given, inputs)
}

#[test]
fn every_dtype_size_and_mask() {
    for dtype in [DType::Float32, DType::BFloat16, DType::Float16] {
        for (heads, shared, size, v_size) in [(2, 2, 64, 64), (4, 2, 17, 9), (3, 1, 8, 40), (1, 1, 1, 1)] {
            let mut case = Case::new(dtype);
            let q = case.input(&format!("b {heads} s {size}"));
            let k = case.input(&format!("b {shared} t {size}"));
            let v = case.input(&format!("b {shared} t {v_size}"));
            let mask = case.input(&format!("{heads} s t"));
            let keys = case.input_of(DType::Bool, "b 1 1 t");
            let wide = case.input_of(DType::Bool, "b 1 s 1");
            // Without keys a sum over nothing is 0 whatever is said of queries that see none.
            for nan in [0, 1] {
                let y = attention(&mut case, attrs([("nan_if_blind", Attr::Int(nan))]), &[q, k, v]);
                case.output(y);
            }
            for mask in [mask, keys, wide] {
                let given = attrs([("scale", Attr::Float(0.5)), ("softcap", Attr::Float(1.5))]);
                let y = attention(&mut case, given, &[q, k, v, mask]);
                case.output(y);
            }
            let y = attention(&mut case, attrs([("is_causal", Attr::Int(1))]), &[q, k, v, mask]);
            case.output(y);
            for (s, t) in [(7, 7), (1, 33), (50, 9), (0, 3), (3, 0)] {
                case.check_fast(&[("b", 2), ("s", s), ("t", t)]);
            }
        }
    }
}

#[test]
fn long_sequences_go_by_blocks() {
    let mut case = Case::new(DType::Float32);
    let [q, k, v] = [(); 3].map(|()| case.input("1 1 s 16"));
    for causal in [0, 1] {
        let y = attention(&mut case, attrs([("is_causal", Attr::Int(causal))]), &[q, k, v]);
        case.output(y);
    }
    case.check_fast(&[("s", 600)]);
}

#[test]
fn masked_keys_go_by_blocks() {
    for dtype in [DType::Float32, DType::BFloat16] {
        let mut case = Case::new(dtype);
        let [q, k, v] = ["s", "t", "t"].map(|rows| case.input(&format!("1 1 {rows} 17")));
        let (numbers, truths) = (case.input("s t"), case.input_of(DType::Bool, "1 1 1 t"));
        for mask in [numbers, truths] {
            let y = attention(&mut case, attrs([]), &[q, k, v, mask]);
            case.output(y);
        }
        case.check_fast(&[("s", 31), ("t", 300)]);
    }
}

fn turn(case: &mut Case, perm: &[i64], x: TensorId) -> TensorId {
    case.layer("Transpose", attrs([("perm", Attr::Ints(perm.to_vec()))]), &[x])
}

fn shaped(case: &mut Case, x: TensorId, shape: &[i64]) -> TensorId {
    let shape = case.constant(crate::network::array::Array::ints(shape));
    case.op("Reshape", &[x, shape])
}

#[test]
fn heads_of_one_projection_become_strides() {
    let mut case = Case::new(DType::Float32);
    let x = case.input("b s 96");
    let split = attrs([("axis", Attr::Int(2)), ("split", Attr::Ints(vec![32; 3]))]);
    let parts = case.layer_of("Split", split, &[Some(x)]);
    let heads: Vec<TensorId> = parts
        .into_iter()
        .map(|part| {
            let part = shaped(&mut case, part, &[0, 0, 4, 8]);
            turn(&mut case, &[0, 2, 1, 3], part)
        })
        .collect();
    let y = attention(&mut case, attrs([]), &heads);
    let y = turn(&mut case, &[0, 2, 1, 3], y);
    let y = shaped(&mut case, y, &[0, 0, 32]);
    let names = case.output(y).check_fast(&[("b", 2), ("s", 5)]);
    let fused = names
        .iter()
        .any(|name| name.contains("Split") && name.ends_with("Attention+Transpose+Reshape"));
    assert!(fused, "{names:?}");
}

#[test]
fn heads_that_others_read_stay() {
    let mut case = Case::new(DType::Float32);
    let x = case.input("b s 32");
    let parts = shaped(&mut case, x, &[0, 0, 4, 8]);
    let heads = turn(&mut case, &[0, 2, 1, 3], parts);
    let y = attention(&mut case, attrs([]), &[heads, heads, heads]);
    case.output(heads);
    let names = case.output(y).check_fast(&[("b", 2), ("s", 5)]);
    assert!(
        names.iter().all(|name| !name.contains("Transpose+Attention")),
        "{names:?}"
    );
}

#[test]
fn keys_that_lie_turned_are_read_so() {
    let mut case = Case::new(DType::Float32);
    let (q, k) = (case.input("b 2 s 24"), case.input("b 2 24 t"));
    let v = case.input("b t 2 5");
    let (k, v) = (turn(&mut case, &[0, 1, 3, 2], k), turn(&mut case, &[0, 2, 1, 3], v));
    let y = attention(&mut case, attrs([]), &[q, k, v]);
    let y = turn(&mut case, &[0, 3, 2, 1], y);
    case.output(y).check_fast(&[("b", 1), ("s", 3), ("t", 20)]);
}
