//! Range.

use crate::error::{Error, Result};
use crate::network::LONGEST_VALUE;
use crate::network::array::Array;
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType};
use crate::network::ops::{pointwise, values};

/// Numbers from `start` (included) to `limit` (excluded) in steps of `delta` (ONNX Range).
pub static DEF: OpDef = OpDef {
    name: "Range",
    doc: "Numbers from start (included) to limit (excluded) in steps of delta, which are scalars (ONNX Range)",
    inputs: &["start", "limit", "delta"],
    attrs: &[],
    infer,
    evaluate,
    lowering: Lowering::COUNTS.exact(&[0, 1, 2]),
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let inputs = [infer.input(0)?, infer.input(1)?, infer.input(2)?];
    pointwise::same_dtype(&inputs)?;
    let dtype = inputs[0].dtype;
    if dtype == DType::Bool || inputs.iter().any(|t| !t.elements().is(1)) {
        return Err(Error::shape("Range takes three numbers")
            .expected("scalars")
            .got(inputs.map(TensorType::describe).join(", ")));
    }
    let zero_step = || Err(Error::invalid("the step of a Range is 0").expected("a positive or negative number"));
    if dtype.is_float() {
        let numbers: Option<Vec<_>> = (0..3).map(|i| Some(infer.constant(i)?.to_f64()[0])).collect();
        let count = match numbers.as_deref() {
            Some(&[_, _, 0.0]) => return zero_step(),
            Some(&[start, limit, delta]) => Dim::from(((limit - start) / delta).ceil().max(0.0) as i64),
            _ => infer.fresh(0),
        };
        return Ok(vec![TensorType::new(dtype, vec![count])]);
    }
    let part = |i: usize| infer.value(i).map(|v| v[0].clone());
    let (Some(start), Some(limit), Some(delta)) = (part(0), part(1), part(2)) else {
        return Ok(vec![TensorType::new(dtype, vec![infer.fresh(0)])]);
    };
    let step = match delta.as_const() {
        Some(0) => return zero_step(),
        Some(step) => step,
        None => return Ok(vec![TensorType::new(dtype, vec![infer.fresh(0)])]),
    };
    let span = if step > 0 {
        limit - start.clone()
    } else {
        start.clone() - limit
    };
    let count = values::greatest(&span.ceildiv(&step.abs().into()), &Dim::default());
    let mut output = TensorType::new(dtype, vec![count.clone()]);
    let count = count
        .as_const()
        .filter(|&n| n <= LONGEST_VALUE as i64 && values::carried(dtype));
    output.value = count.map(|n| (0..n).map(|i| start.clone() + (i * step).into()).collect());
    Ok(vec![output])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (dtype, shape) = &e.outputs[0];
    let (start, delta) = (e.input(0)?, e.input(2)?);
    if dtype.is_float() {
        let (start, delta) = (start.to_f64()[0], delta.to_f64()[0]);
        return e.output(&(0..shape[0]).map(|i| start + i as f64 * delta).collect::<Vec<_>>());
    }
    let (start, delta) = (start.to_i64()[0], delta.to_i64()[0]);
    let values: Vec<_> = (0..shape[0] as i64)
        .map(|i| start.wrapping_add(i.wrapping_mul(delta)))
        .collect();
    Ok(vec![Array::from_i64(*dtype, shape.clone(), &values)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Network;
    use crate::network::attr::Attrs;
    use crate::network::ops::{reduce_prod, shape};
    use crate::network::reference::evaluate_op;

    #[test]
    fn lengths_are_symbolic_and_steps_may_be_negative() {
        let mut network = Network::new("");
        let x = network.add_input("x", DType::Float32, vec![Dim::symbol("n")]).unwrap();
        let s = network.add_layer("", &shape::DEF, Attrs::new(), &[Some(x)]).unwrap()[0];
        let all = crate::network::attr::attrs([("keepdims", crate::network::attr::Attr::Int(0))]);
        let n = network.add_layer("", &reduce_prod::DEF, all, &[Some(s)]).unwrap()[0];
        let int = |v: i64| Array::from_i64(DType::Int64, vec![], &[v]).unwrap();
        let [zero, two] = [0, 2].map(|v| network.add_constant("", int(v)));
        let inputs = [Some(zero), Some(n), Some(two)];
        let out = network.add_layer("r", &DEF, Attrs::new(), &inputs).unwrap()[0];
        assert_eq!(network[out].ty.describe(), "int64[floordiv(n + 1, 2)]");
        let down = evaluate_op(&DEF, &Attrs::new(), &[5, 0, -2].map(|v| Some(int(v)))).unwrap();
        assert_eq!(down[0].to_i64(), [5, 3, 1]);
        assert!(evaluate_op(&DEF, &Attrs::new(), &[5, 0, 0].map(|v| Some(int(v)))).is_err());
    }
}
