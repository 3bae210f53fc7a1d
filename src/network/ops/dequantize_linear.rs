//! DequantizeLinear.

use crate::error::{Error, Result};
use crate::network::dtype::DType;
use crate::network::op::{Infer, Lowering, OpDef, Pointwise, Purity, TensorType};
use crate::network::ops::{pointwise, quantize_linear};

/// The numbers that quantized integers stand for (ONNX DequantizeLinear).
pub static DEF: OpDef = OpDef {
    name: "DequantizeLinear",
    doc: "(x - zero_point) * scale in the dtype of scale; scale and zero_point are broadcast to x (ONNX \
          DequantizeLinear, after its scale was shaped so)",
    inputs: &["x", "scale", "zero_point?"],
    attrs: &[],
    infer,
    evaluate,
    pointwise: Some(Pointwise {
        float: |_, v| (v[0] - if v[2].is_nan() { 0.0 } else { v[2] }) * v[1],
        int: None,
    }),
    lowering: Lowering::BOUNDED,
    purity: Purity::Decompresses,
    narrow: true,
    ..OpDef::PLAIN
};
pointwise::pointwise_evaluate!();

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (x, scale) = (infer.input(0)?, infer.input(1)?);
    if quantize_linear::range(x.dtype).is_none() && x.dtype != DType::Int32 {
        return Err(Error::unsupported("tensors of this dtype can't be dequantized")
            .expected("int32, an integer of 2, 4, 8 or 16 bits, or a float of 4 or 8")
            .got(x.dtype.name()));
    }
    if !scale.dtype.is_float() {
        return Err(Error::dtype("the scale must be a floating-point tensor").got(scale.dtype.name()));
    }
    if let Some(zero) = infer.optional(2).filter(|zero| zero.dtype != x.dtype) {
        return Err(Error::dtype("the zero point has another dtype than the input")
            .expected(x.dtype.name())
            .got(zero.dtype.name()));
    }
    pointwise::one_way(infer, scale.dtype)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::array::Array;
    use crate::network::attr::Attrs;
    use crate::network::reference::evaluate_op;

    #[test]
    fn numbers_come_back() {
        let x = Array::from_i64(DType::Int8, vec![3], &[-128, 0, 127]).unwrap();
        let scale = Array::scalar(DType::Float32, 0.5);
        let zero = Array::scalar(DType::Int8, -128.0);
        let out = evaluate_op(&DEF, &Attrs::new(), &[Some(x), Some(scale), Some(zero)]).unwrap();
        assert_eq!(out[0].to_f64(), [0.0, 64.0, 127.5]);
    }
}
