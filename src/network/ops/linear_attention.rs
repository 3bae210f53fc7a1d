//! LinearAttention.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attrs, Preset, Read, attr};
use crate::network::dim::Dim;
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType};
use crate::network::ops::{attention, pointwise};

/// Attention that keeps a matrix per head instead of all keys (ONNX LinearAttention).
pub static DEF: OpDef = OpDef {
    name: "LinearAttention",
    doc: "For each token S = exp(decay) * S + k (beta * (v - k^T S)), y = scale * q^T S, of q [batch, tokens, q_num_heads \
          * size], k [batch, tokens, kv_num_heads * size], v [batch, tokens, kv_num_heads * v_size]; groups of heads \
          share a state [batch, kv_num_heads, size, v_size]. Gives y and the last state (ONNX LinearAttention)",
    inputs: &["q", "k", "v", "past_state?", "decay?", "beta?"],
    attrs: &[
        attr("q_num_heads", Preset::RequiredInt, "how many heads the queries have"),
        attr(
            "kv_num_heads",
            Preset::RequiredInt,
            "how many heads keys and values have",
        ),
        attr(
            "scale",
            Preset::Float(0.0),
            "what results are multiplied by; 0: 1 / sqrt(size)",
        ),
        attr(
            "update_rule",
            Preset::Text("gated_delta"),
            "linear (neither decay nor beta), gated (decay), delta (beta) or gated_delta (both)",
        ),
    ],
    infer,
    evaluate,
    lowering: Lowering::BOUNDED,
    ..OpDef::PLAIN
};

/// How a state is renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// The state decays first.
    pub gated: bool,
    /// What the state already gives for the key is taken from the value, and the rest is weighed.
    pub delta: bool,
}

/// What `update_rule` says.
///
/// # Errors
/// If it is none.
pub fn rule(attrs: &Attrs) -> Result<Rule> {
    let (gated, delta) = match attrs.text("update_rule") {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        other => {
            return Err(Error::invalid("attribute \"update_rule\" is unknown")
                .expected("linear, gated, delta or gated_delta")
                .got(other));
        }
    };
    Ok(Rule { gated, delta })
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let [q, k, v] = [infer.input(0)?, infer.input(1)?, infer.input(2)?];
    let rule = rule(infer.attrs)?;
    let packed = [Some(q), Some(k), Some(v), infer.optional(4), infer.optional(5)];
    let packed: Vec<_> = packed.into_iter().flatten().collect();
    pointwise::same_dtype(&packed)?;
    if !q.dtype.is_float() || infer.optional(3).is_some_and(|past| !past.dtype.is_float()) {
        return Err(Error::dtype("attention is of floating-point tensors").got(q.dtype.name()));
    }
    if let Some(other) = packed.iter().find(|t| t.rank() != 3) {
        return Err(Error::shape("all inputs but the state have three dimensions")
            .expected("[batch, tokens, heads * size]")
            .got(other.describe()));
    }
    for (index, wanted, what) in [(4, rule.gated, "decay"), (5, rule.delta, "beta")] {
        if infer.optional(index).is_some() != wanted {
            let verb = if wanted { "needs" } else { "takes no" };
            return Err(Error::invalid(format!("this update_rule {verb} {what}")).got(infer.attrs.text("update_rule")));
        }
    }
    for other in &packed[1..] {
        infer.require_equal(&q.shape[0], &other.shape[0], "the batches of the inputs differ")?;
        infer.require_equal(
            &q.shape[1],
            &other.shape[1],
            "the inputs differ in their number of tokens",
        )?;
    }
    let [heads, shared] = heads(infer.attrs)?;
    let size = divided(&q.shape[2], heads)?;
    let v_size = divided(&v.shape[2], shared)?;
    let shared = Dim::from(shared);
    infer.require_equal(
        &(size.clone() * shared.clone()),
        &k.shape[2],
        "the sizes of keys and queries differ",
    )?;
    check_width(infer, 4, &[&shared, &k.shape[2]])?;
    check_width(infer, 5, &[&shared, &1i64.into()])?;
    let state = vec![q.shape[0].clone(), shared, size, v_size.clone()];
    if let Some(past) = infer.optional(3) {
        if past.rank() != 4 {
            return Err(Error::shape("the state has four dimensions")
                .expected("[batch, kv_num_heads, size, v_size]")
                .got(past.describe()));
        }
        for (dim, given) in state.iter().zip(&past.shape) {
            infer.require_equal(dim, given, "the state does not fit keys and values")?;
        }
    }
    let kept = infer.optional(3).map_or(q.dtype, |past| past.dtype);
    let y = vec![q.shape[0].clone(), q.shape[1].clone(), v_size * Dim::from(heads)];
    Ok(vec![TensorType::new(q.dtype, y), TensorType::new(kept, state)])
}

/// Heads of the queries, and of keys and values.
///
/// # Errors
/// If they do not divide into groups.
pub fn heads(attrs: &Attrs) -> Result<[i64; 2]> {
    let [heads, shared] = ["q_num_heads", "kv_num_heads"].map(|name| attrs.int(name));
    if shared < 1 || heads < 1 || heads % shared != 0 {
        return Err(
            Error::invalid("the heads do not divide into groups that share keys and values")
                .expected(format!("a divisor of {heads}"))
                .got(shared.to_string()),
        );
    }
    Ok([heads, shared])
}

fn divided(width: &Dim, heads: i64) -> Result<Dim> {
    width.quotient(&heads.into()).ok_or_else(|| {
        Error::shape("the last dimension does not divide into heads")
            .expected(format!("a multiple of {heads}"))
            .got(width.to_string())
    })
}

/// Refuses an input whose last dimension is none of these.
fn check_width(infer: &Infer, index: usize, widths: &[&Dim; 2]) -> Result<()> {
    match infer.optional(index) {
        Some(ty) if !widths.contains(&&ty.shape[2]) => Err(Error::shape("the last dimension of an input does not fit")
            .expected(format!("{} or {}", widths[0], widths[1]))
            .got(ty.describe())),
        _ => Ok(()),
    }
}

/// The extents of a LinearAttention, and where its rows lie.
#[derive(Debug, Clone, Copy)]
pub struct Extents {
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of keys, values and states.
    pub shared: usize,
    /// Tokens of a batch.
    pub tokens: usize,
    /// Numbers of a key.
    pub size: usize,
    /// Numbers of a value.
    pub v_size: usize,
    /// Numbers of a token that say how a state decays: one for each head, or for each number of a key.
    pub decays: usize,
    /// Weights of a token: one, or one for each head.
    pub betas: usize,
}

impl Extents {
    /// Those of a state and the number of tokens, given the last dimensions of decay and beta (0: not there).
    pub fn new(heads: usize, tokens: usize, state: &[usize], [decays, betas]: [usize; 2]) -> Self {
        Self {
            heads,
            shared: state[1],
            tokens,
            size: state[2],
            v_size: state[3],
            decays,
            betas,
        }
    }

    /// The place of the numbers of a head at a token, of `width` numbers in each of `heads` heads.
    pub fn place(&self, batch: usize, token: usize, [heads, width]: [usize; 2], head: usize) -> usize {
        ((batch * self.tokens + token) * heads + head) * width
    }
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let rule = rule(e.attrs)?;
    let values = |index: usize| e.optional(index).map(Array::to_f64);
    let last = |index: usize| e.optional(index).map_or(0, |a| a.shape()[2]);
    let [(y_dtype, y_shape), (kept, state_shape)] = e.outputs else {
        return Err(Error::internal("LinearAttention of other than two outputs"));
    };
    let [heads, _] = heads(e.attrs)?;
    let x = Extents::new(heads as usize, y_shape[1], state_shape, [last(4), last(5)]);
    let [q, k, v] = [0, 1, 2].map(|i| values(i).unwrap_or_default());
    let (decay, beta) = (values(4).unwrap_or_default(), values(5).unwrap_or_default());
    let scale = attention::scale(e.attrs.float("scale"), x.size as i64);
    let mut states = values(3).unwrap_or_else(|| vec![0.0; state_shape.iter().product()]);
    let mut y = vec![0.0; y_shape.iter().product()];
    let group = x.heads / x.shared;
    for (i, state) in states.chunks_mut((x.size * x.v_size).max(1)).enumerate() {
        let (batch, head) = (i / x.shared, i % x.shared);
        for token in 0..x.tokens {
            let key = &k[x.place(batch, token, [x.shared, x.size], head)..][..x.size];
            let value = &v[x.place(batch, token, [x.shared, x.v_size], head)..][..x.v_size];
            let mut value = value.to_vec();
            if rule.gated {
                let each = x.decays / x.shared;
                let decay = &decay[x.place(batch, token, [x.shared, each], head)..][..each];
                for (d, row) in state.chunks_mut(x.v_size).enumerate() {
                    let by = decay[d % each].exp();
                    row.iter_mut().for_each(|s| *s *= by);
                }
            }
            if rule.delta {
                let weight = beta[x.place(batch, token, [x.betas, 1], head % x.betas)];
                for (m, value) in value.iter_mut().enumerate() {
                    let known: f64 = key.iter().enumerate().map(|(d, k)| k * state[d * x.v_size + m]).sum();
                    *value = weight * (*value - known);
                }
            }
            for (row, k) in state.chunks_mut(x.v_size).zip(key) {
                row.iter_mut().zip(&value).for_each(|(s, v)| *s += k * v);
            }
            for query_head in head * group..(head + 1) * group {
                let query = &q[x.place(batch, token, [x.heads, x.size], query_head)..][..x.size];
                let y = &mut y[x.place(batch, token, [x.heads, x.v_size], query_head)..][..x.v_size];
                for (row, q) in state.chunks(x.v_size).zip(query) {
                    y.iter_mut().zip(row).for_each(|(y, s)| *y += scale * q * s);
                }
            }
        }
    }
    Ok(vec![
        Array::from_f64(*y_dtype, y_shape.clone(), &y)?,
        Array::from_f64(*kept, state_shape.clone(), &states)?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::network::dtype::DType;
    use crate::network::reference::evaluate_op;

    #[test]
    fn two_tokens_by_hand() {
        let row = |values: &[f64]| Array::from_f64(DType::Float64, vec![1, 2, 1], values).ok();
        let how = |rule: &str| {
            attrs([
                ("q_num_heads", Attr::Int(1)),
                ("kv_num_heads", Attr::Int(1)),
                ("scale", Attr::Float(10.0)),
                ("update_rule", Attr::Text(rule.into())),
            ])
        };
        let (q, k, v) = (row(&[1.0, 2.0]), row(&[3.0, 5.0]), row(&[7.0, 11.0]));
        let given = [q.clone(), k.clone(), v.clone()];
        let out = evaluate_op(&DEF, &how("linear"), &given).unwrap();
        assert_eq!((out[0].to_f64(), out[1].to_f64()), (vec![210.0, 1520.0], vec![76.0]));
        let (decay, beta) = (row(&[0.0, 0.5_f64.ln()]), row(&[1.0, 0.5]));
        let given = [q, k, v, None, decay, beta];
        // 21; then 10.5, which gives 52.5 for the key: 10.5 + 5 * 0.5 * (11 - 52.5) = -93.25.
        let out = evaluate_op(&DEF, &how("gated_delta"), &given).unwrap();
        assert!((out[1].to_f64()[0] + 93.25).abs() < 1e-12);
        assert!(evaluate_op(&DEF, &how("linear"), &given).is_err());
    }
}
