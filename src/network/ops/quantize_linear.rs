//! QuantizeLinear.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attrs, Preset, Read, attr};
use crate::network::dtype::DType;
use crate::network::narrow::{Format, PLAIN, Rounding};
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, Pointwise, TensorType};
use crate::network::ops::pointwise;

/// Numbers as integers of at most 16 bits, or as narrow floats, given a scale and a zero point (ONNX QuantizeLinear).
pub static DEF: OpDef = OpDef {
    name: "QuantizeLinear",
    doc: "saturate(round(x / scale) + zero_point), halves to even, to floats without the first round; scale and \
          zero_point are broadcast to x (ONNX QuantizeLinear, after its scale was shaped so)",
    inputs: &["x", "scale", "zero_point?"],
    attrs: &[
        attr(
            "to",
            Preset::RequiredType,
            "the dtype of the output: an integer of 2, 4, 8 or 16 bits, or a float of 4 or 8",
        ),
        attr(
            "saturate",
            Preset::Int(1),
            "to a float of 8 bits: what is out of range becomes the nearest end, not infinity or NaN",
        ),
    ],
    infer,
    evaluate,
    pointwise: Some(Pointwise {
        float: quantize,
        int: None,
    }),
    lowering: Lowering::WIDE,
    narrow: true,
    ..OpDef::PLAIN
};

/// The least and greatest number of a dtype that tensors are quantized to.
pub fn range(dtype: DType) -> Option<(f64, f64)> {
    Some(match dtype {
        DType::Int8 => (-128.0, 127.0),
        DType::UInt8 => (0.0, 255.0),
        DType::Int16 => (-32768.0, 32767.0),
        DType::UInt16 => (0.0, 65535.0),
        _ => match dtype.narrow() {
            Some(narrow) if narrow.format != Format::Power => narrow.range(),
            _ => return None,
        },
    })
}

/// The division is one of float32, as ONNX has it.
fn quantize(attrs: &Attrs, v: &[f64]) -> f64 {
    let quotient = f64::from(v[0] as f32 / v[1] as f32);
    saturate(attrs, quotient, v[2])
}

fn saturate(attrs: &Attrs, quotient: f64, zero_point: f64) -> f64 {
    let to = attrs.dtype("to");
    let shift = if zero_point.is_nan() { 0.0 } else { zero_point };
    if let Some(narrow) = to.narrow().filter(|narrow| !narrow.is_int()) {
        let saturate = attrs.flag("saturate");
        let code = narrow.encode(quotient + shift, Rounding { saturate, ..PLAIN });
        return f64::from(narrow.decode(code));
    }
    let (low, high) = range(to).unwrap_or((0.0, 0.0));
    (quotient.round_ties_even() + shift).clamp(low, high)
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    if e.input(1)?.dtype() != DType::Float64 {
        return pointwise::evaluate(&DEF, e);
    }
    let wide = Pointwise {
        float: |attrs, v| saturate(attrs, v[0] / v[1], v[2]),
        int: None,
    };
    pointwise::evaluate_rule(wide, DEF.inputs.len(), e)
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (x, scale, to) = (infer.input(0)?, infer.input(1)?, infer.attrs.dtype("to"));
    if range(to).is_none() {
        return Err(Error::unsupported("tensors can't be quantized to this dtype")
            .expected("an integer of 2, 4, 8 or 16 bits, or a float of 4 or 8")
            .got(to.name()));
    }
    if !(x.dtype.is_float() || x.dtype == DType::Int32) || !scale.dtype.is_float() {
        return Err(
            Error::dtype("input and scale must be floating-point tensors").got(format!(
                "{} and {}",
                x.describe(),
                scale.describe()
            )),
        );
    }
    if let Some(zero) = infer.optional(2).filter(|zero| zero.dtype != to) {
        return Err(Error::dtype("the zero point has another dtype than the output")
            .expected(to.name())
            .got(zero.dtype.name()));
    }
    pointwise::one_way(infer, to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::network::reference::evaluate_op;

    #[test]
    fn halves_go_to_even_and_the_ends_hold() {
        let floats = |values: &[f64]| Array::from_f64(DType::Float32, vec![values.len()], values).unwrap();
        let x = floats(&[1.0, 3.0, 5.0, -1.0, 1e9, -1e9]);
        let given = [Some(x), Some(floats(&[2.0])), Some(Array::scalar(DType::UInt8, 3.0))];
        let out = evaluate_op(&DEF, &attrs([("to", Attr::Type(DType::UInt8))]), &given).unwrap();
        assert_eq!(out[0].to_i64(), [3, 5, 5, 3, 255, 0]);
    }

    #[test]
    fn narrow_floats_are_rounded_once_and_saturate_as_told() {
        let floats = |values: &[f64]| Array::from_f64(DType::Float32, vec![values.len()], values).unwrap();
        let given = [Some(floats(&[2.3, 34.0, -1e9])), Some(floats(&[2.0]))];
        let quantized = |to, saturate| {
            let attrs = attrs([("to", Attr::Type(to)), ("saturate", Attr::Int(saturate))]);
            evaluate_op(&DEF, &attrs, &given).unwrap()[0].to_f64()
        };
        assert_eq!(quantized(DType::Float8E4M3FN, 1), [1.125, 16.0, -448.0]);
        assert_eq!(quantized(DType::Float8E5M2, 0), [1.25, 16.0, f64::NEG_INFINITY]);
        assert_eq!(quantized(DType::Float4E2M1, 0), [1.0, 6.0, -6.0]);
        assert_eq!(quantized(DType::Int4, 1), [1.0, 7.0, -8.0]);
    }
}
