//! Gemm.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attr, Preset, Read, attr};
use crate::network::dtype::DType;
use crate::network::op::{Decomposition, Evaluate, Infer, Lowering, OpDef, TensorType};
use crate::network::ops::rewrite::Rewrite;
use crate::network::ops::{add, matmul, mul, pointwise};
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// `alpha * a @ b + beta * c` (ONNX Gemm).
pub static DEF: OpDef = OpDef {
    name: "Gemm",
    doc: "alpha * a @ b + beta * c for matrices a and b; c is broadcast (ONNX Gemm)",
    inputs: &["a", "b", "c?"],
    attrs: &[
        attr("alpha", Preset::Float(1.0), "scale of the product"),
        attr("beta", Preset::Float(1.0), "scale of c"),
        attr("transA", Preset::Int(0), "transpose a first"),
        attr("transB", Preset::Int(0), "transpose b first"),
    ],
    infer,
    evaluate,
    lowering: Lowering::WIDE,
    multiplications: Some(matmul::multiplications),
    decomposition: Decomposition::Always(decompose),
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (a, b) = (infer.input(0)?, infer.input(1)?);
    if a.rank() != 2 || b.rank() != 2 {
        return Err(Error::shape("Gemm multiplies matrices")
            .expected("two tensors of rank 2")
            .got(format!("{} and {}", a.describe(), b.describe()))
            .hint("use MatMul for batches of matrices"));
    }
    let product = (matmul::DEF.infer)(infer)?.remove(0);
    let Some(c) = infer.optional(2) else {
        return Ok(vec![product]);
    };
    pointwise::same_dtype(&[a, c])?;
    let shape = infer.broadcast_onto(&product.shape, &c.shape)?;
    Ok(vec![TensorType::new(a.dtype, shape)])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (dtype, shape) = &e.outputs[0];
    let (alpha, beta) = (e.attrs.float("alpha"), e.attrs.float("beta"));
    let wide = |index| e.optional(index).map(|x: &Array| x.cast(DType::Float64));
    let product = (matmul::DEF.evaluate)(&Evaluate {
        attrs: e.attrs,
        inputs: &[wide(0), wide(1)],
        outputs: &[(DType::Float64, shape.clone())],
        ..*e
    })?;
    let mut out: Vec<_> = product[0].to_f64().iter().map(|v| alpha * v).collect();
    if let Some(c) = e.optional(2) {
        let places = pointwise::broadcast_places(c.shape(), shape);
        let c = c.to_f64();
        out.iter_mut().zip(places).for_each(|(v, at)| *v += beta * c[at]);
    }
    Ok(vec![Array::from_f64(*dtype, shape.clone(), &out)?])
}

/// `alpha * a @ b + beta * c` => MatMul, Mul, Add; scales of 1 and a `c` of scale 0 leave no layer.
fn decompose(network: &Network, id: LayerId) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let attrs = rewrite.attrs();
    let flags = ["transA", "transB"].map(|name| (name, Attr::Int(attrs.int(name))));
    let mut y = rewrite.apply_with(&matmul::DEF, flags, &[rewrite.input(0)?, rewrite.input(1)?])?;
    if attrs.float("alpha") != 1.0 {
        y = rewrite.apply_number(&mul::DEF, y, attrs.float("alpha"))?;
    }
    if let Some(mut c) = rewrite.optional(2).filter(|_| attrs.float("beta") != 0.0) {
        if attrs.float("beta") != 1.0 {
            c = rewrite.apply_number(&mul::DEF, c, attrs.float("beta"))?;
        }
        y = rewrite.apply(&add::DEF, &[y, c])?;
    }
    rewrite.finish(y)
}
