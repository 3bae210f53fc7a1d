//! ConvInteger.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Preset, attr};
use crate::network::dtype::DType;
use crate::network::op::{Decomposition, Evaluate, Infer, Lowering, OpDef, TensorType};
use crate::network::ops::integer_product::{self, MOST_TERMS, Operand};
use crate::network::ops::rewrite::Rewrite;
use crate::network::ops::{conv, spatial};
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// Convolution of 8-bit integers, summed in 32 bits (ONNX ConvInteger).
pub static DEF: OpDef = OpDef {
    name: "ConvInteger",
    doc: "Cross-correlation of x - x_zero_point and w - w_zero_point, summed as int32; the zero points are broadcast to \
          their operands (ONNX ConvInteger, after its zero points were shaped so)",
    inputs: &["x", "w", "x_zero_point?", "w_zero_point?"],
    attrs: &[
        attr("group", Preset::Int(1), "number of groups of channels"),
        spatial::STRIDES,
        spatial::DILATIONS,
        spatial::PADS,
        spatial::AUTO_PAD,
    ],
    infer,
    evaluate,
    lowering: Lowering::WIDE,
    spatial: true,
    multiplications: Some(spatial::multiplications),
    decomposition: Decomposition::WithoutKernel(decompose),
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    integer_product::check(infer)?;
    let w = infer.input(1)?;
    if w.shape.get(1..).and_then(integer_product::terms).is_none() {
        return Err(
            Error::unsupported("the extents of the kernel must be known, and not too large")
                .expected(format!("at most {MOST_TERMS} weights per channel of the output"))
                .got(w.describe()),
        );
    }
    let typed = |index: usize| -> Result<_> {
        let x = infer.input(index)?;
        Ok(Some(TensorType::new(DType::Float32, x.shape.clone())))
    };
    let conv = Infer {
        inputs: &[typed(0)?, typed(1)?],
        constants: &[],
        guards: Default::default(),
        ..*infer
    };
    let mut outputs = (conv::DEF.infer)(&conv)?;
    outputs[0].dtype = DType::Int32;
    infer.guards.borrow_mut().extend(conv.guards.into_inner());
    Ok(outputs)
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let operands = [integer_product::centred(e, 0)?, integer_product::centred(e, 1)?].map(Some);
    (conv::DEF.evaluate)(&Evaluate {
        inputs: &operands,
        ..*e
    })
}

/// By float32 convolutions that are exact.
fn decompose(network: &Network, id: LayerId) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let terms = integer_product::terms(&rewrite.ty(rewrite.input(1)?).shape[1..]).unwrap_or(MOST_TERMS);
    let x = Operand::new(network, &mut rewrite, 0, DType::Float32, terms)?;
    let w = Operand::new(network, &mut rewrite, 1, DType::Float32, terms)?.summed(network, &rewrite, 0)?;
    let result = integer_product::product(&mut rewrite, [x, w], terms, &|rewrite, x, w| {
        rewrite.apply_all_same(&conv::DEF, &[x, w])
    })?;
    rewrite.finish(result)
}
