//! QuantizeLinear.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attrs, Preset, Read, attr};
use crate::network::dtype::DType;
use crate::network::op::{Decomposition, Evaluate, Infer, OpDef, Pointwise, TensorType};
use crate::network::ops::pointwise;

/// Numbers as integers of 8 or 16 bits, given a scale and a zero point (ONNX QuantizeLinear).
pub static DEF: OpDef = OpDef {
    name: "QuantizeLinear",
    doc: "saturate(round(x / scale) + zero_point), halves to even; scale and zero_point are broadcast to x (ONNX \
          QuantizeLinear, after its scale was shaped so)",
    inputs: &["x", "scale", "zero_point?"],
    attrs: &[attr(
        "to",
        Preset::RequiredType,
        "the dtype of the output: int8, uint8, int16 or uint16",
    )],
    infer,
    evaluate,
    pointwise: Some(Pointwise {
        float: quantize,
        int: None,
    }),
    decomposition: Decomposition::None,
};

/// The least and greatest number of a dtype that tensors are quantized to.
pub fn range(dtype: DType) -> Option<(f64, f64)> {
    Some(match dtype {
        DType::Int8 => (-128.0, 127.0),
        DType::UInt8 => (0.0, 255.0),
        DType::Int16 => (-32768.0, 32767.0),
        DType::UInt16 => (0.0, 65535.0),
        _ => return None,
    })
}

/// The division is one of float32, as ONNX has it.
fn quantize(attrs: &Attrs, v: &[f64]) -> f64 {
    let quotient = f64::from(v[0] as f32 / v[1] as f32);
    saturate(attrs, quotient, v[2])
}

fn saturate(attrs: &Attrs, quotient: f64, zero_point: f64) -> f64 {
    let (low, high) = range(attrs.dtype("to")).unwrap_or((0.0, 0.0));
    let shift = if zero_point.is_nan() { 0.0 } else { zero_point };
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
            .expected("int8, uint8, int16 or uint16")
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
    broadcast(infer, to)
}

/// The type of an input to which scale and zero point are broadcast, as another dtype.
pub(super) fn broadcast(infer: &Infer, to: DType) -> Result<Vec<TensorType>> {
    let shapes: Vec<_> = infer.inputs.iter().flatten().map(|t| t.shape.as_slice()).collect();
    let outputs = vec![TensorType::new(to, infer.broadcast(&shapes)?)];
    pointwise::broadcast_to(infer.input(0)?, outputs)
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
}
