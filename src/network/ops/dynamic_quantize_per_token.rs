//! DynamicQuantizePerToken.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::Attr;
use crate::network::dtype::DType;
use crate::network::op::{Decomposition, Evaluate, Infer, Lowering, OpDef, TensorType};
use crate::network::ops::rewrite::Rewrite;
use crate::network::ops::{abs, add, cast, clip, is_nan, max, mul, reciprocal, reduce_max, reduce_sum, round, r#where};
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// Numbers as int8, with a scale for each token, which is found at each call.
pub static DEF: OpDef = OpDef {
    name: "DynamicQuantizePerToken",
    doc: "x as int8 and the scale of each token, a vector along the last axis: its greatest magnitude / 127, symmetric, \
          halves to even. Of a token with NaN or an infinity the scale is NaN and all integers are 0",
    inputs: &["x"],
    attrs: &[],
    infer,
    evaluate,
    lowering: Lowering::BOUNDED,
    decomposition: Decomposition::WithoutKernel(decompose),
    ..OpDef::PLAIN
};

/// The greatest integer; the least one is as far from 0.
pub const MOST: f32 = 127.0;
/// The inverse of [`MOST`]: scales are products with it.
const INVERSE: f32 = 1.0 / MOST;
/// The least scale, whose inverse is finite. That of zeros.
const LEAST_SCALE: f32 = f32::MIN_POSITIVE;

/// The scale of a token of this greatest magnitude, which is NaN or infinite where one of its numbers is, and what numbers are
/// multiplied with to count in it.
pub fn parameters(most: f32) -> (f32, f32) {
    match most.is_finite() {
        true => {
            let scale = (most * INVERSE).max(LEAST_SCALE);
            (scale, 1.0 / scale)
        }
        false => (f32::NAN, 0.0),
    }
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let x = infer.input(0)?;
    if x.dtype != DType::Float32 || x.rank() == 0 {
        return Err(Error::dtype("the input must be a float32 tensor of at least one axis").got(x.describe()));
    }
    let mut tokens = x.shape.clone();
    tokens[x.rank() - 1] = 1i64.into();
    Ok(vec![
        TensorType::new(DType::Int8, x.shape.clone()),
        TensorType::new(DType::Float32, tokens),
    ])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let x = e.input(0)?;
    let mut shape = x.shape().to_vec();
    let length = shape.pop().unwrap_or(1);
    shape.push(1);
    let values: Vec<f32> = x.f64s().map(|v| v as f32).collect();
    let (mut integers, mut scales) = (vec![], vec![]);
    for row in 0..shape.iter().product() {
        let row = &values[row * length..][..length];
        let most = row.iter().fold(0f32, |most, v| match most.is_nan() || v.is_nan() {
            true => f32::NAN,
            false => most.max(v.abs()),
        });
        let (scale, inverse) = parameters(most);
        scales.push(f64::from(scale));
        let integer = |v: &f32| (v * inverse).round_ties_even().clamp(-MOST, MOST) as i64;
        integers.extend(row.iter().map(integer));
    }
    Ok(vec![
        Array::from_i64(DType::Int8, x.shape().to_vec(), &integers)?,
        Array::from_f64(DType::Float32, shape, &scales)?,
    ])
}

/// By reductions.
fn decompose(network: &Network, id: LayerId) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let x = rewrite.input(0)?;
    let last = [rewrite.ty(x).rank() - 1];
    let magnitude = rewrite.apply(&abs::DEF, &[x])?;
    let most = rewrite.reduce(&reduce_max::DEF, magnitude, &last)?;
    let scale = rewrite.apply_number(&mul::DEF, most, f64::from(INVERSE))?;
    let scale = rewrite.apply_number(&max::DEF, scale, f64::from(LEAST_SCALE))?;
    // Nothing, or NaN where a number is not finite, which a maximum may pass over.
    let nothing = rewrite.apply_number(&mul::DEF, x, 0.0)?;
    let nothing = rewrite.reduce(&reduce_sum::DEF, nothing, &last)?;
    let scale = rewrite.apply(&add::DEF, &[scale, nothing])?;
    let inverse = rewrite.apply(&reciprocal::DEF, &[scale])?;
    let quotient = rewrite.apply(&mul::DEF, &[x, inverse])?;
    let whole = rewrite.apply(&round::DEF, &[quotient])?;
    let (least, most) = (-f64::from(MOST), f64::from(MOST));
    let [least, most, zero] = [least, most, 0.0].map(|value| rewrite.number(DType::Float32, value));
    let whole = rewrite.apply(&clip::DEF, &[whole, least, most])?;
    let lost = rewrite.apply(&is_nan::DEF, &[scale])?;
    let whole = rewrite.apply(&r#where::DEF, &[lost, zero, whole])?;
    let integers = rewrite.apply_with(&cast::DEF, [("to", Attr::Type(DType::Int8))], &[whole])?;
    rewrite.finish_all(&[integers, scale])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::Attrs;
    use crate::network::reference::evaluate_op;

    fn quantized(shape: &[usize], values: &[f64]) -> (Vec<i64>, Vec<f64>) {
        let x = Array::from_f64(DType::Float32, shape.to_vec(), values).unwrap();
        let out = evaluate_op(&DEF, &Attrs::new(), &[Some(x)]).unwrap();
        (out[0].to_i64(), out[1].to_f64())
    }

    #[test]
    fn each_token_has_a_scale() {
        let (integers, scales) = quantized(&[3, 2], &[127.0, -2.5, 1270.0, 25.0, 0.0, -0.0]);
        assert_eq!(integers, [127, -2, 127, 2, 0, 0]);
        assert_eq!(scales, [1.0, 10.0, f64::from(LEAST_SCALE)]);
        assert_eq!(quantized(&[0, 4], &[]), (vec![], vec![]));
        assert_eq!(quantized(&[1, 0], &[]).1, [f64::from(LEAST_SCALE)]);
    }

    #[test]
    fn a_token_that_is_not_finite_is_lost_alone() {
        let (integers, scales) = quantized(&[3, 2], &[f64::NAN, 1.0, 1.0, -1.0, 1.0, f64::NEG_INFINITY]);
        assert_eq!(integers, [0, 0, 127, -127, 0, 0]);
        assert!(scales[0].is_nan() && scales[1].is_finite() && scales[2].is_nan());
    }
}
