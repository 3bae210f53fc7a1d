//! Gemm.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attr, Attrs, Preset, Read, attr};
use crate::network::dtype::DType;
use crate::network::op::{Decomposition, Evaluate, Infer, Lowering, OpDef, TensorType, Uint64};
use crate::network::ops::rewrite::Rewrite;
use crate::network::ops::{add, matmul, mul, pointwise};
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// `alpha * a @ b + beta * c` (ONNX Gemm).
pub static DEF: OpDef = OpDef {
    name: "Gemm",
    doc: "alpha * a @ b + beta * c for matrices a and b; c is broadcast; products of integers wrap (ONNX Gemm)",
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
    uint64: Uint64::Exact,
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

/// Whether integers are scaled by what is none: float64 does that, and its results are truncated.
fn by_fractions(dtype: DType, attrs: &Attrs) -> bool {
    dtype.is_int() && ["alpha", "beta"].iter().any(|name| attrs.float(name).fract() != 0.0)
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (dtype, shape) = &e.outputs[0];
    let (alpha, beta) = (e.attrs.float("alpha"), e.attrs.float("beta"));
    // Products of integers wrap, as MatMul's do.
    let wide = if dtype.is_int() { *dtype } else { DType::Float64 };
    let operand = |index| e.optional(index).map(|x: &Array| x.cast(wide));
    let product = (matmul::DEF.evaluate)(&Evaluate {
        attrs: e.attrs,
        inputs: &[operand(0), operand(1)],
        outputs: &[(wide, shape.clone())],
        ..*e
    })?
    .remove(0);
    let c = e.optional(2);
    let places = c.map(|c| pointwise::broadcast_places(c.shape(), shape));
    if dtype.is_int() && !by_fractions(*dtype, e.attrs) {
        let mut out: Vec<_> = product.i64s().map(|v| v.wrapping_mul(alpha as i64)).collect();
        if let (Some(c), Some(places)) = (c.map(Array::to_i64), places) {
            let scaled = places.into_iter().map(|at| c[at].wrapping_mul(beta as i64));
            out.iter_mut().zip(scaled).for_each(|(v, c)| *v = v.wrapping_add(c));
        }
        return Ok(vec![Array::from_i64(*dtype, shape.clone(), &out)?]);
    }
    let mut out: Vec<_> = product.f64s().map(|v| alpha * v).collect();
    if let (Some(c), Some(places)) = (c.map(Array::to_f64), places) {
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
    let dtype = rewrite.ty(y).dtype;
    let fractions = by_fractions(dtype, attrs);
    if fractions {
        y = rewrite.cast(y, DType::Float64)?;
    }
    if attrs.float("alpha") != 1.0 {
        y = rewrite.apply_number(&mul::DEF, y, attrs.float("alpha"))?;
    }
    if let Some(mut c) = rewrite.optional(2).filter(|_| attrs.float("beta") != 0.0) {
        if fractions {
            c = rewrite.cast(c, DType::Float64)?;
        }
        if attrs.float("beta") != 1.0 {
            c = rewrite.apply_number(&mul::DEF, c, attrs.float("beta"))?;
        }
        y = rewrite.apply(&add::DEF, &[y, c])?;
    }
    if fractions {
        y = rewrite.cast(y, dtype)?;
    }
    rewrite.finish(y)
}
