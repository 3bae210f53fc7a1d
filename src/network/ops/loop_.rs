//! Loop.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType, Uint64};
use crate::network::ops::control::{self, Inside, Known};

/// A network again and again (ONNX Loop).
pub static DEF: OpDef = OpDef {
    name: "Loop",
    doc: "A network again and again, each time on what it gave before, at most `trip_count` times and while the \
          condition holds. It reads the number of the step, the condition, what it carries and captures, and the sizes \
          that it needs; it gives the condition, what it carries, and results that are stacked (ONNX Loop)",
    inputs: &["trip_count?", "condition?", "carried*"],
    attrs: &[
        attr("body", Preset::RequiredBody, "what runs in each step"),
        attr("carried", Preset::RequiredInt, "how many tensors go from step to step"),
    ],
    infer,
    evaluate,
    lowering: Lowering::BOUNDED,
    uint64: Uint64::Exact,
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (inside, end) = Inside::of(infer, "body", 0)?;
    let (inner, carried) = (end - 1, control::count(infer, "carried")?);
    if inner < 2 + carried || inside.network.outputs().len() < 1 + carried {
        return Err(Error::invalid("the network inside has too few inputs or results"));
    }
    for (at, dtype) in [(0, DType::Int64), (1, DType::Bool)] {
        let given = infer.optional(at);
        if given.is_some_and(|ty| ty.dtype != dtype || !ty.elements().is(1)) {
            return Err(Error::dtype(format!("input {at} must be one {dtype}")));
        }
    }
    (2..inner).try_for_each(|at| inside.check(at, at, false))?;
    inside.require_kept(2..2 + carried, 1)?;
    let results = inside.results();
    // Shapes that change from step to step have symbols of their own in the inputs of the body.
    let kept = (2..2 + carried).map(|at| inside.known(inside.network.inputs()[at]));
    let trips = trips(infer, &inside);
    let stacked = results[1 + carried..].iter().map(|(dtype, shape)| {
        let shape = [trips.clone()].into_iter().chain(shape.iter().cloned());
        (*dtype, shape.collect())
    });
    let known: Vec<Known> = kept.chain(stacked).collect();
    Ok(control::typed(infer, known))
}

/// How often the body runs, where no condition ends the loop.
fn trips(infer: &Infer, inside: &Inside) -> Option<Dim> {
    let holds = |value: Option<&[Dim]>| value.is_some_and(|v| v.iter().all(|d| d.is(1)));
    let starts = infer.optional(1).is_none() || holds(infer.value(1)) || is_true(infer.constant(1));
    let goes_on = inside.network.outputs()[0].tensor;
    let tensor = &inside.network[goes_on];
    let stays =
        goes_on == inside.network.inputs()[1] || holds(tensor.ty.value.as_deref()) || is_true(tensor.constant());
    let count = infer.value(0)?.first()?.greatest(&Dim::from(0i64));
    (starts && stays).then_some(count)
}

fn is_true(array: Option<&Array>) -> bool {
    array.is_some_and(|array| array.bytes().iter().all(|&byte| byte != 0))
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let count = e.attrs.int("carried") as usize;
    let trips = e.optional(0).map(|trips| trips.to_i64()[0]);
    let mut goes_on = e.optional(1).map_or(Ok(true), control::truth)?;
    let mut carried: Vec<Array> = e.inputs[2..2 + count].iter().flatten().cloned().collect();
    let captured = control::captured(&e.inputs[2 + count..])?;
    let mut stacks = vec![vec![]; e.outputs.len() - count];
    let mut step = 0;
    while goes_on && trips.is_none_or(|trips| step < trips) {
        let number = Array::from_i64(DType::Int64, vec![], &[step])?;
        let mut inputs = vec![number, Array::scalar(DType::Bool, 1.0)];
        inputs.append(&mut carried);
        inputs.extend(captured.iter().cloned());
        let mut results = e.run("body", &inputs)?.into_iter();
        goes_on = results
            .next()
            .map_or(Ok(false), |condition| control::truth(&condition))?;
        carried.extend(results.by_ref().take(count));
        stacks
            .iter_mut()
            .zip(results)
            .for_each(|(stack, part)| stack.push(part));
        step += 1;
    }
    let stacked = stacks.into_iter().zip(&e.outputs[count..]);
    let stacked = stacked.map(|(parts, none)| control::stacked(parts, 0, &empty(none)));
    carried.into_iter().map(Ok).chain(stacked).collect()
}

/// dtype and shape of a stack of nothing.
fn empty((dtype, shape): &(DType, Vec<usize>)) -> (DType, Vec<usize>) {
    let mut shape = shape.clone();
    shape[0] = 0;
    (*dtype, shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Network;
    use crate::network::attr::{Attr, attrs};
    use crate::network::body::OpenBody;

    #[test]
    fn counts_that_no_layer_has_are_refused() {
        for carried in [-1, 2, i64::MAX] {
            let mut body = Network::new("body");
            body.add_input("i", DType::Int64, vec![]).unwrap();
            let condition = body.add_input("c", DType::Bool, vec![]).unwrap();
            body.mark_output(condition, "c").unwrap();
            let mut network = Network::new("");
            let attr = ("carried", Attr::Int(carried));
            let body = OpenBody {
                attr: "body".into(),
                network: body,
                captures: vec![],
            };
            assert!(
                network
                    .add_control("loop", &DEF, attrs([attr]), &[None, None], vec![body])
                    .is_err()
            );
        }
    }
}
