//! Scan.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType, Uint64, axis_of};
use crate::network::ops::control::{self, Inside, Stack};

/// A network on one slice after another (ONNX Scan, from opset 9 on).
pub static DEF: OpDef = OpDef {
    name: "Scan",
    doc: "A network on one slice of each scanned tensor after another, with a state that goes from step to step. It reads \
          the states, the slices, what it captures, and the sizes that it needs; it gives the states and results that \
          are stacked (ONNX Scan, from opset 9 on)",
    inputs: &["initial*"],
    attrs: &[
        attr("body", Preset::RequiredBody, "what runs in each step"),
        attr("states", Preset::RequiredInt, "how many tensors go from step to step"),
        attr("input_axes", Preset::RequiredInts, "the axis of each scanned tensor"),
        attr(
            "input_directions",
            Preset::RequiredInts,
            "1 for each that is read from its end on",
        ),
        attr(
            "output_axes",
            Preset::RequiredInts,
            "the axis along which each result is stacked",
        ),
        attr(
            "output_directions",
            Preset::RequiredInts,
            "1 for each that is stacked from its end on",
        ),
    ],
    infer,
    evaluate,
    lowering: Lowering::BOUNDED,
    uint64: Uint64::Exact,
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (inside, end) = Inside::of(infer, "body", 0)?;
    let (states, axes) = (control::count(infer, "states")?, infer.attrs.ints("input_axes"));
    let (outputs, given) = (infer.attrs.ints("output_axes"), inside.network.outputs().len());
    let lists = ["input_directions", "output_directions"].map(|name| infer.attrs.ints(name).len());
    if end <= states + axes.len() || given != states + outputs.len() || lists != [axes.len(), outputs.len()] {
        return Err(Error::invalid(
            "the network inside has another number of inputs or results than the attributes say",
        ));
    }
    let scanned = |at: usize| (states..states + axes.len()).contains(&at);
    (0..end - 1).try_for_each(|at| inside.check(at, at, scanned(at)))?;
    inside.require_kept(0..states, 0)?;
    let mut steps = None;
    for (at, &axis) in axes.iter().enumerate() {
        let ty = infer.input(states + at)?;
        let extent = &ty.shape[ty.axis(axis)?];
        match &steps {
            None => steps = Some(extent.clone()),
            Some(steps) => infer.require_equal(steps, extent, "scanned tensors have the same number of slices")?,
        }
    }
    let mut known = inside.results();
    for ((_, shape), &axis) in known[states..].iter_mut().zip(outputs) {
        shape.insert(axis_of(axis, shape.len() + 1)?, steps.clone());
    }
    Ok(control::typed(infer, known))
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (count, axes) = (e.attrs.int("states") as usize, e.attrs.ints("input_axes"));
    let mut states: Vec<Array> = e.inputs[..count].iter().flatten().cloned().collect();
    let captured = control::captured(&e.inputs[count + axes.len()..])?;
    let mut scanned = vec![];
    for (at, &axis) in axes.iter().enumerate() {
        let array = e.input(count + at)?;
        let backwards = e.attrs.ints("input_directions")[at] != 0;
        scanned.push((array, axis_of(axis, array.shape().len())?, backwards));
    }
    let steps = scanned.first().map_or(0, |&(array, axis, _)| array.shape()[axis]);
    let mut stacks = (count..e.outputs.len())
        .zip(e.attrs.ints("output_axes"))
        .map(|(output, &axis)| Ok(Stack::of(steps, axis_of(axis, e.outputs[output].1.len())?)))
        .collect::<Result<Vec<_>>>()?;
    for step in 0..steps {
        let slice = |&(array, axis, backwards): &(&Array, usize, bool)| {
            control::sliced(array, axis, if backwards { steps - 1 - step } else { step })
        };
        let mut inputs = std::mem::take(&mut states);
        inputs.extend(scanned.iter().map(slice).collect::<Result<Vec<_>>>()?);
        inputs.extend(captured.iter().cloned());
        let mut results = e.run("body", &inputs)?.into_iter();
        states.extend(results.by_ref().take(count));
        let directions = e.attrs.ints("output_directions");
        for ((stack, &backwards), part) in stacks.iter_mut().zip(directions).zip(results) {
            stack.put(if backwards != 0 { steps - 1 - step } else { step }, &part)?;
        }
    }
    let mut outputs = states;
    for (stack, none) in stacks.into_iter().zip(&e.outputs[count..]) {
        outputs.push(stack.array(none)?);
    }
    Ok(outputs)
}
