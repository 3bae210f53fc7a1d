//! Finds Attention in the pieces that exporters write it in.

use super::build::Build;
use super::matching::{either_order, given_by, input, only_given_by, uniform};
use super::recognise_layer_norm::last_axes;
use super::scores::{self, Merged, Scores, softened, unscaled};
use super::{Found, Pass, rewrite, rule_if, rule_if_some};
use crate::error::Result;
use crate::network::attr::{Attr, Read, attrs};
use crate::network::dim::Dim;
use crate::network::patch::Patch;
use crate::network::{Layer, LayerId, Network, TensorId, ops};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "recognise_attention",
    doc: "MatMul(Softmax(MatMul(q, k^T)), v) => Attention; the scores or q and k multiplied by numbers, capped, with \
          masks added or by Where, reshaped; keys and values repeated for groups of heads; weights of queries \
          that see nothing made 0",
    apply: |network, _| rewrite(network, rule),
};

fn rule(network: &Network, id: LayerId) -> Found<'_> {
    let layer = &network[id];
    if layer.op.name == "Attention" {
        return grouped(network, layer);
    }
    rule_if!(layer.op.name == "MatMul" && !layer.attrs.flag("transA") && !layer.attrs.flag("transB"));
    rule_if_some!((weights, v) = input(layer, 0).zip(input(layer, 1)));
    rule_if!(network[weights].ty.dtype.is_float() && network[weights].ty.rank() >= 3);
    rule_if!(network[v].ty.rank() == network[weights].ty.rank());
    rule_if_some!(weights = reshaped(network, weights));
    let (weights, guard) = without_guard(network, weights);
    rule_if!(guard == Guard::Nan || network.sole_user(weights).is_some());
    rule_if_some!(softened = softened(network, weights));
    rule_if_some!(found = scores::read(network, softened));
    if let Guard::Hidden(mask) = guard {
        rule_if!(found.masks.len() == 1 && found.masks[0].from == mask);
    }
    let guarded = guard != Guard::None;
    Attention { layer, v, found }.build(network, guarded)
}

/// What only a Reshape of leading dimensions gives for weights, or these.
fn reshaped(network: &Network, weights: TensorId) -> Option<TensorId> {
    let Some(x) = only_given_by(network, weights, "Reshape").and_then(|layer| input(layer, 0)) else {
        return Some(weights);
    };
    scores::same_matrices(&network[x].ty.shape, &network[weights].ty.shape).then_some(x)
}

/// How weights of queries that see nothing are made 0.
#[derive(Clone, Copy, PartialEq)]
enum Guard {
    /// They are not.
    None,
    /// Where they are NaN.
    Nan,
    /// Where the greatest number of this mask is minus infinity.
    Hidden(TensorId),
}

/// Where(IsNaN(x), 0, x), Where(ReduceMax(mask) == -inf, 0, x) => x, if that is all that reads x.
fn without_guard(network: &Network, weights: TensorId) -> (TensorId, Guard) {
    let guarded = || {
        let choice = only_given_by(network, weights, "Where")?;
        let (test, x) = (input(choice, 0)?, input(choice, 2)?);
        if uniform(network, input(choice, 1)?) != Some(0.0) || network.is_output(x) {
            return None;
        }
        if let Some(test) = only_given_by(network, test, "IsNaN") {
            let fits = input(test, 0) == Some(x) && network[x].users.len() == 2;
            return fits.then_some((x, Guard::Nan));
        }
        let test = given_by(network, test, "Equal")?;
        let (greatest, _) = either_order(test)
            .into_iter()
            .find(|(_, low)| uniform(network, *low) == Some(f64::NEG_INFINITY))?;
        let greatest = given_by(network, greatest, "ReduceMax")?;
        let mask = input(greatest, 0)?;
        let last = last_axes(network, greatest)? + 1 == network[mask].ty.rank();
        (last && network.sole_user(x).is_some()).then_some((x, Guard::Hidden(mask)))
    };
    guarded().unwrap_or((weights, Guard::None))
}

/// Whether heads are wider than kernels of attention have tiles for, and a query has no more scores than elements: to write the scores
/// down costs next to nothing then, and products of matrices are made for such sums (the channels of XCiT).
fn has_few_scores(scores: &[Dim], queries: &[Dim]) -> bool {
    /// Elements of a head that kernels of attention have tiles for.
    const WIDEST: i64 = 256;
    let last = |shape: &[Dim]| shape.last().and_then(Dim::as_const);
    last(queries).is_some_and(|width| width > WIDEST && last(scores).is_some_and(|keys| keys <= width))
}

/// The scales of attention, the least and the greatest.
const SCALES: (f64, f64) = (1e-6, 1e6);

struct Attention<'n> {
    layer: &'n Layer,
    v: TensorId,
    found: Scores<'n>,
}

impl<'n> Attention<'n> {
    fn build(self, network: &'n Network, guarded: bool) -> Found<'n> {
        let product = self.found.product;
        rule_if!(!product.attrs.flag("transA"));
        rule_if_some!((q, k) = input(product, 0).zip(input(product, 1)));
        let scores = &network[product.outputs[0]].ty.shape;
        rule_if!(scores.len() >= 3 && [q, k].iter().all(|&t| network[t].ty.rank() == scores.len()));
        rule_if!(!has_few_scores(scores, &network[q].ty.shape));
        let mut patch = Patch::new(network);
        let (q, by) = unscaled(network, &mut patch, q)?;
        let (k, and_by) = unscaled(network, &mut patch, k)?;
        let k = if product.attrs.flag("transB") {
            k
        } else {
            turned(&mut patch, k)?
        };
        let lead = &scores[..scores.len() - 2];
        // Four dimensions: all but the last of the leading ones are the batch.
        let batch = lead[..lead.len() - 1]
            .iter()
            .fold(Dim::from(1i64), |n, d| n * d.clone());
        let heads = [batch, lead[lead.len() - 1].clone()];
        rule_if_some!(q = with_lead(&mut patch, q, lead, &heads)?);
        let whole = patch.ty(self.v).shape.clone();
        rule_if_some!(k = with_lead(&mut patch, k, lead, &heads)?);
        rule_if_some!(v = with_lead(&mut patch, self.v, &whole[..whole.len() - 2], &heads)?);
        let dtype = patch.ty(q).dtype;
        let shape = [&heads[..], &scores[scores.len() - 2..]].concat();
        rule_if_some!(merged = Merged::new(&mut patch, &self.found.masks, &shape, dtype)?);
        let mask = merged.mask(&mut patch, dtype)?;
        let scale = self.found.scale * by * and_by;
        // The scores are scaled after the product: where nothing overflows or vanishes, that is the same rounding.
        rule_if!((SCALES.0..=SCALES.1).contains(&scale.abs()));
        let given = attrs([
            ("scale", Attr::Float(scale)),
            ("softcap", Attr::Float(self.found.softcap)),
            ("is_causal", Attr::Int(merged.causal.into())),
            ("nan_if_blind", Attr::Int((!guarded).into())),
        ]);
        let y = patch.op_full("Attention", given, &[Some(q), Some(k), Some(v), mask])?[0];
        let output = self.layer.outputs[0];
        let y = patch.reshape(y, &network[output].ty.shape)?;
        rule_if!(patch.ty(y).shape == network[output].ty.shape);
        patch.shunt(output, y)?;
        Ok(Some(patch))
    }
}

/// The last two axes swapped; a Transpose that did just that is left out.
fn turned(patch: &mut Patch, k: TensorId) -> Result<TensorId> {
    let rank = patch.ty(k).rank();
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.swap(rank - 2, rank - 1);
    let undone = patch
        .producer(k)
        .filter(|layer| layer.op.name == "Transpose")
        .filter(|layer| ops::transpose::permutation(&layer.attrs, rank).is_ok_and(|own| own == perm))
        .and_then(|layer| input(layer, 0));
    match undone {
        Some(x) => Ok(x),
        None => patch.transpose(k, &perm),
    }
}

/// The tensor with other leading dimensions of as many elements, if it has these.
fn with_lead(patch: &mut Patch, t: TensorId, own: &[Dim], lead: &[Dim]) -> Result<Option<TensorId>> {
    let shape = patch.ty(t).shape.clone();
    let product = |dims: &[Dim]| dims.iter().fold(Dim::from(1i64), |n, d| n * d.clone());
    if shape[..shape.len() - 2] != *own || product(own) != product(lead) {
        return Ok(None);
    }
    let target = [lead, &shape[shape.len() - 2..]].concat();
    patch.reshape(t, &target).map(Some)
}

/// Attention whose keys and values were repeated for groups of heads => Attention of those before.
fn grouped<'n>(network: &'n Network, layer: &Layer) -> Found<'n> {
    let single = |i: usize| input(layer, i).and_then(|t| single(network, t));
    rule_if_some!(((k, k_shape), (v, v_shape)) = single(1).zip(single(2)));
    rule_if!(k_shape[..3] == v_shape[..3]);
    let mut patch = Patch::new(network);
    let mut inputs = layer.inputs.clone();
    inputs[1] = Some(patch.reshape(k, &k_shape)?);
    inputs[2] = Some(patch.reshape(v, &v_shape)?);
    let y = patch.op_full("Attention", layer.attrs.clone(), &inputs)?[0];
    patch.shunt(layer.outputs[0], y)?;
    Ok(Some(patch))
}

/// Keys or values before each was repeated: Reshape(Expand([batch, shared, 1, keys, size])); and their shape.
fn single(network: &Network, t: TensorId) -> Option<(TensorId, Vec<Dim>)> {
    let mut wide = t;
    while let Some(layer) = given_by(network, wide, "Reshape") {
        wide = input(layer, 0)?;
    }
    let narrow = input(given_by(network, wide, "Expand")?, 0)?;
    let [shape, wide, narrow_shape] = [t, wide, narrow].map(|t| &network[t].ty.shape);
    let fits = wide.len() == 5 && narrow_shape.len() == 5 && narrow_shape[2].is(1);
    let same = fits && [0, 1, 3, 4].iter().all(|&axis| wide[axis] == narrow_shape[axis]);
    // The heads come together, and nothing else.
    let heads = wide.get(1)?.clone() * wide.get(2)?.clone();
    let joins = same && *shape == [wide[0].clone(), heads, wide[3].clone(), wide[4].clone()];
    joins.then(|| (narrow, [&narrow_shape[..2], &narrow_shape[3..]].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::array::Array;
    use crate::network::dtype::DType;
    use crate::passes::Settings;
    use crate::passes::testing::{Graph, assert_same, layers_of};

    fn by(g: &mut Graph, op: &str, x: TensorId, value: f64) -> TensorId {
        let c = g.scalar(value);
        g.op(op, &[x, c])
    }

    fn turn(g: &mut Graph, perm: &[i64], x: TensorId) -> TensorId {
        g.op_with("Transpose", attrs([("perm", Attr::Ints(perm.to_vec()))]), &[x])
    }

    fn shaped(g: &mut Graph, x: TensorId, shape: &[i64]) -> TensorId {
        let shape = g.ints(shape);
        g.op("Reshape", &[x, shape])
    }

    fn lower_triangle(g: &mut Graph, of: DType, size: usize, low: f64) -> TensorId {
        let (seen, hidden) = if of == DType::Bool { (1.0, 0.0) } else { (0.0, low) };
        let values: Vec<f64> = (0..size * size)
            .map(|i| if i % size <= i / size { seen } else { hidden })
            .collect();
        let array = Array::from_f64(of, vec![1, 1, size, size], &values).unwrap();
        g.network.add_constant("mask", array)
    }

    /// The softmax of these scores times the values is recognised; gives the layers after the pass.
    fn recognised(mut g: Graph, y: TensorId) -> String {
        g.output(y);
        let before = g.network.clone();
        assert!(
            (PASS.apply)(&mut g.network, &Settings::default()).unwrap() > 0,
            "{before}"
        );
        g.network.verify().unwrap();
        assert!(g.network.layers().all(|(_, l)| l.op.name != "Softmax"), "{}", g.network);
        assert_same(&before, &g.network);
        layers_of(&g.network)
    }

    #[test]
    fn scaled_scores_with_an_added_mask() {
        for divided in [true, false] {
            let mut g = Graph::new();
            let [q, k, v] = ["q", "k", "v"].map(|name| g.input(name, "b 2 s 4"));
            let mask = g.input("mask", "b 1 1 s");
            let k = turn(&mut g, &[0, 1, 3, 2], k);
            let s = g.op("MatMul", &[q, k]);
            let s = if divided {
                by(&mut g, "Div", s, 4.0)
            } else {
                by(&mut g, "Mul", s, 0.25)
            };
            let s = g.op("Add", &[mask, s]);
            let w = g.op("Softmax", &[s]);
            let y = g.op("MatMul", &[w, v]);
            assert_eq!(
                recognised(g, y),
                "%MatMul: float32[b, 2, s, 4] = Attention(%q, %k, %v, %mask) \
                 {is_causal=0, nan_if_blind=1, scale=0.25, softcap=0}"
            );
        }
    }

    #[test]
    fn both_sides_scaled_and_a_causal_mask() {
        let lowest = f64::from(f32::MIN);
        for (of, low) in [
            (DType::Float32, f64::NEG_INFINITY),
            (DType::Float32, lowest),
            (DType::Bool, 0.0),
        ] {
            let mut g = Graph::new();
            let [q, k, v] = ["q", "k", "v"].map(|name| g.input(name, "b 5 2 4"));
            let (q, k) = (by(&mut g, "Mul", q, 0.5), by(&mut g, "Mul", k, 0.5));
            let (q, k) = (turn(&mut g, &[0, 2, 1, 3], q), turn(&mut g, &[0, 2, 3, 1], k));
            let v = turn(&mut g, &[0, 2, 1, 3], v);
            let s = g.op("MatMul", &[q, k]);
            let mask = lower_triangle(&mut g, of, 5, low);
            let s = if of == DType::Bool {
                let (zero, hidden) = (g.scalar(0.0), g.scalar(f64::NEG_INFINITY));
                let bias = g.op("Where", &[mask, zero, hidden]);
                g.op("Add", &[s, bias])
            } else {
                g.op("Add", &[s, mask])
            };
            let w = g.op("Softmax", &[s]);
            let blind = g.op("IsNaN", &[w]);
            let zero = g.scalar(0.0);
            let w = g.op("Where", &[blind, zero, w]);
            let y = g.op("MatMul", &[w, v]);
            let layers = recognised(g, y);
            let want = "{is_causal=1, nan_if_blind=0, scale=0.25, softcap=0}";
            assert!(layers.ends_with(want) && !layers.contains("Mul("), "{layers}");
        }
    }

    #[test]
    fn queries_that_the_mask_blinds_as_onnx_writes_them() {
        for of_mask in [true, false] {
            let mut g = Graph::new();
            let [q, k, v] = ["q", "k", "v"].map(|name| g.input(name, "b 2 s 4"));
            let mask = g.input("mask", "b 1 s s");
            let s = g.op_with("MatMul", attrs([("transB", Attr::Int(1))]), &[q, k]);
            let s = g.op("Add", &[s, mask]);
            let w = g.op("Softmax", &[s]);
            let last = attrs([("axes", Attr::Ints(vec![-1])), ("keepdims", Attr::Int(1))]);
            let other = g.input("other", "b 1 s s");
            let most = g.op_with("ReduceMax", last, &[if of_mask { mask } else { other }]);
            let blind = by(&mut g, "Equal", most, f64::NEG_INFINITY);
            let zero = g.scalar(0.0);
            let w = g.op("Where", &[blind, zero, w]);
            let y = g.op("MatMul", &[w, v]);
            if of_mask {
                assert!(recognised(g, y).ends_with("{is_causal=0, nan_if_blind=0, scale=1, softcap=0}"));
            } else {
                g.output(y);
                assert_eq!((PASS.apply)(&mut g.network, &Settings::default()).unwrap(), 0);
            }
        }
    }

    #[test]
    fn wide_queries_of_few_keys_stay_products() {
        for (keys, stays) in [(48, true), (600, false)] {
            let mut g = Graph::new();
            let [q, k, v] = ["q", "k", "v"].map(|name| g.input(name, &format!("b 4 {keys} 512")));
            let s = g.op_with("MatMul", attrs([("transB", Attr::Int(1))]), &[q, k]);
            let w = g.op("Softmax", &[s]);
            let y = g.op("MatMul", &[w, v]);
            g.output(y);
            let count = (PASS.apply)(&mut g.network, &Settings::default()).unwrap();
            assert_eq!(count == 0, stays, "{keys} keys");
        }
    }

    #[test]
    fn truth_values_and_low_numbers_by_where() {
        for (low, where_true) in [(f64::NEG_INFINITY, false), (-3.0e38, false), (f64::NEG_INFINITY, true)] {
            let mut g = Graph::new();
            let [q, k, v] = ["q", "k", "v"].map(|name| g.input(name, "b 2 s 4"));
            let seen = g.input_of("seen", DType::Bool, "b 1 s s");
            let s = g.op_with("MatMul", attrs([("transB", Attr::Int(1))]), &[q, k]);
            let s = by(&mut g, "Mul", s, 0.5);
            let low = g.scalar(low);
            let s = g.op("Where", &if where_true { [seen, low, s] } else { [seen, s, low] });
            let w = g.op("Softmax", &[s]);
            let y = g.op("MatMul", &[w, v]);
            let layers = recognised(g, y);
            let last = layers.lines().last().unwrap();
            assert!(last.contains("scale=0.5") && last.matches('%').count() == 5, "{layers}");
        }
    }

    #[test]
    fn heads_that_share_keys() {
        let mut g = Graph::new();
        let q = g.input("q", "b 6 s 4");
        let [k, v] = ["k", "v"].map(|name| {
            let x = g.input(name, "b 2 s 4");
            let shape = g.ints(&[0, 0, 1, -1, 4]);
            let x = g.op("Reshape", &[x, shape]);
            let shape = g.ints(&[1, 1, 3, 1, 1]);
            let x = g.op("Expand", &[x, shape]);
            shaped(&mut g, x, &[0, 6, -1, 4])
        });
        let k = turn(&mut g, &[0, 1, 3, 2], k);
        let s = g.op("MatMul", &[q, k]);
        let w = g.op("Softmax", &[s]);
        let y = g.op("MatMul", &[w, v]);
        let layers = recognised(g, y);
        assert!(!layers.contains("Expand(") && layers.contains("scale=1,"), "{layers}");
    }

    #[test]
    fn scores_reshaped_for_a_mask_of_windows() {
        let mut g = Graph::new();
        let [q, k, v] = ["q", "k", "v"].map(|name| {
            let x = g.input(name, "b 8 3 5 4");
            shaped(&mut g, x, &[-1, 3, 5, 4])
        });
        let (bias, mask) = (g.weights(&[1, 3, 5, 5]), g.weights(&[1, 8, 1, 5, 5]));
        let s = g.op_with("MatMul", attrs([("transB", Attr::Int(1))]), &[q, k]);
        let s = g.op("Add", &[s, bias]);
        let s = shaped(&mut g, s, &[-1, 8, 3, 5, 5]);
        let s = g.op("Add", &[s, mask]);
        let s = shaped(&mut g, s, &[-1, 3, 5, 5]);
        let w = g.op("Softmax", &[s]);
        let y = g.op("MatMul", &[w, v]);
        let layers = recognised(g, y);
        assert!(layers.contains("[8*b, 3, 5, 4] = Attention("), "{layers}");
    }

    #[test]
    fn three_dimensions_and_a_cap() {
        let mut g = Graph::new();
        let [q, k, v] = ["q", "k", "v"].map(|name| g.input(name, "h s 4"));
        let s = g.op_with("MatMul", attrs([("transB", Attr::Int(1))]), &[q, k]);
        let s = by(&mut g, "Mul", s, 0.125);
        let s = g.op("Tanh", &[s]);
        let s = by(&mut g, "Mul", s, 2.0);
        let w = g.op("Softmax", &[s]);
        let y = g.op("MatMul", &[w, v]);
        let layers = recognised(g, y);
        assert!(layers.contains("scale=0.25, softcap=2}"), "{layers}");
    }

    #[test]
    fn scores_that_others_read_stay() {
        for other in [false, true] {
            let mut g = Graph::new();
            let [q, k, v] = ["q", "k", "v"].map(|name| g.input(name, "b 2 s 4"));
            let s = g.op_with("MatMul", attrs([("transB", Attr::Int(1))]), &[q, k]);
            let axis = if other { -1 } else { 2 };
            let w = g.op_with("Softmax", attrs([("axis", Attr::Int(axis))]), &[s]);
            let y = g.op("MatMul", &[w, v]);
            g.output(y);
            if other {
                g.output(w);
            }
            assert_eq!((PASS.apply)(&mut g.network, &Settings::default()).unwrap(), 0);
        }
    }
}
