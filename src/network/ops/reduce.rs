//! What reductions share: axes, the shape rule, and groups of elements that belong together.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{AttrDef, Attrs, Preset, Read, attr};
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::op::{Evaluate, Infer, TensorType};
use crate::network::ops::{places, strides, values};
use crate::network::unsigned;

/// The sum of numbers; that of none is 0, where Rust's is -0.
pub fn sum(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.sum::<f64>() + 0.0
}

/// The attributes of every reduction.
pub const ATTRS: &[AttrDef] = &[
    attr("axes", Preset::Ints(&[]), "the axes to reduce; empty: all"),
    attr("keepdims", Preset::Int(1), "keep a reduced dimension as 1"),
    attr(
        "noop_with_empty_axes",
        Preset::Int(0),
        "empty axes mean none instead of all",
    ),
];

/// The axes that a reduction of a tensor of this type reduces, ascending.
pub fn axes(attrs: &Attrs, x: &TensorType) -> Result<Vec<usize>> {
    if attrs.ints("axes").is_empty() && !attrs.flag("noop_with_empty_axes") {
        return Ok((0..x.rank()).collect());
    }
    distinct(attrs.ints("axes"), x)
}

/// Axes counted from the front, ascending.
///
/// # Errors
/// If one is out of range or there twice.
pub fn distinct(axes: &[i64], x: &TensorType) -> Result<Vec<usize>> {
    let mut axes = axes.iter().map(|&a| x.axis(a)).collect::<Result<Vec<_>>>()?;
    axes.sort_unstable();
    if axes.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Error::invalid("an axis is there twice").got(format!("{axes:?}")));
    }
    Ok(axes)
}

/// The shape after reducing these axes.
pub fn reduced(shape: &[Dim], axes: &[usize], keep: bool) -> Vec<Dim> {
    let kept = shape
        .iter()
        .enumerate()
        .filter(|(axis, _)| keep || !axes.contains(axis));
    kept.map(|(axis, dim)| if axes.contains(&axis) { 1i64.into() } else { dim.clone() })
        .collect()
}

/// The rule of reductions of numbers.
pub fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let x = infer.input(0)?;
    if x.dtype == DType::Bool {
        return Err(Error::dtype("the op reduces numbers").got(x.dtype.name()));
    }
    infer_any(infer)
}

/// The rule of reductions of any dtype.
pub fn infer_any(infer: &Infer) -> Result<Vec<TensorType>> {
    let x = infer.input(0)?;
    let axes = axes(infer.attrs, x)?;
    let shape = reduced(&x.shape, &axes, infer.attrs.flag("keepdims"));
    Ok(vec![TensorType::new(x.dtype, shape)])
}

/// As [`infer`], and the dtype must be a floating-point one.
pub fn infer_float(context: &Infer) -> Result<Vec<TensorType>> {
    let x = context.input(0)?;
    if !x.dtype.is_float() {
        return Err(Error::dtype("the op reduces floating-point tensors").got(x.dtype.name()));
    }
    infer(context)
}

/// As [`infer`], with the elements of a symbolic value combined.
pub fn infer_numbers(context: &Infer, combine: fn(Dim, &Dim) -> Dim, empty: i64) -> Result<Vec<TensorType>> {
    infer(context)?;
    infer_value(context, combine, empty)
}

/// The rule of the least and greatest element.
pub fn infer_extreme(context: &Infer, combine: fn(Dim, &Dim) -> Dim) -> Result<Vec<TensorType>> {
    let mut outputs = infer_any(context)?;
    // Of no elements the result is a limit of the dtype, which is no dimension.
    if context.input(0)?.value.as_ref().is_some_and(|v| !v.is_empty()) {
        outputs = infer_value(context, combine, 0)?;
    }
    Ok(outputs)
}

/// As [`infer_any`], with the elements of a symbolic value combined from left to right.
fn infer_value(context: &Infer, combine: fn(Dim, &Dim) -> Dim, empty: i64) -> Result<Vec<TensorType>> {
    let mut outputs = infer_any(context)?;
    let x = context.input(0)?;
    if let (Some(value), Some(shape), true) = (&x.value, x.concrete(), values::carried(x.dtype)) {
        let groups = Groups::new(&shape, &axes(context.attrs, x)?);
        let element = |group: Vec<usize>| {
            let first = group.first().map_or(empty.into(), |&at| value[at].clone());
            group.iter().skip(1).fold(first, |sum, &at| combine(sum, &value[at]))
        };
        outputs[0].value = Some(groups.iter().map(element).collect());
    }
    Ok(outputs)
}

/// The elements that are reduced together: one group per element of the result.
pub struct Groups {
    starts: Vec<usize>,
    offsets: Vec<usize>,
}

impl Groups {
    /// The groups along these axes.
    pub fn new(shape: &[usize], axes: &[usize]) -> Self {
        let strides = strides(shape);
        let choose = |inside: bool| {
            let chosen = (0..shape.len()).filter(|axis| axes.contains(axis) == inside);
            let (sizes, steps): (Vec<_>, Vec<_>) = chosen.map(|a| (shape[a], strides[a])).unzip();
            places(&sizes, &steps)
        };
        Self {
            starts: choose(false),
            offsets: choose(true),
        }
    }

    /// The places of the elements of each group.
    pub fn iter(&self) -> impl Iterator<Item = Vec<usize>> {
        self.starts
            .iter()
            .map(|start| self.offsets.iter().map(|offset| start + offset).collect())
    }
}

fn gathered<T: Copy, R>(data: &[T], groups: &Groups, function: impl Fn(&[T]) -> R) -> Vec<R> {
    let mut elements = vec![];
    let mut group = |start: &usize| {
        elements.clear();
        elements.extend(groups.offsets.iter().map(|offset| data[start + offset]));
        function(&elements)
    };
    groups.starts.iter().map(&mut group).collect()
}

/// The reference of a reduction: integers exactly where `int` is given.
pub fn evaluate(e: &Evaluate, float: fn(&[f64]) -> f64, int: Option<fn(&[i64]) -> i64>) -> Result<Vec<Array>> {
    let x = e.input(0)?;
    let groups = Groups::new(x.shape(), &axes(e.attrs, &crate::network::constant_type(x))?);
    match int {
        Some(int) if !x.dtype().is_float() => {
            let values = gathered(&x.to_i64(), &groups, int);
            let (dtype, shape) = &e.outputs[0];
            Ok(vec![Array::from_i64(*dtype, shape.clone(), &values)?])
        }
        _ => e.output(&gathered(&x.to_f64(), &groups, float)),
    }
}

/// The reference of the least and greatest element, which of no elements is a limit of the dtype.
pub fn evaluate_extreme(
    e: &Evaluate,
    float: fn(&[f64]) -> f64,
    int: fn(&[i64]) -> Option<i64>,
    limit: fn(DType) -> i64,
) -> Result<Vec<Array>> {
    let x = e.input(0)?;
    if x.dtype().is_float() {
        return evaluate(e, float, None);
    }
    let groups = Groups::new(x.shape(), &axes(e.attrs, &crate::network::constant_type(x))?);
    let element = |rank| unsigned::swapped(x.dtype(), rank);
    let reduced = gathered(&unsigned::ranks(x), &groups, |v| {
        int(v).map_or(limit(x.dtype()), element)
    });
    let (dtype, shape) = &e.outputs[0];
    Ok(vec![Array::from_i64(*dtype, shape.clone(), &reduced)?])
}

/// The reference of an op that maps the elements along some axes together, keeping the shape.
pub fn map(e: &Evaluate, axes: &[usize], mut function: impl FnMut(&mut [f64])) -> Result<Vec<Array>> {
    let x = e.input(0)?;
    let mut data = x.to_f64();
    for group in Groups::new(x.shape(), axes).iter() {
        let mut values: Vec<_> = group.iter().map(|&at| data[at]).collect();
        function(&mut values);
        group.iter().zip(values).for_each(|(&at, value)| data[at] = value);
    }
    e.output(&data)
}
