//! What pointwise ops share: type rules, and the reference evaluation with broadcasting.

use crate::error::{Error, Result};
use crate::network::LONGEST_VALUE;
use crate::network::array::{Array, BLOCK, store_f64s, store_i64s};
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::narrow::Format;
use crate::network::op::{Evaluate, Infer, OpDef, Pointwise, TensorType};
use crate::network::ops::{self, values};
use crate::network::unsigned;

/// Output: the broadcast shape and the common dtype of all inputs, which must be numbers.
pub fn infer_same(infer: &Infer) -> Result<Vec<TensorType>> {
    broadcast_all(infer, common_number(infer)?)
}

/// As [`infer_same`], and the dtype must be a floating-point one.
pub fn infer_float(infer: &Infer) -> Result<Vec<TensorType>> {
    broadcast_all(infer, common_float(infer)?)
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

/// Output: bool; the input must be a floating-point tensor, of 8 bits at least.
pub fn infer_test(infer: &Infer) -> Result<Vec<TensorType>> {
    let narrow = |dtype: DType| dtype.narrow().is_some_and(|n| matches!(n.format, Format::Float { .. }));
    let accepts = |dtype: DType| dtype.is_float() || dtype.bits() == 8 && narrow(dtype);
    let mut outputs = infer_where(infer, "floating-point tensors", accepts)?;
    outputs[0].dtype = DType::Bool;
    Ok(outputs)
}

fn infer_where(infer: &Infer, works_on: &str, accepts: impl Fn(DType) -> bool) -> Result<Vec<TensorType>> {
    broadcast_all(infer, common_dtype(infer, works_on, accepts)?)
}

fn broadcast_all(infer: &Infer, dtype: DType) -> Result<Vec<TensorType>> {
    let shapes: Vec<_> = infer.inputs.iter().flatten().map(|t| t.shape.as_slice()).collect();
    Ok(vec![TensorType::new(dtype, infer.broadcast(&shapes)?)])
}

/// The dtype of all inputs, which must be one of numbers.
pub fn common_number(infer: &Infer) -> Result<DType> {
    common_dtype(infer, "numbers", |dtype| dtype != DType::Bool)
}

/// The dtype of all inputs, which must be a floating-point one.
pub fn common_float(infer: &Infer) -> Result<DType> {
    common_dtype(infer, "floating-point tensors", DType::is_float)
}

fn common_dtype(infer: &Infer, works_on: &str, accepts: impl Fn(DType) -> bool) -> Result<DType> {
    let dtype = infer.input(0)?.dtype;
    if !accepts(dtype) {
        return Err(Error::dtype(format!("the op works on {works_on}"))
            .got(dtype.name())
            .hint("insert a Cast"));
    }
    let inputs: Vec<_> = infer.inputs.iter().flatten().collect();
    same_dtype(&inputs)?;
    Ok(dtype)
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

/// Output: the shape of the first input, to which the others are broadcast, in this dtype.
pub fn one_way(infer: &Infer, dtype: DType) -> Result<Vec<TensorType>> {
    let mut shape = infer.input(0)?.shape.clone();
    for side in infer.inputs[1..].iter().flatten() {
        shape = infer.broadcast_onto(&shape, &side.shape)?;
    }
    Ok(vec![TensorType::new(dtype, shape)])
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
    let unsigned = e.input(0)?.dtype() == DType::UInt64;
    let int = unsigned.then(|| unsigned::rule(op)).flatten().or(rule.int);
    evaluate_rule(Pointwise { int, ..rule }, op.inputs.len(), e)
}

/// [`evaluate`] by a rule for one element.
pub fn evaluate_rule(rule: Pointwise, inputs: usize, e: &Evaluate) -> Result<Vec<Array>> {
    let (dtype, shape) = &e.outputs[0];
    let inputs: Vec<_> = (0..inputs).map(|i| e.optional(i)).collect();
    let broadcast = Broadcast::new(&inputs, shape);
    let array = match rule.int {
        Some(int) if !inputs.iter().flatten().any(|a| a.dtype().is_float()) => {
            Array::filled(*dtype, shape.clone(), |first, bytes| {
                let load = Loader {
                    load: Array::load_i64s,
                    missing: i64::MIN,
                };
                broadcast.each(first, bytes, *dtype, load, store_i64s, |v| int(e.attrs, v));
            })
        }
        _ => Array::filled(*dtype, shape.clone(), |first, bytes| {
            let load = Loader {
                load: Array::load_f64s,
                missing: f64::NAN,
            };
            broadcast.each(first, bytes, *dtype, load, store_f64s, |v| (rule.float)(e.attrs, v));
        }),
    };
    Ok(vec![array?])
}

/// How elements are read, and what stands for an input that is left out.
struct Loader<T> {
    load: fn(&Array, usize, &mut [T]),
    missing: T,
}

/// How arrays are broadcast to one shape: runs of elements in which each array either advances or stands still.
struct Broadcast<'a> {
    inputs: &'a [Option<&'a Array>],
    /// The extents of the shape, those brought together along which all arrays go on alike.
    extents: Vec<usize>,
    /// For each array its step along each extent; the last one is 0 or 1.
    steps: Vec<Vec<usize>>,
}

impl<'a> Broadcast<'a> {
    fn new(inputs: &'a [Option<&'a Array>], shape: &[usize]) -> Self {
        let full: Vec<_> = inputs
            .iter()
            .map(|a| a.map_or(vec![0; shape.len()], |a| broadcast_steps(a.shape(), shape)))
            .collect();
        let (mut extents, mut steps) = (vec![], vec![vec![]; inputs.len()]);
        for axis in (0..shape.len()).filter(|&axis| shape[axis] != 1) {
            let size = shape[axis];
            let goes_on = !extents.is_empty()
                && steps
                    .iter()
                    .zip(&full)
                    .all(|(s, f)| s.last() == Some(&(f[axis] * size)));
            if goes_on {
                extents.last_mut().into_iter().for_each(|e| *e *= size);
            } else {
                extents.push(size);
            }
            for (steps, full) in steps.iter_mut().zip(&full) {
                if goes_on {
                    steps.pop();
                }
                steps.push(full[axis]);
            }
        }
        Self { inputs, extents, steps }
    }

    /// Writes `function` of the elements from `first` on into `bytes`, a block at a time.
    fn each<T: Copy>(
        &self,
        first: usize,
        bytes: &mut [u8],
        dtype: DType,
        Loader { load, missing }: Loader<T>,
        store: fn(DType, &[T], &mut [u8]),
        function: impl Fn(&[T]) -> T,
    ) {
        let run = self.extents.last().copied().unwrap_or(1);
        let end = first + bytes.len() / dtype.size();
        let mut loaded = vec![[missing; BLOCK]; self.inputs.len()];
        let mut values = vec![missing; self.inputs.len()];
        let mut results = [missing; BLOCK];
        let mut at = first;
        while at < end {
            let count = (run - at % run).min(end - at).min(BLOCK);
            for ((input, steps), block) in self.inputs.iter().zip(&self.steps).zip(&mut loaded) {
                let Some(input) = input else { continue };
                let place = self.place(at, steps);
                if steps.last().is_some_and(|&step| step == 1) {
                    load(input, place, &mut block[..count]);
                } else {
                    load(input, place, &mut block[..1]);
                    let value = block[0];
                    block[..count].fill(value);
                }
            }
            for (i, result) in results[..count].iter_mut().enumerate() {
                values
                    .iter_mut()
                    .zip(&loaded)
                    .for_each(|(value, block)| *value = block[i]);
                *result = function(&values);
            }
            let offset = (at - first) * dtype.size();
            store(
                dtype,
                &results[..count],
                &mut bytes[offset..offset + count * dtype.size()],
            );
            at += count;
        }
    }

    fn place(&self, mut at: usize, steps: &[usize]) -> usize {
        let mut place = 0;
        for (&extent, &step) in self.extents.iter().zip(steps).rev() {
            place += at % extent * step;
            at /= extent;
        }
        place
    }
}

/// The step of `from` along each axis of `to`, 0 where it is broadcast.
fn broadcast_steps(from: &[usize], to: &[usize]) -> Vec<usize> {
    let mut steps = vec![0; to.len()];
    let mut step = 1;
    for axis in (0..from.len()).rev() {
        steps[axis + to.len() - from.len()] = if from[axis] == 1 { 0 } else { step };
        step *= from[axis];
    }
    steps
}

/// For each element of `to`, row-major, the place of the element of `from` that is broadcast to it.
pub fn broadcast_places(from: &[usize], to: &[usize]) -> Vec<usize> {
    ops::places(to, &broadcast_steps(from, to))
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
        $crate::network::ops::pointwise::unary_float!($name, $doc, $float, $crate::network::op::Lowering::BEARS);
    };
    ($name:literal, $doc:literal, $float:expr, $lowering:expr) => {
        $crate::network::ops::pointwise::unary_float!(
            $name,
            $doc,
            $float,
            $lowering,
            $crate::network::least::Least::Unknown
        );
    };
    ($name:literal, $doc:literal, $float:expr, $lowering:expr, $least:expr) => {
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
            lowering: $lowering,
            least: $least,
            ..$crate::network::op::OpDef::PLAIN
        };
        $crate::network::ops::pointwise::pointwise_evaluate!();
    };
}
pub(crate) use unary_float;
