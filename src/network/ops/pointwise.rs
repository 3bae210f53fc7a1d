//! What pointwise ops share: type rules, and the reference evaluation with broadcasting.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::dtype::DType;
use crate::network::op::{Evaluate, Infer, OpDef, TensorType};
use crate::network::ops;

/// Output: the broadcast shape and the common dtype of all inputs.
pub fn infer_same(infer: &Infer) -> Result<Vec<TensorType>> {
    let dtype = infer.input(0)?.dtype;
    infer_as(infer, dtype)
}

/// Output: the broadcast shape, bool.
pub fn infer_bool(infer: &Infer) -> Result<Vec<TensorType>> {
    infer_as(infer, DType::Bool)
}

/// As [`infer_same`], and the dtype must be a floating-point one.
pub fn infer_float(infer: &Infer) -> Result<Vec<TensorType>> {
    let dtype = infer.input(0)?.dtype;
    if !dtype.is_float() {
        return Err(Error::dtype("the op works on floating-point tensors").got(dtype.name()));
    }
    infer_as(infer, dtype)
}

fn infer_as(infer: &Infer, dtype: DType) -> Result<Vec<TensorType>> {
    let inputs: Vec<_> = infer.inputs.iter().flatten().collect();
    if let Some(other) = inputs.iter().find(|t| t.dtype != inputs[0].dtype) {
        return Err(Error::dtype("the inputs differ in dtype")
            .expected(inputs[0].dtype.name())
            .got(other.dtype.name())
            .hint("insert a Cast: types are never converted silently"));
    }
    let shapes: Vec<_> = inputs.iter().map(|t| t.shape.as_slice()).collect();
    Ok(vec![TensorType::new(dtype, infer.broadcast(&shapes)?)])
}

/// Elements of a symbolic value, computed from those of the inputs (each of one element, or of as many as the output).
pub fn combine_values(
    infer: &Infer,
    mut outputs: Vec<TensorType>,
    combine: impl Fn(&[super::Dim]) -> Option<super::Dim>,
) -> Vec<TensorType> {
    let Some(values) = (0..infer.inputs.len())
        .map(|i| infer.value(i))
        .collect::<Option<Vec<_>>>()
    else {
        return outputs;
    };
    let length = values.iter().map(|v| v.len()).max().unwrap_or(0);
    if outputs[0].rank() <= 1 && values.iter().all(|v| v.len() == length || v.len() == 1) {
        let element = |i: usize| combine(&values.iter().map(|v| v[i % v.len()].clone()).collect::<Vec<_>>());
        outputs[0].value = (0..length).map(element).collect();
    }
    outputs
}

/// The reference of every op that has `pointwise` set.
pub fn evaluate(op: &OpDef, e: &Evaluate) -> Result<Vec<Array>> {
    let rule = op
        .pointwise
        .ok_or_else(|| Error::internal(format!("{} is not pointwise", op.name)))?;
    let (dtype, shape) = &e.outputs[0];
    let inputs: Vec<&Array> = e.inputs.iter().flatten().collect();
    let places: Vec<Vec<usize>> = inputs.iter().map(|a| broadcast_places(a.shape(), shape)).collect();
    let count: usize = shape.iter().product();
    match rule.int {
        Some(int) if !inputs[0].dtype().is_float() => {
            let data: Vec<_> = inputs.iter().map(|a| a.to_i64()).collect();
            let mut values = vec![0; data.len()];
            let element = |i: usize| {
                (0..data.len()).for_each(|k| values[k] = data[k][places[k][i]]);
                int(e.attrs, &values)
            };
            Ok(vec![Array::from_i64(
                *dtype,
                shape.clone(),
                &(0..count).map(element).collect::<Vec<_>>(),
            )?])
        }
        _ => {
            let data: Vec<_> = inputs.iter().map(|a| a.to_f64()).collect();
            let mut values = vec![0.0; data.len()];
            let element = |i: usize| {
                (0..data.len()).for_each(|k| values[k] = data[k][places[k][i]]);
                (rule.float)(e.attrs, &values)
            };
            e.output(&(0..count).map(element).collect::<Vec<_>>())
        }
    }
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
