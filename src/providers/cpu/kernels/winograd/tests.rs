//! Tiles against the reference, in every form of the kernel.

use crate::network::attr::{Attr, Attrs, attrs};
use crate::network::dtype::DType;
use crate::providers::cpu::kernels::testing::Case;
use crate::providers::cpu::simd::Isa;

fn ints(name: &'static str, values: &[i64]) -> (&'static str, Attr) {
    (name, Attr::Ints(values.to_vec()))
}

#[test]
fn every_padding_and_remainder() {
    for (c, k, pads) in [
        (32, 16, [1; 4]),
        (48, 80, [0, 1, 2, 0]),
        (32, 144, [0; 4]),
        (64, 64, [2, 2, 0, 1]),
    ] {
        let mut case = Case::new(DType::Float32);
        let x = case.input(&format!("n {c} h w"));
        let (w, b) = (case.weights(&[k, c, 3, 3]), case.weights(&[k]));
        let y = case.layer("Conv", attrs([ints("pads", &pads)]), &[x, w, b]);
        case.output(y);
        for (n, h, w) in [(1, 3, 3), (2, 7, 10), (1, 12, 5), (3, 17, 16), (0, 5, 5)] {
            case.check_fast(&[("n", n), ("h", h), ("w", w)]);
        }
    }
}

#[test]
fn what_follows_is_done_to_each_tile() {
    for op in ["Relu", "Silu", "Sigmoid", "HardSwish", "HardSigmoid", "Abs"] {
        let mut case = Case::new(DType::Float32);
        let x = case.input("n 32 9 6");
        let skip = case.input("n 48 9 6");
        let w = case.weights(&[48, 32, 3, 3]);
        let shift = case.weights(&[48, 1, 1]);
        let y = case.layer("Conv", attrs([ints("pads", &[1; 4])]), &[x, w]);
        let y = case.op("Add", &[y, shift]);
        let y = case.op("Add", &[y, skip]);
        let y = case.op(op, &[y]);
        let scale = case.weights(&[1, 48, 1, 1]);
        let y = case.op("Mul", &[y, scale]);
        case.output(y).check_fast(&[("n", 2)]);
    }
}

#[test]
fn tiles_are_offered_where_they_serve() {
    let offered = |weights: &[usize], options: Attrs| {
        let mut case = Case::new(DType::Float32);
        let x = case.input(&format!("1 {} 8 8", weights[1]));
        let w = case.weights(weights);
        let y = case.layer("Conv", options, &[x, w]);
        case.output(y);
        let forms = case
            .candidates()
            .into_iter()
            .flat_map(|candidate| candidate.kernel.forms());
        forms.filter(|form| form.tactic.family() == "winograd").count()
    };
    let here = if Isa::here() == Isa::Avx512 { 2 } else { 0 };
    assert_eq!(offered(&[32, 32, 3, 3], Attrs::new()), here);
    for (weights, options) in [
        ([32, 32, 3, 3], ints("strides", &[2, 1])),
        ([32, 32, 3, 3], ints("dilations", &[1, 2])),
        ([32, 40, 3, 3], ints("pads", &[1; 4])),
        ([24, 32, 3, 3], ints("pads", &[1; 4])),
        ([32, 32, 3, 1], ints("pads", &[1; 4])),
        ([32, 16, 3, 3], ints("pads", &[1; 4])),
    ] {
        assert_eq!(offered(&weights, attrs([options])), 0, "{weights:?}");
    }
}
