//! Speeds of kernels: `cargo test --release --no-default-features kernels::speed -- --ignored --nocapture`.

use super::testing::Case;
use crate::network::array::Array;
use crate::network::attr::{Attr, attrs};
use crate::network::dtype::DType;
use crate::plan::layout::{Layout, Operand};
use crate::providers::cpu::handle::{Conv, Desc, Options};

#[test]
#[ignore = "prints speeds"]
fn pointwise() {
    for op in [
        "Relu",
        "Sigmoid",
        "Silu",
        "HardSwish",
        "Gelu",
        "Tanh",
        "Exp",
        "Log",
        "Sin",
    ] {
        let mut case = Case::new(DType::Float32);
        let x = case.input("1 64 112 112");
        let y = case.op(op, &[x]);
        case.output(y).report_speed(op);
    }
    for channels in [64, 20] {
        let mut case = Case::new(DType::Float32);
        let x = case.input(&format!("1 {channels} 112 112"));
        let gate = case.input(&format!("1 {channels} 1 1"));
        let y = case.op("Mul", &[x, gate]);
        case.output(y).report_speed(&format!("gate {channels}"));
    }
    let mut case = Case::new(DType::Float32);
    let (x, z) = (case.input("1 64 112 112"), case.input("1 64 112 112"));
    let y = case.op("Add", &[x, z]);
    case.output(y).report_speed("add");
}

#[test]
#[ignore = "prints speeds"]
fn tiles() {
    for (n, c, size) in [
        (1, 64, 56),
        (1, 128, 28),
        (1, 256, 14),
        (1, 512, 7),
        (8, 64, 56),
        (8, 128, 28),
        (8, 256, 14),
        (8, 512, 7),
    ] {
        let mut case = Case::new(DType::Float32);
        let x = case.input(&format!("{n} {c} {size} {size}"));
        let (w, b) = (case.weights(&[c, c, 3, 3]), case.weights(&[c]));
        let a = attrs([("pads", Attr::Ints(vec![1; 4]))]);
        let y = case.layer("Conv", a, &[x, w, b]);
        case.output(y).report_speed(&format!("{n}x{c}x{size}x{size}"));
    }
}

#[test]
#[ignore = "prints speeds"]
fn moves() {
    for perm in [[0, 2, 3, 1], [0, 3, 1, 2], [0, 2, 1, 3], [0, 1, 3, 2]] {
        let mut case = Case::new(DType::Float32);
        let x = case.input("1 64 112 112");
        let y = case.layer("Transpose", attrs([("perm", Attr::Ints(perm.to_vec()))]), &[x]);
        case.output(y).report_speed(&format!("transpose {perm:?}"));
    }
    let mut case = Case::new(DType::Float32);
    let (x, z) = (case.input("1 64 112 112"), case.input("1 32 112 112"));
    let y = case.layer("Concat", attrs([("axis", Attr::Int(1))]), &[x, z]);
    case.output(y).report_speed("concat");
    let mut case = Case::new(DType::Float32);
    let x = case.input("1 3 640 640");
    let y = case.layer("Transpose", attrs([("perm", Attr::Ints(vec![0, 2, 3, 1]))]), &[x]);
    case.output(y).report_speed("3 channels last");
}

#[test]
#[ignore = "prints speeds"]
fn rows() {
    for shape in ["12 128 128", "1 1000 1 1", "40 6625 1"] {
        for axis in [-1, 1] {
            let mut case = Case::new(DType::Float32);
            let x = case.input(shape);
            let y = case.layer("Softmax", attrs([("axis", Attr::Int(axis))]), &[x]);
            case.output(y).report_speed(&format!("softmax {shape} {axis}"));
        }
    }
    let mut case = Case::new(DType::Float32);
    let x = case.input("1 128 768");
    let (scale, shift) = (case.weights(&[768]), case.weights(&[768]));
    let y = case.op("LayerNormalization", &[x, scale, shift]);
    case.output(y).report_speed("layer norm");
}

#[test]
#[ignore = "prints speeds"]
fn convolutions() {
    for dtype in [DType::Float32, DType::BFloat16] {
        for (c, m, k, stride, group, side) in [
            (3, 64, 7, 2, 1, 224usize),
            (64, 64, 3, 1, 1, 56),
            (64, 256, 1, 1, 1, 56),
            (512, 512, 3, 1, 1, 7),
            (96, 96, 3, 1, 96, 56),
            (1, 64, 3, 1, 1, 256),
        ] {
            let mut case = Case::new(dtype);
            let x = case.input(&format!("1 {c} {side} {side}"));
            let (w, b) = (case.weights(&[m, c / group, k, k]), case.weights(&[m]));
            let pad = Attr::Ints(vec![k as i64 / 2; 4]);
            let a = attrs([
                ("group", Attr::Int(group as i64)),
                ("pads", pad),
                ("strides", Attr::Ints(vec![stride; 2])),
            ]);
            let y = case.layer("Conv", a, &[x, w, b]);
            case.output(y).report_speed(&format!("{dtype} {c}x{side} {m} k{k}"));
        }
    }
    let mut case = Case::new(DType::Float32);
    let x = case.input("1 128 128 128");
    let w = case.constant(Array::from_f64(DType::Float32, vec![128, 64, 2, 2], &[0.5; 128 * 64 * 4]).unwrap());
    let y = case.layer("ConvTranspose", attrs([("strides", Attr::Ints(vec![2, 2]))]), &[x, w]);
    case.output(y).report_speed("deconv 2x2");
}

/// Which implementation oneDNN has for slices of larger tensors.
#[test]
#[ignore = "prints implementations"]
fn slices() {
    for layout in [Layout::ChannelsLast, Layout::Blocked16] {
        for (from, to) in [(None, None), (Some(128), None), (None, Some(128))] {
            for batch in [1, 2] {
                let operand = |parent| Operand {
                    parent_channels: parent,
                    ..Operand::dense(DType::Float32, vec![batch, 64, 56, 56], layout)
                };
                let spec = Conv {
                    src: Desc::of(&operand(from)).unwrap(),
                    dst: Desc::of(&operand(to)).unwrap(),
                    weights: vec![64, 64, 3, 3],
                    weights_dtype: DType::Float32,
                    bias: None,
                    groups: 1,
                    strides: vec![1, 1],
                    dilations: vec![1, 1],
                    begin: vec![1, 1],
                    end: vec![1, 1],
                    transposed: false,
                };
                let made = spec.create(None, &Options::threads(2));
                let name = made.map_or_else(|e| e.to_string(), |p| p.implementation());
                println!("{layout} batch {batch} src in {from:?} dst in {to:?}: {name}");
            }
        }
    }
}
