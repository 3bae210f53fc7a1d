//! What pointwise ops share: type rules, and the reference evaluation with broadcasting.

use crate::error::{Error, Result};
use crate::network::LONGEST_VALUE;
use crate::network::array::Array;
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::op::{Evaluate, Infer, OpDef, Pointwise, TensorType};
use crate::network::ops::{self, values};

/// Output: the broadcast shape and the common dtype of all inputs, which must be numbers.
pub fn infer_same(infer: &Infer) -> Result<Vec<TensorType>> {
    infer_where(infer, "numbers", |dtype| dtype != DType::Bool)
}

/// As [`infer_same`], and the dtype must be a floating-point one.
pub fn infer_float(infer: &Infer) -> Result<Vec<TensorType>> {
    infer_where(infer, "floating-point tensors", DType::is_float)
}

/// As [`infer_same`], and the dtype must be an integer or floating-point one with a sign.
pub fn infer_signed(infer: &Infer) -> Result<Vec<TensorType>> {
    infer_where(infer, "signed numbers", |dtype| {
        dtype != DType::Bool && !dtype.name().starts_with("uint")
    })
}

/// As [`infer_same`], and the dtype must be an integer one.
pub fn infer_integer(infer: &Infer) -> Result<Vec<TensorType>> {
    infer_where(infer, "integers", DType::is_int)
}

/// The broadcast shape; inputs and output are bool.
pub fn infer_logical(infer: &Infer) -> Result<Vec<TensorType>> {
    infer_where(infer, "bool tensors", |dtype| dtype == DType::Bool)
}

/// Output: the broadcast shape, bool; the inputs are of one dtype, whichever.
pub fn infer_comparison(infer: &Infer) -> Result<Vec<TensorType>> {
    let mut outputs = infer_where(infer, "", |_| true)?;
    outputs[0].dtype = DType::Bool;
    Ok(outputs)
}

/// Output: bool; the input must be a floating-point tensor.
pub fn infer_test(infer: &Infer) -> Result<Vec<TensorType>> {
    let mut outputs = infer_float(infer)?;
    outputs[0].dtype = DType::Bool;
    Ok(outputs)
}

fn infer_where(infer: &Infer, works_on: &str, accepts: fn(DType) -> bool) -> Result<Vec<TensorType>> {
    let dtype = infer.input(0)?.dtype;
    if !accepts(dtype) {
        return Err(Error::dtype(format!("the op works on {works_on}"))
            .got(dtype.name())
            .hint("insert a Cast"));
    }
    let inputs: Vec<_> = infer.inputs.iter().flatten().collect();
    same_dtype(&inputs)?;
    let shapes: Vec<_> = inputs.iter().map(|t| t.shape.as_slice()).collect();
    Ok(vec![TensorType::new(dtype, infer.broadcast(&shapes)?)])
}

/// Refuses tensors of different dtypes.
pub fn same_dtype(inputs: &[&TensorType]) -> Result<()> {
    match inputs.iter().find(|t| t.dtype != inputs[0].dtype) {
        None => Ok(()),
        Some(other) => Err(Error::dtype("the inputs differ in dtype")
            .expected(inputs[0].dtype.name())
            .got(other.dtype.name())
            .hint("insert a Cast: types are never converted silently")),
    }
}

/// Refuses an input that is broadcast beyond the shape of the first one.
pub fn one_way(infer: &Infer, outputs: Vec<TensorType>) -> Result<Vec<TensorType>> {
    broadcast_to(infer.input(0)?, outputs)
}

/// Refuses outputs, broadcast from `x` with others, that are larger than `x`.
pub fn broadcast_to(x: &TensorType, outputs: Vec<TensorType>) -> Result<Vec<TensorType>> {
    let fits = outputs[0].rank() == x.rank();
    let grown = outputs[0]
        .shape
        .iter()
        .zip(&x.shape)
        .find(|(out, dim)| dim.is(1) && !out.is(1));
    if fits && grown.is_none() {
        return Ok(outputs);
    }
    Err(
        Error::shape("an input is larger than the tensor that it is broadcast to")
            .expected(x.describe())
            .got(outputs[0].describe()),
    )
}

/// Elements of a symbolic value, computed from those of the inputs.
pub fn combine_values(
    infer: &Infer,
    mut outputs: Vec<TensorType>,
    combine: impl Fn(&[Dim]) -> Option<Dim>,
) -> Vec<TensorType> {
    outputs[0].value = combined(infer, &outputs[0], combine);
    outputs
}

fn combined(infer: &Infer, output: &TensorType, combine: impl Fn(&[Dim]) -> Option<Dim>) -> Option<Vec<Dim>> {
    let inputs: Vec<_> = infer.inputs.iter().flatten().collect();
    if !inputs.iter().all(|t| values::carried(t.dtype) && t.value.is_some()) || !values::carried(output.dtype) {
        return None;
    }
    let shape = output.concrete()?;
    let count = shape.iter().product();
    if count > LONGEST_VALUE {
        return None;
    }
    let picked = inputs.iter().map(|t| {
        let places = broadcast_places(&t.concrete()?, &shape);
        places
            .iter()
            .map(|&at| t.value.as_ref()?.get(at))
            .collect::<Option<Vec<_>>>()
    });
    let picked = picked.collect::<Option<Vec<_>>>()?;
    let element = |i: usize| combine(&picked.iter().map(|v| v[i].clone()).collect::<Vec<_>>());
    (0..count).map(element).collect()
}

/// A relation of two dims as a symbolic truth value, where it is decided by the least and greatest `a - b`.
pub fn compared(v: &[Dim], decide: fn(low: i64, high: i64) -> Option<bool>) -> Option<Dim> {
    let (low, high) = values::bounds(&(v[0].clone() - v[1].clone()));
    decide(low, high).map(|truth| i64::from(truth).into())
}

/// The greater of two numbers, NaN if either is.
pub fn greater(a: f64, b: f64) -> f64 {
    if a >= b || a.is_nan() { a } else { b }
}

/// The lesser of two numbers, NaN if either is.
pub fn lesser(a: f64, b: f64) -> f64 {
    if a <= b || a.is_nan() { a } else { b }
}

/// The reference of every op that has `pointwise` set. An input that is left out comes as NaN or `i64::MIN`.
pub fn evaluate(op: &OpDef, e: &Evaluate) -> Result<Vec<Array>> {
    let rule = op
        .pointwise
        .ok_or_else(|| Error::internal(format!("{} is not pointwise", op.name)))?;
    evaluate_rule(rule, op.inputs.len(), e)
}

/// [`evaluate`] by a rule for one element.
pub fn evaluate_rule(rule: Pointwise, inputs: usize, e: &Evaluate) -> Result<Vec<Array>> {
    let (dtype, shape) = &e.outputs[0];
    let inputs: Vec<_> = (0..inputs).map(|i| e.optional(i)).collect();
    match rule.int {
        Some(int) if !inputs.iter().flatten().any(|a| a.dtype().is_float()) => {
            let values = each(&inputs, shape, Array::to_i64, i64::MIN, |v| int(e.attrs, v));
            Ok(vec![Array::from_i64(*dtype, shape.clone(), &values)?])
        }
        _ => e.output(&each(&inputs, shape, Array::to_f64, f64::NAN, |v| {
            (rule.float)(e.attrs, v)
        })),
    }
}

fn each<T: Copy>(
    inputs: &[Option<&Array>],
    shape: &[usize],
    load: fn(&Array) -> Vec<T>,
    missing: T,
    function: impl Fn(&[T]) -> T,
) -> Vec<T> {
    let loaded = |a: &Array| (load(a), broadcast_places(a.shape(), shape));
    let inputs: Vec<_> = inputs.iter().map(|a| a.map(loaded)).collect();
    let mut values = vec![missing; inputs.len()];
    let element = |i: usize| {
        for (value, input) in values.iter_mut().zip(&inputs) {
            if let Some((data, places)) = input {
                *value = data[places[i]];
            }
        }
        function(&values)
    };
    (0..shape.iter().product()).map(element).collect()
}

/// For each element of `to`, row-major, the place of the element of `from` that is broadcast to it.
pub fn broadcast_places(from: &[usize], to: &[usize]) -> Vec<usize> {
    let mut strides = vec![0; to.len()];
    let mut stride = 1;
    for axis in (0..from.len()).rev() {
        strides[axis + to.len() - from.len()] = if from[axis] == 1 { 0 } else { stride };
        stride *= from[axis];
    }
    ops::places(to, &strides)
}

/// Declares the `evaluate` function of a pointwise op in its own file.
macro_rules! pointwise_evaluate {
    () => {
        fn evaluate(e: &$crate::network::op::Evaluate) -> $crate::error::Result<Vec<$crate::network::array::Array>> {
            $crate::network::ops::pointwise::evaluate(&DEF, e)
        }
    };
}
pub(crate) use pointwise_evaluate;

/// Declares an op on one floating-point tensor without attributes, by its function of one number.
macro_rules! unary_float {
    ($name:literal, $doc:literal, $float:expr) => {
        #[doc = $doc]
        pub static DEF: $crate::network::op::OpDef = $crate::network::op::OpDef {
            name: $name,
            doc: $doc,
            inputs: &["x"],
            attrs: &[],
            infer: $crate::network::ops::pointwise::infer_float,
            evaluate,
            pointwise: Some($crate::network::op::Pointwise {
                float: |_, v| {
                    let function: fn(f64) -> f64 = $float;
                    function(v[0])
                },
                int: None,
            }),
            decomposition: $crate::network::op::Decomposition::None,
        };
        $crate::network::ops::pointwise::pointwise_evaluate!();
    };
}
pub(crate) use unary_float;
