//! Attention.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attr, Preset, Read, attr};
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::op::{Decomposition, Evaluate, Infer, Lowering, OpDef, Sizes, TensorType};
use crate::network::ops::pointwise::{self, broadcast_places};
use crate::network::ops::rewrite::Rewrite;
use crate::network::ops::{
    add, div, equal, less_or_equal, matmul, mul, range, reduce_max, softmax, sqrt, tanh, unsqueeze, r#where,
};
use crate::network::patch::Patch;
use crate::network::{LayerId, Network, TensorId};

/// Scaled dot-product attention over heads (ONNX Attention).
pub static DEF: OpDef = OpDef {
    name: "Attention",
    doc: "softmax(q k^T * scale + mask) v of q [batch, heads, queries, size], k [batch, kv_heads, keys, size], v [batch, \
          kv_heads, keys, v_size]; groups of heads share keys and values. The mask is broadcast to [batch, heads, \
          queries, keys]: bool (which keys count) or numbers to add (ONNX Attention, without what it keeps of the past)",
    inputs: &["q", "k", "v", "mask?"],
    attrs: &[
        attr(
            "scale",
            Preset::Float(0.0),
            "what scores are multiplied by; 0: 1 / sqrt(size)",
        ),
        attr(
            "is_causal",
            Preset::Int(0),
            "1: a query sees no key behind its own place",
        ),
        attr(
            "softcap",
            Preset::Float(0.0),
            "scores become softcap * tanh(scores / softcap); 0: they stay",
        ),
        attr(
            "nan_if_blind",
            Preset::Int(0),
            "1: a query that sees no key gives NaN, as Softmax does; 0: zeros",
        ),
    ],
    infer,
    evaluate,
    lowering: Lowering::BEARS.mask(MASK),
    multiplications: Some(multiplications),
    decomposition: Decomposition::WithoutKernel(decompose),
    ..OpDef::PLAIN
};

/// Which input is the mask.
const MASK: usize = 3;

/// Each query meets each key, and each score a value.
fn multiplications(sizes: &Sizes) -> Option<f64> {
    let keys = sizes.input(1)?.get(2)?;
    Some(keys * (sizes.product(0, 0)? + sizes.given()))
}

/// What scores are multiplied by, where a head has this size.
pub fn scale(given: f64, size: i64) -> f64 {
    if given == 0.0 {
        1.0 / (size as f64).sqrt()
    } else {
        given
    }
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let [q, k, v] = [infer.input(0)?, infer.input(1)?, infer.input(2)?];
    pointwise::same_dtype(&[q, k, v])?;
    if !q.dtype.is_float() {
        return Err(Error::dtype("attention is of floating-point tensors").got(q.dtype.name()));
    }
    if let Some(other) = [q, k, v].into_iter().find(|t| t.rank() != 4) {
        return Err(Error::shape("queries, keys and values have four dimensions")
            .expected("[batch, heads, sequence, size]")
            .got(other.describe()));
    }
    for (axis, what) in [
        (0, "the batches of keys and queries differ"),
        (3, "the sizes of keys and queries differ"),
    ] {
        infer.require_equal(&q.shape[axis], &k.shape[axis], what)?;
    }
    for (axis, what) in ["batches", "heads", "numbers"].into_iter().enumerate() {
        infer.require_equal(
            &k.shape[axis],
            &v.shape[axis],
            &format!("the {what} of keys and values differ"),
        )?;
    }
    check_heads(&q.shape[1], &k.shape[1])?;
    if let Some(mask) = infer.optional(3) {
        check_mask(infer, mask, q, k)?;
    }
    let shape = [&q.shape[..3], &v.shape[3..]].concat();
    Ok(vec![TensorType::new(q.dtype, shape)])
}

fn check_heads(heads: &Dim, shared: &Dim) -> Result<()> {
    let divides = |h: i64, s: i64| s > 0 && h % s == 0;
    if heads == shared
        || heads
            .as_const()
            .zip(shared.as_const())
            .is_some_and(|(h, s)| divides(h, s))
    {
        return Ok(());
    }
    Err(
        Error::shape("the heads do not divide into groups that share keys and values")
            .expected(format!("a divisor of {heads}"))
            .got(shared.to_string()),
    )
}

fn check_mask(infer: &Infer, mask: &TensorType, q: &TensorType, k: &TensorType) -> Result<()> {
    if mask.dtype != DType::Bool && mask.dtype != q.dtype {
        return Err(Error::dtype("the mask must be bool or of the dtype of the queries")
            .expected(q.dtype.name())
            .got(mask.dtype.name())
            .hint("insert a Cast"));
    }
    let scores = [&q.shape[..3], &k.shape[2..3]].concat();
    infer.broadcast_onto(&scores, &mask.shape).map(drop)
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let [q, k, v] = [e.input(0)?, e.input(1)?, e.input(2)?];
    let (&[batch, heads, queries, size], &[_, shared, keys, v_size]) = (q.shape(), v.shape()) else {
        return Err(Error::internal("attention of other than four dimensions"));
    };
    let scale = scale(e.attrs.float("scale"), size as i64);
    let mask = e.optional(3).map(|mask| {
        let places = broadcast_places(mask.shape(), &[batch, heads, queries, keys]);
        (mask.to_f64(), places, mask.dtype() == DType::Bool)
    });
    let (q, k, v) = (q.to_f64(), k.to_f64(), v.to_f64());
    let score = |row: usize, kv: usize, key: usize| {
        let (a, b) = (&q[row * size..][..size], &k[(kv * keys + key) * size..][..size]);
        let dot = a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>() * scale;
        let dot = match e.attrs.float("softcap") {
            0.0 => dot,
            cap => cap * (dot / cap).tanh(),
        };
        let hidden = e.attrs.flag("is_causal") && key > row % queries;
        match &mask {
            _ if hidden => f64::NEG_INFINITY,
            None => dot,
            Some((values, places, truths)) => match (values[places[row * keys + key]], truths) {
                (0.0, true) => f64::NEG_INFINITY,
                (_, true) => dot,
                (value, false) => dot + value,
            },
        }
    };
    let mut out = vec![0.0; batch * heads * queries * v_size];
    for row in 0..batch * heads * queries {
        let head = row / queries;
        let kv = head / heads * shared + head % heads / (heads / shared);
        let mut weights: Vec<f64> = (0..keys).map(|key| score(row, kv, key)).collect();
        soften(&mut weights, e.attrs.flag("nan_if_blind"));
        let y = &mut out[row * v_size..][..v_size];
        for (key, weight) in weights.iter().enumerate() {
            let values = &v[(kv * keys + key) * v_size..][..v_size];
            y.iter_mut().zip(values).for_each(|(y, v)| *y += weight * v);
        }
    }
    e.output(&out)
}

/// Scores to weights; zeros where all scores are minus infinity, unless NaN is wanted.
fn soften(scores: &mut [f64], nan_if_blind: bool) {
    let greatest = scores.iter().copied().fold(f64::NEG_INFINITY, pointwise::greater);
    if greatest == f64::NEG_INFINITY && !nan_if_blind {
        return scores.fill(0.0);
    }
    scores.iter_mut().for_each(|s| *s = (*s - greatest).exp());
    let sum: f64 = scores.iter().sum();
    scores.iter_mut().for_each(|s| *s /= sum);
}

fn decompose(network: &Network, id: LayerId) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let [q, k, v] = [rewrite.input(0)?, rewrite.input(1)?, rewrite.input(2)?];
    let (ty, k_ty, v_ty) = (rewrite.ty(q).clone(), rewrite.ty(k).clone(), rewrite.ty(v).clone());
    let scores_shape = [&ty.shape[..3], &k_ty.shape[2..3]].concat();
    // Heads that share keys meet them as one more dimension, along which the keys are broadcast.
    let grouped = |shape: &[Dim]| -> Vec<Dim> {
        let groups = shape[1].quotient(&k_ty.shape[1]).unwrap_or_else(|| 1i64.into());
        [&shape[..1], &[k_ty.shape[1].clone(), groups], &shape[2..]].concat()
    };
    let q = scaled(&mut rewrite, q, &ty)?;
    let [q, k, v] = [(q, &ty), (k, &k_ty), (v, &v_ty)].map(|(t, ty)| (t, grouped(&ty.shape)));
    let [q, k, v] = [
        rewrite.reshape(q.0, q.1)?,
        rewrite.reshape(k.0, k.1)?,
        rewrite.reshape(v.0, v.1)?,
    ];
    let mut scores = rewrite.apply_with(&matmul::DEF, [("transB", Attr::Int(1))], &[q, k])?;
    scores = rewrite.reshape(scores, scores_shape.clone())?;
    let cap = rewrite.attrs().float("softcap");
    if cap != 0.0 {
        scores = rewrite.apply_number(&div::DEF, scores, cap)?;
        scores = rewrite.apply(&tanh::DEF, &[scores])?;
        scores = rewrite.apply_number(&mul::DEF, scores, cap)?;
    }
    scores = masked(&mut rewrite, scores)?;
    let mut weights = rewrite.apply(&softmax::DEF, &[scores])?;
    if rewrite.optional(3).is_some() && !rewrite.attrs().flag("nan_if_blind") {
        let best = rewrite.reduce(&reduce_max::DEF, scores, &[3])?;
        let blind = rewrite.apply_number(&equal::DEF, best, f64::NEG_INFINITY)?;
        let zero = rewrite.number(ty.dtype, 0.0);
        weights = rewrite.apply(&r#where::DEF, &[blind, zero, weights])?;
    }
    let weights = rewrite.reshape(weights, grouped(&scores_shape))?;
    let y = rewrite.apply(&matmul::DEF, &[weights, v])?;
    let shape = rewrite.output(0).shape.clone();
    let y = rewrite.reshape(y, shape)?;
    rewrite.finish(y)
}

/// Queries times what scores are to be multiplied by.
fn scaled(rewrite: &mut Rewrite, q: TensorId, ty: &TensorType) -> Result<TensorId> {
    let given = rewrite.attrs().float("scale");
    if let Some(size) = ty.shape[3].as_const().or((given != 0.0).then_some(0)) {
        return rewrite.apply_number(&mul::DEF, q, scale(given, size));
    }
    let size = rewrite.whole(ty.shape[3].clone());
    let size = rewrite.cast(size, ty.dtype)?;
    let root = rewrite.apply(&sqrt::DEF, &[size])?;
    rewrite.apply(&div::DEF, &[q, root])
}

/// The scores with what the mask and causality say.
fn masked(rewrite: &mut Rewrite, mut scores: TensorId) -> Result<TensorId> {
    let TensorType { dtype, shape, .. } = rewrite.ty(scores).clone();
    let hidden = rewrite.number(dtype, f64::NEG_INFINITY);
    if let Some(mask) = rewrite.optional(3) {
        scores = match rewrite.ty(mask).dtype {
            DType::Bool => rewrite.apply(&r#where::DEF, &[mask, scores, hidden])?,
            _ => rewrite.apply(&add::DEF, &[scores, mask])?,
        };
    }
    if rewrite.attrs().flag("is_causal") {
        let [queries, keys] = [places(rewrite, shape[2].clone())?, places(rewrite, shape[3].clone())?];
        let queries = rewrite.apply_with(&unsqueeze::DEF, [("axes", Attr::Ints(vec![1]))], &[queries])?;
        let seen = rewrite.apply(&less_or_equal::DEF, &[keys, queries])?;
        scores = rewrite.apply(&r#where::DEF, &[seen, scores, hidden])?;
    }
    Ok(scores)
}

/// The numbers 0, 1, ... up to an extent.
fn places(rewrite: &mut Rewrite, extent: Dim) -> Result<TensorId> {
    let [start, limit, step] = [0i64.into(), extent, 1i64.into()].map(|number: Dim| rewrite.whole(number));
    rewrite.apply(&range::DEF, &[start, limit, step])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{attrs, complete};
    use crate::network::reference::evaluate_op;

    fn array(shape: &[usize], values: &[f64]) -> Option<Array> {
        Some(Array::from_f64(DType::Float64, shape.to_vec(), values).unwrap())
    }

    #[test]
    fn a_query_sees_what_the_mask_shows() {
        let shape = [1, 1, 2, 1];
        let inputs = [
            array(&shape, &[1.0, 1.0]),
            array(&shape, &[0.0, 0.0]),
            array(&shape, &[2.0, 4.0]),
        ];
        let run = |causal: i64, nan: i64, mask: &[f64]| {
            let given = attrs([("is_causal", Attr::Int(causal)), ("nan_if_blind", Attr::Int(nan))]);
            let mask = array(&[2, 2], mask);
            let inputs = [&inputs[..], &[mask]].concat();
            evaluate_op(&DEF, &complete(DEF.attrs, given).unwrap(), &inputs).unwrap()[0].to_f64()
        };
        let hidden = f64::NEG_INFINITY;
        assert_eq!(run(0, 0, &[0.0; 4]), [3.0, 3.0]);
        assert_eq!(run(1, 0, &[0.0; 4]), [2.0, 3.0]);
        assert_eq!(run(1, 0, &[hidden, 0.0, 0.0, hidden]), [0.0, 2.0]);
        assert!(run(0, 1, &[hidden, hidden, 0.0, hidden])[0].is_nan());
    }

    #[test]
    fn heads_that_do_not_divide_are_refused() {
        let mut network = Network::new("");
        let mut input = |name: &str, heads: i64| {
            let dims = [2, heads, 3, 8].map(Dim::from).to_vec();
            Some(network.add_input(name, DType::Float32, dims).unwrap())
        };
        let (q, k) = (input("q", 4), input("k", 3));
        let e = network
            .add_layer("a", &DEF, Default::default(), &[q, k, k])
            .unwrap_err();
        assert!(e.to_string().contains("do not divide into groups"), "{e}");
    }
}
