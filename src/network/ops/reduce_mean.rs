//! ReduceMean.

use crate::network::dtype::DType;
use crate::network::least::Least;
use crate::network::op::{Lowering, OpDef, Uint64};
use crate::network::ops::reduce;

/// The mean over axes (ONNX ReduceMean).
pub static DEF: OpDef = OpDef {
    name: "ReduceMean",
    doc: "The mean over axes (ONNX ReduceMean)",
    inputs: &["x"],
    attrs: reduce::ATTRS,
    infer: reduce::infer,
    evaluate: |e| {
        // Doubles don't hold every sum of uint64, nor do 64 bits.
        let unsigned = e.input(0)?.dtype() == DType::UInt64;
        let float = |v: &[f64]| reduce::sum(v.iter().copied()) / v.len() as f64;
        reduce::evaluate(e, float, unsigned.then_some(mean as fn(&[i64]) -> i64))
    },
    lowering: Lowering::COMPUTES,
    uint64: Uint64::Exact,
    least: Least::First,
    ..OpDef::PLAIN
};

/// The mean of numbers without a sign, given by their bits, rounded down; of none it is 0.
fn mean(bits: &[i64]) -> i64 {
    let sum: u128 = bits.iter().map(|&v| u128::from(v as u64)).sum();
    sum.checked_div(bits.len() as u128).unwrap_or(0) as i64
}
