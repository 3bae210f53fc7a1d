//! MatMulInteger.

use crate::error::Result;
use crate::network::array::Array;
use crate::network::attr::{Attr, Attrs, attrs};
use crate::network::dtype::DType;
use crate::network::op::{Decomposition, Evaluate, Infer, Lowering, OpDef, Sizes, TensorType};
use crate::network::ops::integer_product::{self, Operand};
use crate::network::ops::matmul;
use crate::network::ops::rewrite::Rewrite;
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// Matrix product of 8-bit integers, summed in 32 bits (ONNX MatMulInteger).
pub static DEF: OpDef = OpDef {
    name: "MatMulInteger",
    doc: "Matrix product of a - a_zero_point and b - b_zero_point, summed as int32; the zero points are broadcast to \
          their operands (ONNX MatMulInteger, after its zero points were shaped so)",
    inputs: &["a", "b", "a_zero_point?", "b_zero_point?"],
    attrs: &[],
    infer,
    evaluate,
    lowering: Lowering::WIDE,
    multiplications: Some(multiplications),
    decomposition: Decomposition::WithoutKernel(decompose),
    ..OpDef::PLAIN
};

/// As of MatMul, which has attributes besides.
fn multiplications(sizes: &Sizes) -> Option<f64> {
    Some(sizes.given() * sizes.input(0)?.last().unwrap_or(&1.0))
}

/// The attributes of a product of operands as they are.
fn as_they_are() -> Attrs {
    attrs(["transA", "transB"].map(|name| (name, Attr::Int(0))))
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    integer_product::check(infer)?;
    let typed = |index: usize| -> Result<_> {
        let x = infer.input(index)?;
        Ok(Some(TensorType::new(DType::Int32, x.shape.clone())))
    };
    let product = Infer {
        attrs: &as_they_are(),
        inputs: &[typed(0)?, typed(1)?],
        constants: &[],
        guards: Default::default(),
        ..*infer
    };
    let outputs = (matmul::DEF.infer)(&product)?;
    infer.guards.borrow_mut().extend(product.guards.into_inner());
    Ok(outputs)
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let operands = [integer_product::centred(e, 0)?, integer_product::centred(e, 1)?].map(Some);
    (matmul::DEF.evaluate)(&Evaluate {
        attrs: &as_they_are(),
        inputs: &operands,
        ..*e
    })
}

/// By float32 products that are exact; where the number of terms is not known, by one of int32.
fn decompose(network: &Network, id: LayerId) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let inner = rewrite.ty(rewrite.input(0)?).shape.last().cloned();
    let terms = inner.and_then(|inner| integer_product::terms(&[inner]));
    let dtype = if terms.is_some() { DType::Float32 } else { DType::Int32 };
    let count = terms.unwrap_or_default();
    let a = Operand::new(network, &mut rewrite, 0, dtype, count)?;
    let mut b = Operand::new(network, &mut rewrite, 1, dtype, count)?;
    if rewrite.ty(b.tensor).rank() == 2 {
        b = b.summed(network, &rewrite, 1)?;
    }
    let result = match terms {
        Some(terms) => integer_product::product(&mut rewrite, [a, b], terms, &|rewrite, a, b| {
            rewrite.apply(&matmul::DEF, &[a, b])
        })?,
        None => rewrite.apply(&matmul::DEF, &[a.tensor, b.tensor])?,
    };
    rewrite.finish(result)
}
