//! ReverseSequence.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType, Uint64};
use crate::network::ops::{gather, indexing, strides};

/// The first elements of each sequence in reverse (ONNX ReverseSequence).
pub static DEF: OpDef = OpDef {
    name: "ReverseSequence",
    doc: "The first sequence_lens[n] steps of each sequence n in reverse, what follows as it is (ONNX ReverseSequence)",
    inputs: &["x", "sequence_lens"],
    attrs: &[
        attr("batch_axis", Preset::Int(1), "the axis of the sequences: 0 or 1"),
        attr("time_axis", Preset::Int(0), "the axis of the steps: 0 or 1"),
    ],
    infer,
    evaluate,
    lowering: Lowering::WIDE,
    uint64: Uint64::Exact,
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (x, lengths) = (infer.input(0)?, gather::index_tensor(infer, 1)?);
    let axes = [infer.attrs.int("batch_axis"), infer.attrs.int("time_axis")];
    if x.rank() < 2 || !matches!(axes, [0, 1] | [1, 0]) {
        return Err(Error::shape("sequences can't be reversed so")
            .expected("a tensor of rank 2 or more, and axes 0 and 1")
            .got(format!("{} and axes {axes:?}", x.describe())));
    }
    let fits = lengths.rank() == 1;
    if !fits {
        return Err(Error::shape("sequence_lens must be a vector").got(lengths.describe()));
    }
    infer.require_equal(
        &lengths.shape[0],
        &x.shape[axes[0] as usize],
        "there is one length per sequence",
    )?;
    Ok(vec![TensorType::new(x.dtype, x.shape.clone())])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (x, lengths) = (e.input(0)?, e.input(1)?.to_i64());
    let [batch, time] = ["batch_axis", "time_axis"].map(|name| e.attrs.int(name) as usize);
    let (shape, steps) = (x.shape(), strides(x.shape()));
    let all = shape[time] as i64;
    if let Some(bad) = lengths.iter().find(|l| !(0..=all).contains(*l)) {
        return Err(Error::shape("a sequence length is out of range")
            .expected(format!("0..={all}"))
            .got(bad.to_string()));
    }
    let run = steps[1];
    let mut places = Vec::with_capacity(x.len());
    for first in 0..shape[0] {
        for second in 0..shape[1] {
            let mut at = [first, second];
            let length = lengths[at[batch]] as usize;
            if at[time] < length {
                at[time] = length - 1 - at[time];
            }
            let start = at[0] * steps[0] + at[1] * steps[1];
            places.extend(start..start + run);
        }
    }
    Ok(vec![indexing::pick(x, shape.to_vec(), &places)?])
}
