//! DynamicQuantizeLinear.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attr, attrs};
use crate::network::dtype::DType;
use crate::network::op::{Decomposition, Evaluate, Infer, Lowering, OpDef, TensorType};
use crate::network::ops::rewrite::Rewrite;
use crate::network::ops::{
    cast, clip, div, equal, max, min, quantize_linear, reduce_max, reduce_min, round, sub, r#where,
};
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// Numbers as uint8 by the range of their own, which is found at each call (ONNX DynamicQuantizeLinear).
pub static DEF: OpDef = OpDef {
    name: "DynamicQuantizeLinear",
    doc: "x as uint8, with the scale and the zero point for which its least and greatest number, and 0, are among what uint8 \
          stands for (ONNX DynamicQuantizeLinear; a scale of 1 where all numbers are 0)",
    inputs: &["x"],
    attrs: &[],
    infer,
    evaluate,
    lowering: Lowering::BOUNDED,
    decomposition: Decomposition::WithoutKernel(decompose),
    ..OpDef::PLAIN
};

/// The scale and the zero point of numbers whose least and greatest one, or 0, these are; in float32, as ONNX has it.
pub fn parameters(low: f32, high: f32) -> (f32, f32) {
    let scale = if low == high { 1.0 } else { (high - low) / 255.0 };
    let zero = (0.0 - low / scale).clamp(0.0, 255.0).round_ties_even();
    (scale, zero)
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let x = infer.input(0)?;
    if x.dtype != DType::Float32 {
        return Err(Error::dtype("the input must be a float32 tensor").got(x.describe()));
    }
    Ok(vec![
        TensorType::new(DType::UInt8, x.shape.clone()),
        TensorType::new(DType::Float32, vec![]),
        TensorType::new(DType::UInt8, vec![]),
    ])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let x = e.input(0)?;
    let values = x.to_f64();
    let (low, high) = values.iter().fold((0f32, 0f32), |(low, high), &v| {
        let v = v as f32;
        (low.min(v), high.max(v))
    });
    let (scale, zero) = parameters(low, high);
    let one = |&v: &f64| i64::from(((v as f32 / scale).round_ties_even() + zero).clamp(0.0, 255.0) as u8);
    let quantized: Vec<i64> = values.iter().map(one).collect();
    Ok(vec![
        Array::from_i64(DType::UInt8, x.shape().to_vec(), &quantized)?,
        Array::scalar(DType::Float32, f64::from(scale)),
        Array::scalar(DType::UInt8, f64::from(zero)),
    ])
}

/// By reductions, and a Quantize layer.
fn decompose(network: &Network, id: LayerId) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let x = rewrite.input(0)?;
    let axes: Vec<i64> = (0..rewrite.ty(x).rank() as i64).collect();
    let over = || [("axes", Attr::Ints(axes.clone())), ("keepdims", Attr::Int(0))];
    let nothing = rewrite.number(DType::Float32, 0.0);
    let high = rewrite.apply_with(&reduce_max::DEF, over(), &[x])?;
    let high = rewrite.apply(&max::DEF, &[high, nothing])?;
    let low = rewrite.apply_with(&reduce_min::DEF, over(), &[x])?;
    let low = rewrite.apply(&min::DEF, &[low, nothing])?;
    // In double precision, where a product with the inverse of 255 rounds to the same as the quotient.
    let span = rewrite.apply(&sub::DEF, &[high, low])?;
    let span = rewrite.cast(span, DType::Float64)?;
    let scale = rewrite.apply_number(&div::DEF, span, 255.0)?;
    let scale = rewrite.cast(scale, DType::Float32)?;
    let one = rewrite.number(DType::Float32, 1.0);
    let same = rewrite.apply(&equal::DEF, &[high, low])?;
    let scale = rewrite.apply(&r#where::DEF, &[same, one, scale])?;
    let zero = rewrite.apply(&div::DEF, &[low, scale])?;
    let zero = rewrite.apply(&sub::DEF, &[nothing, zero])?;
    let most = rewrite.number(DType::Float32, 255.0);
    let zero = rewrite.apply(&clip::DEF, &[zero, nothing, most])?;
    let zero = rewrite.apply(&round::DEF, &[zero])?;
    let zero = rewrite.apply_with(&cast::DEF, [("to", Attr::Type(DType::UInt8))], &[zero])?;
    let to = attrs([("to", Attr::Type(DType::UInt8))]);
    let quantized = rewrite.apply_by(&quantize_linear::DEF, to, &[x, scale, zero])?;
    rewrite.finish_all(&[quantized, scale, zero])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::Attrs;
    use crate::network::reference::evaluate_op;

    fn quantized(values: &[f64]) -> (Vec<i64>, f64, i64) {
        let x = Array::from_f64(DType::Float32, vec![values.len()], values).unwrap();
        let out = evaluate_op(&DEF, &Attrs::new(), &[Some(x)]).unwrap();
        (out[0].to_i64(), out[1].to_f64()[0], out[2].to_i64()[0])
    }

    #[test]
    fn zero_is_always_among_the_numbers() {
        assert_eq!(quantized(&[0.0, 255.0, 2.5]), (vec![0, 255, 2], 1.0, 0));
        assert_eq!(quantized(&[-255.0, -0.5]), (vec![0, 255], 1.0, 255));
        assert_eq!(quantized(&[0.0, 0.0]), (vec![0, 0], 1.0, 0));
        assert_eq!(quantized(&[]), (vec![], 1.0, 0));
    }
}
