//! Einsum.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attr, Preset, Read, attr};
use crate::network::dim::Dim;
use crate::network::op::{Decomposition, Evaluate, Infer, Lowering, OpDef, TensorType, Uint64};
use crate::network::ops::rewrite::Rewrite;
use crate::network::ops::{matmul, places, pointwise, reduce_sum, strides, tf32, trilu};
use crate::network::patch::Patch;
use crate::network::{LayerId, Network, TensorId};
use std::collections::BTreeMap;

/// Sums of products of elements, by an equation over the dimensions (ONNX Einsum).
pub static DEF: OpDef = OpDef {
    name: "Einsum",
    doc: "Sums of products of elements, by an equation such as \"bik,bkj->bij\"; \"...\" stands for dimensions that are \
          broadcast (ONNX Einsum)",
    inputs: &["x*"],
    attrs: &[
        attr(
            "equation",
            Preset::Text(""),
            "labels of the dimensions of each input, and of the output",
        ),
        tf32::TF32,
    ],
    infer,
    evaluate,
    lowering: Lowering::COMPUTES,
    uint64: Uint64::Exact,
    decomposition: Decomposition::Always(decompose),
    ..OpDef::PLAIN
};

/// A dimension of the equation: a letter, or a place in the ellipsis counted from its back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    /// From the front to the back, so that labels sort in the order of the dimensions.
    Ellipsis(std::cmp::Reverse<usize>),
    Letter(char),
}

struct Equation {
    terms: Vec<Vec<Label>>,
    output: Vec<Label>,
}

impl Equation {
    fn parse(text: &str, ranks: &[usize]) -> Result<Self> {
        let bad = |why: &str| Error::invalid(format!("the equation can't be read: {why}")).got(text);
        let compact: String = text.split_whitespace().collect();
        let (left, right) = match compact.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (compact.as_str(), None),
        };
        let parts: Vec<_> = left.split(',').collect();
        if parts.len() != ranks.len() {
            return Err(bad("it needs one term per input").expected(format!("{} terms", ranks.len())));
        }
        let labels = |term: &str, hidden: usize| {
            let mut labels = vec![];
            for (i, part) in term.split("...").enumerate() {
                if i == 1 {
                    labels.extend((0..hidden).rev().map(|k| Label::Ellipsis(std::cmp::Reverse(k))));
                }
                labels.extend(part.chars().map(Label::Letter));
            }
            let letters = labels
                .iter()
                .all(|l| matches!(l, Label::Ellipsis(_)) || matches!(l, Label::Letter(c) if c.is_alphabetic()));
            if letters && term.matches("...").count() <= 1 {
                Ok(labels)
            } else {
                Err(bad("terms are letters and one ellipsis"))
            }
        };
        let mut terms = vec![];
        for (term, &rank) in parts.iter().zip(ranks) {
            let named = term.replace("...", "").chars().count();
            let fits = if term.contains("...") {
                named <= rank
            } else {
                named == rank
            };
            if !fits {
                return Err(bad("a term does not name each dimension of its input")
                    .expected(format!("rank {rank} for {term:?}")));
            }
            terms.push(labels(term, rank - named)?);
        }
        let hidden = terms
            .iter()
            .map(|t| t.iter().filter(|l| matches!(l, Label::Ellipsis(_))).count());
        let output = match right {
            Some(right) => labels(right, hidden.max().unwrap_or(0))?,
            None => {
                let mut counts = BTreeMap::new();
                terms.iter().flatten().for_each(|&l| *counts.entry(l).or_insert(0) += 1);
                counts.retain(|l, count| *count == 1 || matches!(l, Label::Ellipsis(_)));
                counts.into_keys().collect()
            }
        };
        if output.iter().any(|l| !terms.iter().flatten().any(|t| t == l)) {
            return Err(bad("the output has a letter that no input has"));
        }
        Ok(Self { terms, output })
    }
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let inputs: Vec<_> = infer.inputs.iter().flatten().collect();
    pointwise::same_dtype(&inputs)?;
    let ranks: Vec<_> = inputs.iter().map(|t| t.rank()).collect();
    let equation = Equation::parse(infer.attrs.text("equation"), &ranks)?;
    let mut extents: BTreeMap<Label, Dim> = BTreeMap::new();
    for (&label, dim) in equation
        .terms
        .iter()
        .flatten()
        .zip(inputs.iter().flat_map(|t| &t.shape))
    {
        let known = match (extents.get(&label), label) {
            (None, _) => dim.clone(),
            (Some(known), Label::Ellipsis(_)) => infer.broadcast_dim(known, dim)?,
            (Some(known), Label::Letter(letter)) => {
                infer.require_equal(known, dim, &format!("dimensions with the letter {letter:?} differ"))?;
                known.clone()
            }
        };
        extents.insert(label, known);
    }
    let shape: Vec<_> = equation.output.iter().map(|l| extents[l].clone()).collect();
    Ok(vec![TensorType::new(inputs[0].dtype, shape)])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let inputs: Vec<_> = e.inputs.iter().flatten().collect();
    let ranks: Vec<_> = inputs.iter().map(|a| a.shape().len()).collect();
    let equation = Equation::parse(e.attrs.text("equation"), &ranks)?;
    let mut extents: BTreeMap<Label, usize> = BTreeMap::new();
    for (&label, &size) in equation
        .terms
        .iter()
        .flatten()
        .zip(inputs.iter().flat_map(|a| a.shape()))
    {
        let known = extents.entry(label).or_insert(size);
        *known = if *known == 1 { size } else { *known };
    }
    let summed: Vec<_> = extents
        .keys()
        .copied()
        .filter(|l| !equation.output.contains(l))
        .collect();
    let mut walks = vec![];
    for (array, term) in inputs.iter().zip(&equation.terms) {
        let strides = strides(array.shape());
        let step = |label: &Label| {
            let own = (0..term.len()).filter(|&i| term[i] == *label && array.shape()[i] != 1);
            own.map(|i| strides[i]).sum::<usize>()
        };
        let walk = |labels: &[Label]| {
            let (sizes, steps): (Vec<_>, Vec<_>) = labels.iter().map(|l| (extents[l], step(l))).unzip();
            places(&sizes, &steps)
        };
        walks.push((walk(&equation.output), walk(&summed)));
    }
    let sums = Sums {
        elements: e.outputs[0].1.iter().product(),
        terms: summed.iter().map(|l| extents[l]).product(),
        walks,
    };
    let (dtype, shape) = &e.outputs[0];
    if dtype.is_int() {
        let data: Vec<_> = inputs.iter().map(|x| x.to_i64()).collect();
        let out = sums.run(&data, [0, 1], i64::wrapping_add, i64::wrapping_mul);
        return Ok(vec![Array::from_i64(*dtype, shape.clone(), &out)?]);
    }
    let data: Vec<_> = inputs.iter().map(|x| x.to_f64()).collect();
    e.output(&sums.run(&data, [0.0, 1.0], |a, b| a + b, |a, b| a * b))
}

/// Sums of products of elements, one of each input.
struct Sums {
    elements: usize,
    terms: usize,
    /// For each input where it is read: a place for each element of the output, and an offset for each term.
    walks: Vec<(Vec<usize>, Vec<usize>)>,
}

impl Sums {
    fn run<T: Copy>(&self, data: &[Vec<T>], [zero, one]: [T; 2], add: fn(T, T) -> T, mul: fn(T, T) -> T) -> Vec<T> {
        let product = |i: usize, j: usize| {
            let factors = data.iter().zip(&self.walks).map(|(x, (at, by))| x[at[i] + by[j]]);
            factors.fold(one, mul)
        };
        let sum = |i| (0..self.terms).map(|j| product(i, j)).fold(zero, add);
        (0..self.elements).map(sum).collect()
    }
}

/// A tensor with the labels of its dimensions.
type Labelled = (TensorId, Vec<Label>);

/// Sums over the labels that are not `wanted`.
fn sum_out(rewrite: &mut Rewrite, (x, labels): Labelled, wanted: impl Fn(&Label) -> bool) -> Result<Labelled> {
    let axes: Vec<_> = (0..labels.len() as i64)
        .filter(|&i| !wanted(&labels[i as usize]))
        .collect();
    if axes.is_empty() {
        return Ok((x, labels));
    }
    let attrs = [("axes", Attr::Ints(axes)), ("keepdims", Attr::Int(0))];
    let sum = rewrite.apply_with(&reduce_sum::DEF, attrs, &[x])?;
    Ok((sum, labels.into_iter().filter(wanted).collect()))
}

/// Draws the dimensions of one label together: what lies off the diagonal becomes 0, and a sum leaves the diagonal.
fn diagonal(rewrite: &mut Rewrite, (mut x, mut labels): Labelled) -> Result<Labelled> {
    let repeated =
        |labels: &[Label]| (1..labels.len()).find_map(|j| Some((labels[..j].iter().position(|l| *l == labels[j])?, j)));
    while let Some((i, j)) = repeated(&labels) {
        let mut perm: Vec<_> = (0..labels.len()).filter(|&axis| axis != i && axis != j).collect();
        perm.extend([i, j]);
        x = rewrite.transpose(x, &perm)?;
        for upper in [0, 1] {
            x = rewrite.apply_with(&trilu::DEF, [("upper", Attr::Int(upper))], &[x])?;
        }
        let attrs = [("axes", Attr::Ints(vec![-1])), ("keepdims", Attr::Int(0))];
        x = rewrite.apply_with(&reduce_sum::DEF, attrs, &[x])?;
        perm.pop();
        labels = perm.into_iter().map(|axis| labels[axis]).collect();
    }
    Ok((x, labels))
}

/// The tensor with its dimensions in the order of `batch`, then those of each group joined to one.
fn arranged(rewrite: &mut Rewrite, (x, labels): &Labelled, batch: &[Label], groups: [&[Label]; 2]) -> Result<TensorId> {
    let order: Vec<_> = [batch, groups[0], groups[1]].concat();
    let perm: Vec<_> = order
        .iter()
        .filter_map(|l| labels.iter().position(|own| own == l))
        .collect();
    let x = rewrite.transpose(*x, &perm)?;
    let ty = rewrite.ty(x).clone();
    // A batch label that this side lacks is broadcast: leading ones.
    let mut own = ty.shape.into_iter();
    let lead = batch.iter().map(|l| {
        if labels.contains(l) {
            own.next()
        } else {
            Some(1i64.into())
        }
    });
    let mut shape: Vec<Dim> = lead.flatten().collect();
    for group in groups {
        let dims: Vec<_> = own.by_ref().take(group.len()).collect();
        shape.push(TensorType::new(ty.dtype, dims).elements());
    }
    rewrite.reshape(x, shape)
}

/// Einsum => ReduceSum, Transpose, Reshape and one MatMul per further input; Trilu where a letter comes twice.
fn decompose(network: &Network, id: LayerId) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let inputs: Vec<_> = network[id].inputs.iter().flatten().copied().collect();
    let ranks: Vec<_> = inputs.iter().map(|&t| rewrite.ty(t).rank()).collect();
    let Equation { terms, output } = Equation::parse(rewrite.attrs().text("equation"), &ranks)?;
    let given = inputs.into_iter().zip(terms.iter().cloned());
    let sides: Result<Vec<_>> = given.map(|side| diagonal(&mut rewrite, side)).collect();
    let mut sides = sides?.into_iter();
    let mut result = sides.next().ok_or_else(|| Error::invalid("Einsum has no inputs"))?;
    for (done, right) in sides.enumerate() {
        let later = |l: &Label| output.contains(l) || terms[done + 2..].iter().flatten().any(|t| t == l);
        let left = sum_out(&mut rewrite, result.clone(), |l| later(l) || right.1.contains(l))?;
        let right = sum_out(&mut rewrite, right, |l| later(l) || left.1.contains(l))?;
        let of = |labels: &[Label], both: bool, kept: bool, other: &[Label]| {
            let chosen = labels.iter().filter(|l| other.contains(l) == both && later(l) == kept);
            chosen.copied().collect::<Vec<_>>()
        };
        // An ellipsis is broadcast, so it always is part of the batch.
        let ellipsis = |labels: &[Label]| {
            labels
                .iter()
                .copied()
                .filter(|l| matches!(l, Label::Ellipsis(_)))
                .collect::<Vec<_>>()
        };
        let mut batch = [ellipsis(&left.1), ellipsis(&right.1), of(&left.1, true, true, &right.1)].concat();
        batch.sort();
        batch.dedup();
        let free = |labels: Vec<Label>| labels.into_iter().filter(|l| !batch.contains(l)).collect::<Vec<_>>();
        let rows = free(of(&left.1, false, true, &right.1));
        let columns = free(of(&right.1, false, true, &left.1));
        let inner = free(of(&left.1, true, false, &right.1));
        let a = arranged(&mut rewrite, &left, &batch, [&rows, &inner])?;
        let b = arranged(&mut rewrite, &right, &batch, [&inner, &columns])?;
        let allow_tf32 = Attr::Int(rewrite.attrs().is_marked(tf32::TF32.name).into());
        let product = rewrite.apply_with(&matmul::DEF, [(tf32::TF32.name, allow_tf32)], &[a, b])?;
        let extent = |l: &Label| {
            let find =
                |(x, labels): &Labelled| Some(rewrite.ty(*x).shape[labels.iter().position(|own| own == l)?].clone());
            find(&left).or_else(|| find(&right)).unwrap_or_default()
        };
        let mut shape = rewrite.ty(product).shape[..batch.len()].to_vec();
        shape.extend(rows.iter().chain(&columns).map(extent));
        let product = rewrite.reshape(product, shape)?;
        result = (product, [batch, rows, columns].concat());
    }
    let (sum, labels) = sum_out(&mut rewrite, result, |l| output.contains(l))?;
    let perm: Vec<_> = output
        .iter()
        .filter_map(|l| labels.iter().position(|own| own == l))
        .collect();
    let result = rewrite.transpose(sum, &perm)?;
    rewrite.finish(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::attrs;
    use crate::network::dtype::DType;
    use crate::network::reference::evaluate_op;

    fn run(equation: &str, inputs: &[(&[usize], &[f64])]) -> Result<Array> {
        let inputs: Vec<_> = inputs
            .iter()
            .map(|(shape, values)| Array::from_f64(DType::Float64, shape.to_vec(), values).ok())
            .collect();
        Ok(evaluate_op(&DEF, &attrs([("equation", Attr::Text(equation.into()))]), &inputs)?.remove(0))
    }

    #[test]
    fn diagonals_sums_and_implicit_outputs() {
        let m: (&[usize], &[f64]) = (&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
        assert_eq!(run("ii", &[m]).unwrap().to_f64(), [5.0]);
        assert_eq!(run("ii->i", &[m]).unwrap().to_f64(), [1.0, 4.0]);
        assert_eq!(run("ba", &[m]).unwrap().to_f64(), [1.0, 3.0, 2.0, 4.0]);
        assert_eq!(run("ij, jk", &[m, m]).unwrap().to_f64(), [7.0, 10.0, 15.0, 22.0]);
        for wrong in ["ij,jk", "ijk", "i->i", "ij->k", "i.j"] {
            assert!(run(wrong, &[m]).is_err(), "{wrong}");
        }
    }
}
