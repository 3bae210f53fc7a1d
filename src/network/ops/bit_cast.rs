//! BitCast.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::dtype::DType;
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType, Uint64};

/// The same bits as another dtype of the same width (ONNX BitCast).
pub static DEF: OpDef = OpDef {
    name: "BitCast",
    doc: "The same bits as another dtype of the same width; as a bool, what is not 0 is true (ONNX BitCast)",
    inputs: &["x"],
    attrs: &[attr("to", Preset::RequiredType, "the dtype of the output")],
    infer,
    evaluate,
    lowering: Lowering::WIDE,
    uint64: Uint64::Exact,
    narrow: true,
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (x, to) = (infer.input(0)?, infer.attrs.dtype("to"));
    if x.dtype.bits() != to.bits() {
        return Err(Error::dtype("a BitCast keeps the width of the elements")
            .expected(format!("a dtype of {} bits", x.dtype.bits()))
            .got(to.name())
            .hint("to convert the values use Cast"));
    }
    Ok(vec![TensorType::new(to, x.shape.clone())])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (x, to) = (e.input(0)?, e.attrs.dtype("to"));
    if to != DType::Bool {
        return Ok(vec![Array::from_bytes(to, x.shape().to_vec(), x.bytes())?]);
    }
    let truths: Vec<_> = x.bytes().iter().map(|&b| u8::from(b != 0)).collect();
    Ok(vec![Array::from_bytes(to, x.shape().to_vec(), &truths)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::network::reference::evaluate_op;

    #[test]
    fn bits_stay_and_widths_must() {
        let cast = |to| {
            let one = Some(Array::scalar(DType::Float32, 1.0));
            evaluate_op(&DEF, &attrs([("to", Attr::Type(to))]), &[one])
        };
        assert_eq!(cast(DType::Int32).unwrap()[0].to_i64(), [0x3f80_0000]);
        assert!(cast(DType::Int64).is_err());
    }
}
